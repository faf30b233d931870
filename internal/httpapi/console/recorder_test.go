package console

import (
	"context"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// A day and more is recorded in far less than 16 MiB, and the last 24 hours are there.
func TestRecorderKeepsADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := int64(0)
		r := &Recorder{Now: time.Now, Read: func() Reading {
			n++
			role := []string{"primary", "fenced"}[n/300%2]
			read := Reading{Role: role, Serving: true, Gets: 100 * n, Hits: 90 * n, Saves: n / 7, Loads: int(n / 7), Puts: Latency{Count: uint64(n), Bounds: []float64{1}, Counts: []uint64{uint64(n)}}}
			if role == "fenced" {
				read.Obstacle = strings.Repeat("w", 10_000)
			}
			return read
		}}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		before := heap()
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(49 * time.Hour)
		synctest.Wait()
		grown := heap() - before
		if grown > 6<<20 {
			t.Errorf("the recording takes %d bytes, want at most 6 MiB", grown)
		}
		t.Logf("49 hours: %d bytes, %d a sample", grown, unsafe.Sizeof(sample{}))
		now := time.Now()
		s := r.series(now.Add(-24*time.Hour), now)
		if len(s.At) < maxSteps-1 || len(s.At) > maxSteps+1 || *s.Hits[0] != 0.9 || *s.Gets[1] != 100 || *s.Puts[1] != 1 {
			t.Errorf("24 hours: %d steps, want about %d with a hit rate of 0.9 and a put a second", len(s.At), maxSteps)
		}
		if oldest := s.At[0]; oldest > now.Add(-24*time.Hour+3*time.Minute).Unix() {
			t.Errorf("the oldest step is of %v, want it a day ago", time.Unix(oldest, 0))
		}
		marks, _, _ := r.noted(now.Add(-24*time.Hour), now)
		if saves := r.marks["snapshot"]; len(saves) == 0 || saves[0].at.After(now.Add(-24*time.Hour)) {
			t.Errorf("of state files there are %d marks, want those of 24 hours", len(saves))
		}
		if len(marks) < 2*24*60*60/(300+int(savesApart/time.Second)) {
			t.Errorf("the last 24 hours: got %d marks, want at least %d", len(marks), 2*24*60*60/(300+int(savesApart/time.Second)))
		}
		if len(r.marks["role"]) > maxMarks || len(r.marks["load"]) != maxMarks || len(r.gaps) != maxGaps || len(r.gaps[0].Cause) > maxText+3 {
			t.Errorf("%d marks, %d gaps with %d bytes of text: want %d, %d and at most %d", len(r.marks), len(r.gaps), len(r.gaps[0].Cause), maxMarks, maxGaps, maxText)
		}
		stop()
		if err := <-ended; err == nil {
			t.Error("Run at its context's end: got no error, want the context's")
		}
	})
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What changes is noted once, with its time.
func TestRecorderNotesChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := Reading{Role: "standby", Primary: "a"}
		r := &Recorder{Now: time.Now, Read: func() Reading { return read }}
		step := func(change func()) {
			change()
			r.record()
			time.Sleep(sampleEvery)
		}
		begun := time.Now()
		step(func() {})
		step(func() { read.Obstacle = "it waits" })
		if g := r.open(); g == nil || g.Cause != "it waits" {
			t.Errorf("while nobody serves: got %+v, want a gap that lasts", g)
		}
		step(func() { read.Obstacle = "etcd is away" })
		step(func() { read.Obstacle, read.Role, read.Primary = "", "primary", "b" })
		step(func() { read.Saves, read.Loads, read.LoadReason = 1, 2, "start" })
		marks, gaps, start := r.noted(begun, time.Now())
		var texts []string
		for _, m := range marks {
			texts = append(texts, m.kind+": "+m.text)
		}
		want := []string{
			"role: this process started, as standby", "role: this node turned from standby to primary", "role: this node saw b elected",
			"snapshot: this node saved a state file", "load: this node loaded a snapshot: start",
		}
		if got := strings.Join(texts, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
		if len(gaps) != 1 || gaps[0].Cause != "etcd is away" || gaps[0].To.Sub(gaps[0].From) != 2*sampleEvery || start != begun {
			t.Errorf("got the gaps %+v since %v, want one of 2 s", gaps, start)
		}
		if r.open() != nil {
			t.Errorf("a gap after etcd is back: got %+v open, want it ended", r.open())
		}
		if _, gaps, _ := r.noted(begun.Add(time.Hour), begun.Add(2*time.Hour)); len(gaps) != 0 {
			t.Errorf("an hour later: got %+v, want no gap", gaps)
		}
	})
}

// A node that starts under a primary learns of it within a sample: that is no gap. One
// that lasts is, from the start on.
func TestStartIsNoGap(t *testing.T) {
	for _, unsure := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			read := Reading{Role: "standby", Obstacle: "no node is elected yet"}
			r := &Recorder{Now: time.Now, Read: func() Reading { return read }}
			begun := time.Now()
			for range unsure {
				r.record()
				time.Sleep(sampleEvery)
			}
			read.Obstacle = ""
			r.record()
			if _, gaps, _ := r.noted(begun, time.Now()); len(gaps) != unsure-1 {
				t.Errorf("%d samples without a primary: got the gaps %+v, want %d", unsure, gaps, unsure-1)
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	bounds := []float64{0.001, 0.01, 0.1}
	for name, row := range map[string]struct {
		now, before Latency
		want        float64
	}{
		"nothing":             {Latency{0, bounds, []uint64{0, 0, 0}}, Latency{}, math.NaN()},
		"nothing since":       {Latency{9, bounds, []uint64{9, 9, 9}}, Latency{9, bounds, []uint64{9, 9, 9}}, math.NaN()},
		"half of a bucket":    {Latency{10, bounds, []uint64{0, 10, 10}}, Latency{}, 0.0055},
		"above all bounds":    {Latency{10, bounds, []uint64{0, 0, 0}}, Latency{}, 0.1},
		"only the difference": {Latency{110, bounds, []uint64{100, 100, 110}}, Latency{100, bounds, []uint64{100, 100, 100}}, 0.055},
	} {
		got := row.now.quantile(0.5, row.before)
		if math.Abs(got-row.want) > 1e-9 || math.IsNaN(got) != math.IsNaN(row.want) {
			t.Errorf("%s: got %v, want %v", name, got, row.want)
		}
	}
}

// A day of samples is joined fast enough to be asked for twice a second.
func BenchmarkSeries(b *testing.B) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	r := &Recorder{Now: func() time.Time { now = now.Add(time.Second); return now }, Read: func() Reading { return Reading{Role: "primary"} }}
	for range maxSamples {
		r.record()
	}
	for b.Loop() {
		r.series(now.Add(-24*time.Hour), now)
	}
}

// text shows the curves of the last steps: hit rate, gets, puts and the latency of puts.
func (s series) text() string {
	value := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return strconv.FormatFloat(*v, 'g', 3, 64)
	}
	var steps []string
	for i := range s.At {
		steps = append(steps, strings.Join([]string{value(s.Hits[i]), value(s.Gets[i]), value(s.Puts[i]), value(s.P99[i])}, " "))
	}
	return strings.Join(steps, ", ")
}

// A node that does not serve has the curves of the primary, where that one registers its counts,
// and no values where it does not know them, as before it knew two counts of one process.
func TestRecorderOfAStandby(t *testing.T) {
	primary := func(gets, hits, puts int64) Reading {
		return Reading{Primary: "a", Elected: Counts{Since: 1, Gets: gets, Hits: hits, Puts: puts, PutP99: 2}}
	}
	elected := func(name string, since int64, r Reading) Reading {
		r.Primary, r.Elected.Since = name, since
		return r
	}
	own := func(serving bool, gets, hits int64) Reading {
		return Reading{Primary: "b", Serving: serving, Gets: gets, Hits: hits}
	}
	unseen := Reading{Primary: "a", Obstacle: "a committed nothing", Elected: Counts{Since: 1, Gets: 9}}
	for name, row := range map[string]struct {
		readings []Reading // a second apart
		want     string
	}{
		"the primary is of an older version": {[]Reading{{Primary: "a"}, {Primary: "a"}}, "- - - -, - - - -"},
		"this node is fenced":                {[]Reading{own(true, 0, 0), own(true, 4, 3), own(false, 8, 6), own(false, 8, 6)}, "- 0 0 -, 0.75 4 0 -, 0.75 4 0 -, - - - -"},
		"the primary counts":                 {[]Reading{{}, primary(10, 5, 1), primary(14, 6, 3), primary(16, 8, 3)}, "- - - -, - - - -, 0.25 4 2 2, 1 2 0 -"},
		"the primary's counts are late":      {[]Reading{primary(0, 0, 0), primary(0, 0, 0), primary(4, 3, 3)}, "- - - -, 1 1 1 2, 0.667 3 2 2"},
		"the primary is idle for long":       {[]Reading{primary(0, 0, 0), primary(0, 0, 0), primary(0, 0, 0), primary(0, 0, 0), primary(4, 3, 3)}, "- - - -, - 0 0 -, - 0 0 -, - 0 0 -, 0.75 4 3 2"},
		"the primary starts again":           {[]Reading{primary(9, 9, 9), elected("a", 2, primary(2, 2, 2)), elected("a", 2, primary(3, 2, 2))}, "- - - -, - - - -, 0 1 0 -"},
		"another node is elected":            {[]Reading{primary(9, 9, 9), elected("c", 1, primary(12, 12, 12)), elected("c", 1, primary(13, 12, 12))}, "- - - -, - - - -, 0 1 0 -"},
		"nobody serves":                      {[]Reading{primary(9, 9, 9), unseen}, "- - - -, - - - -"},
		"counts go back":                     {[]Reading{primary(9, 9, 9), primary(2, 2, 2)}, "- - - -, - 0 0 -"},
		"this node takes over":               {[]Reading{primary(0, 0, 0), primary(4, 3, 1), own(false, 7, 7), own(true, 9, 8)}, "- - - -, 0.75 4 1 2, - - - -, 0.5 2 0 -"},
	} {
		t.Run(name, func(t *testing.T) {
			now, i := noon, -1
			r := &Recorder{Now: func() time.Time { return now }, Read: func() Reading { return row.readings[i] }}
			for i = range row.readings {
				r.record()
				now = now.Add(sampleEvery)
			}
			if got := r.series(noon, now).text(); got != row.want {
				t.Errorf("got\n%s\nwant\n%s", got, row.want)
			}
		})
	}
}

// What the primary registers is what it has counted until now, with the latency of the last
// second in which there were puts.
func TestRecorderCounts(t *testing.T) {
	read := Reading{Serving: true, Puts: Latency{Bounds: []float64{0.1}, Counts: []uint64{0}}}
	r := &Recorder{Now: func() time.Time { return noon }, Read: func() Reading { return read }}
	if got := r.Counts(); got != (Counts{}) {
		t.Errorf("before the first sample: got %+v, want nothing", got)
	}
	r.record()
	read.Puts.Count, read.Puts.Counts = 1, []uint64{1}
	r.record()
	r.record() // without a put
	read.Gets, read.Hits = 7, 5
	if got, want := r.Counts(), (Counts{Since: noon.UnixMilli(), Gets: 7, Hits: 5, Puts: 1, PutP99: 99}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
