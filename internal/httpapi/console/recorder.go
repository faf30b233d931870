package console

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
)

// Bounds of the recording. A sample takes 32 bytes, so a day takes 3 MB; with the
// marks and gaps, whose texts are cut, it stays far below 16 MiB.
const (
	sampleEvery = time.Second
	maxSamples  = 24 * 60 * 60
	chunk       = 60 * 60 // samples that are allocated at once
	maxMarks    = 1024    // of one kind
	maxGaps     = 256
	maxText     = 512 // bytes
	// savesApart is how long after a state file the next one is marked: a busy node saves one
	// each 30 s.
	savesApart = 5 * time.Minute
)

// A Reading is how the node stands at one moment. Counts are those since its start.
type Reading struct {
	Role     string
	Term     uint64
	Primary  string // the elected node; empty for none
	Serving  bool   // this node serves
	Obstacle string // why nobody serves, as far as this node knows

	Gets, Hits int64 // keys that were asked for, or found missing; keys that were found
	Puts       Latency
	Saves      int64 // state files
	Loads      int   // snapshots
	LoadReason string

	Elected Counts // of the primary, as it registered them last; zero on that node, and if they are not known
}

// Counts are what a node counted of calls since its process started, for the other nodes.
type Counts struct {
	Since            int64 // when it began, in milliseconds since 1970, to tell processes apart; 0 for nothing
	Gets, Hits, Puts int64
	PutP99           float64 // of the last second with puts, in milliseconds; 0 before the first
}

// Latency is a cumulative histogram, in seconds: how many took at most each bound.
type Latency struct {
	Count  uint64
	Bounds []float64
	Counts []uint64
}

// quantile returns the time within which a part of what was counted since before
// ended, as Prometheus' histogram_quantile has it; NaN if there is nothing.
func (l Latency) quantile(q float64, before Latency) float64 {
	since := func(i int) float64 {
		if i >= len(before.Counts) {
			return float64(l.Counts[i])
		}
		return float64(l.Counts[i]) - float64(before.Counts[i])
	}
	all := float64(l.Count) - float64(before.Count)
	if all <= 0 || len(l.Counts) == 0 {
		return math.NaN()
	}
	lower, below := 0.0, 0.0
	for i, bound := range l.Bounds {
		n := since(i)
		if n >= q*all {
			return lower + (bound-lower)*(q*all-below)/(n-below)
		}
		lower, below = bound, n
	}
	return lower // above the last bound
}

// A sample is what is kept of one second.
type sample struct {
	at               int64 // wall time, in milliseconds
	gets, hits, puts uint32
	p99              float32 // of puts, in milliseconds; NaN without any
	known            bool    // this node served, or knows what the primary did
}

// A mark is something that happened at a moment.
type mark struct {
	at   time.Time
	kind string // role, snapshot, load
	text string
}

// markKinds are those of marks. Each has its own bound, so that none drops another.
var markKinds = []string{"role", "snapshot", "load"}

// A gap is a time in which nobody served, as this node saw it.
type gap struct {
	From, To time.Time // To is zero while it lasts
	Cause    string
	Own      bool // this node served until then, so it knows
}

// A Recorder keeps what the node's figures were over the last 24 hours, a sample a
// second. It is lost when the process ends.
type Recorder struct {
	Read func() Reading
	Now  func() time.Time // wall time

	mu     sync.Mutex        // guards all below
	chunks [][]sample        // full but for the last, oldest first
	marks  map[string][]mark // by kind
	saved  time.Time         // of the last mark of a state file
	gaps   []gap
	last   Reading
	p99    float64 // of this node's last second with puts, in milliseconds; 0 before the first
	quiet  int     // the newest samples in which the primary, another node, counted nothing
	begun  bool
	start  time.Time
}

// Run records until the context ends.
func (r *Recorder) Run(ctx context.Context) error {
	r.record()
	return clock.Every(ctx, sampleEvery, func() error {
		r.record()
		return nil
	})
}

// record takes a sample, and notes what has changed since the one before.
func (r *Recorder) record() {
	now, read := r.Now(), r.Read()
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.last
	if !r.begun {
		r.begun, r.start, before = true, now, read
		before.Elected = Counts{}
		r.mark(now, "role", "this process started, as "+read.Role)
	}
	if read.Role != before.Role {
		r.mark(now, "role", "this node turned from "+before.Role+" to "+read.Role)
	}
	if read.Primary != before.Primary && read.Primary != "" {
		r.mark(now, "role", "this node saw "+read.Primary+" elected")
	}
	if read.Saves > before.Saves && now.Sub(r.saved) >= savesApart {
		r.saved = now
		r.mark(now, "snapshot", "this node saved a state file")
	}
	if read.Loads > before.Loads {
		r.mark(now, "load", "this node loaded a snapshot: "+read.LoadReason)
	}
	r.watch(now, read, before.Serving)
	r.last = read
	r.add(r.counted(now, before, read))
}

// counted returns the sample of the second between two readings: of this node's calls if it
// served, else of the primary's if one serves and both readings have counts of one process. Needs mu.
func (r *Recorder) counted(now time.Time, before, read Reading) sample {
	s := sample{at: now.UnixMilli(), p99: float32(math.NaN()), known: true}
	from, to := before.Elected, read.Elected
	switch {
	case read.Serving || before.Serving:
		r.quiet = 0
		s.gets, s.hits, s.puts = grown(before.Gets, read.Gets), grown(before.Hits, read.Hits), grown(int64(before.Puts.Count), int64(read.Puts.Count))
		if p99 := 1000 * read.Puts.quantile(0.99, before.Puts); !math.IsNaN(p99) {
			r.p99, s.p99 = math.Round(1000*p99)/1000, float32(p99)
		}
	case to.Since == 0 || to.Since != from.Since || read.Primary != before.Primary || read.Obstacle != "":
		r.quiet, s.known = 0, false
	case to == from:
		r.quiet++
	default:
		s.gets, s.hits, s.puts = grown(from.Gets, to.Gets), grown(from.Hits, to.Hits), grown(from.Puts, to.Puts)
		if s.puts > 0 {
			s.p99 = float32(to.PutP99)
		}
		r.spread(&s)
	}
	return s
}

// maxLate is how many seconds the primary's counts may be late: it registers them about once a
// second, and this node reads them about once a second.
const maxLate = 2

// spread shares what the primary counted among a new sample and those since its counts changed
// before, unless these are so many that it counted nothing in them. Needs mu.
func (r *Recorder) spread(s *sample) {
	late := r.quiet
	r.quiet = 0
	if late > maxLate {
		return
	}
	all, misses := *s, s.gets-min(s.hits, s.gets)
	for i := range late + 1 {
		to := s
		if i < late {
			to = r.back(late - i)
		}
		part := func(n uint32) uint32 {
			n64, parts := uint64(n), uint64(late)+1
			return uint32(n64*uint64(i+1)/parts - n64*uint64(i)/parts)
		}
		to.hits, to.puts, to.p99 = part(all.hits), part(all.puts), all.p99
		to.gets = to.hits + part(misses) // so that no hit rate is above 1
	}
}

// back returns the n-th newest sample, from 1, of those that are kept. Needs mu.
func (r *Recorder) back(n int) *sample {
	for i := len(r.chunks) - 1; ; i-- {
		c := r.chunks[i]
		if n <= len(c) {
			return &c[len(c)-n]
		}
		n -= len(c)
	}
}

// Counts returns what this node has counted until now; zero before the first sample.
func (r *Recorder) Counts() Counts {
	read := r.Read()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.begun {
		return Counts{}
	}
	return Counts{Since: r.start.UnixMilli(), Gets: read.Gets, Hits: read.Hits, Puts: int64(read.Puts.Count), PutP99: r.p99}
}

func grown(from, to int64) uint32 { return uint32(min(max(to-from, 0), math.MaxUint32)) }

// mark needs mu.
func (r *Recorder) mark(at time.Time, kind, text string) {
	if r.marks == nil {
		r.marks = make(map[string][]mark)
	}
	r.marks[kind] = bounded(append(r.marks[kind], mark{at, kind, cut(text)}), maxMarks)
}

// watch begins and ends gaps. served says that this node served until now. Needs mu.
func (r *Recorder) watch(now time.Time, read Reading, served bool) {
	lasts := len(r.gaps) > 0 && r.gaps[len(r.gaps)-1].To.IsZero()
	switch {
	case read.Obstacle != "" && !lasts:
		r.gaps = bounded(append(r.gaps, gap{From: now, Cause: cut(read.Obstacle), Own: served}), maxGaps)
	case read.Obstacle != "": // the newest cause counts
		r.gaps[len(r.gaps)-1].Cause = cut(read.Obstacle)
	case lasts && r.gaps[0].From.Equal(r.start) && now.Sub(r.start) < 2*sampleEvery:
		r.gaps = nil // a node that has just started did not know yet who serves
	case lasts:
		r.gaps[len(r.gaps)-1].To = now
	}
}

// add needs mu.
func (r *Recorder) add(s sample) {
	if n := len(r.chunks); n == 0 || len(r.chunks[n-1]) == chunk {
		r.chunks = bounded(append(r.chunks, make([]sample, 0, chunk)), maxSamples/chunk+1)
	}
	last := &r.chunks[len(r.chunks)-1]
	*last = append(*last, s)
}

func bounded[T any](list []T, most int) []T {
	if len(list) <= most {
		return list
	}
	return slices.Delete(list, 0, len(list)-most)
}

func cut(text string) string {
	if len(text) > maxText {
		return text[:maxText] + "…"
	}
	return text
}

// open returns the gap that lasts, nil if there is none.
func (r *Recorder) open() *gap {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.gaps); n > 0 && r.gaps[n-1].To.IsZero() {
		g := r.gaps[n-1]
		return &g
	}
	return nil
}

// noted returns what happened in a time, and since when the node has recorded.
func (r *Recorder) noted(from, to time.Time) (marks []mark, gaps []gap, start time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, kind := range markKinds {
		for _, m := range r.marks[kind] {
			if !m.at.Before(from) && !m.at.After(to) {
				marks = append(marks, m)
			}
		}
	}
	for _, g := range r.gaps {
		if !g.From.After(to) && (g.To.IsZero() || !g.To.Before(from)) {
			gaps = append(gaps, g)
		}
	}
	return marks, gaps, r.start
}

// hits returns how many keys were found, and asked for, in the last time of this length.
func (r *Recorder) hits(over time.Duration) (hits, gets int64) {
	first := r.Now().Add(-over).UnixMilli()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.chunks {
		for _, p := range c {
			if p.at > first {
				hits, gets = hits+int64(p.hits), gets+int64(p.gets)
			}
		}
	}
	return hits, gets
}

// A series is the samples of a time, joined to steps. Values are null where nothing
// was counted, and where this node does not know what was.
type series struct {
	At   []int64    `json:"at"`  // seconds, the end of the step
	Hits []*float64 `json:"hit"` // hit rate
	P99  []*float64 `json:"p99"` // the highest of a second in the step, in milliseconds
	Puts []*float64 `json:"puts"`
	Gets []*float64 `json:"gets"` // a second
}

// series joins the samples of a time to about maxSteps at most.
func (r *Recorder) series(from, to time.Time) (s series) {
	step := max(1, int64(math.Ceil(to.Sub(from).Seconds()/maxSteps)))
	var sum sample
	seconds := int64(0) // of those that are known
	flush := func() {
		if sum.at == 0 {
			return
		}
		s.At = append(s.At, sum.at)
		s.Hits = append(s.Hits, known(float64(sum.hits)/float64(sum.gets)))
		s.P99 = append(s.P99, known(float64(sum.p99)))
		s.Puts = append(s.Puts, known(float64(sum.puts)/float64(seconds)))
		s.Gets = append(s.Gets, known(float64(sum.gets)/float64(seconds)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	first, last := from.UnixMilli(), to.UnixMilli()
	for _, c := range r.chunks {
		if len(c) == 0 || c[len(c)-1].at < first || c[0].at > last {
			continue
		}
		for _, p := range c {
			if p.at < first || p.at > last {
				continue
			}
			at := (p.at/1000/step + 1) * step
			if at != sum.at {
				flush()
				sum, seconds = sample{at: at, p99: float32(math.NaN())}, 0
			}
			if !p.known {
				continue
			}
			seconds++
			sum.gets, sum.hits, sum.puts = sum.gets+p.gets, sum.hits+p.hits, sum.puts+p.puts
			if math.IsNaN(float64(sum.p99)) || p.p99 > sum.p99 {
				sum.p99 = p.p99
			}
		}
	}
	flush()
	return s
}

func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
