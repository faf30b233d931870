package metadata

import (
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// maxDrains bounds the drain jobs that are remembered, and maxDrained the segments
// of one.
const (
	maxDrains  = 1024
	maxDrained = 1024
)

// A segment that is drained takes no new objects, and is not unmounted: it is closed
// until a time that never comes.
const (
	draining = never
	drained  = never - 1
)

// drains reports whether a drain job has closed the segment.
func (p *segmentState) drains() bool { return p.closes() >= drained }

// DrainStatus is how far a drain job is, with the C++ master's numbers.
type DrainStatus uint8

// The states of a drain job.
const (
	DrainRunning DrainStatus = iota + 2
	DrainSucceeded
	DrainFailed
	DrainCanceled
)

func (s DrainStatus) String() string {
	return nameOf(s-1, "RUNNING", "SUCCEEDED", "FAILED", "CANCELED")
}

// A Drain is a job that moves all objects away from segments, which take no new ones
// from its beginning. It is part of the state.
type Drain struct {
	ID          TaskID
	Segments    []string         // names
	Targets     []string         // names of segments to move to; none for all
	Numbers     []segment.Number // of the segments
	Concurrency uint32           // objects that are moved at once
	Status      DrainStatus
	Message     string
	Created     Time
	Updated     Time
	Succeeded   uint64 // objects that were moved
	Failed      uint64 // moves that failed
	Bytes       uint64 // that were moved
}

func (d *Drain) code(c *binenc.Coder) {
	c.CodeFixed(d.ID[:])
	for _, names := range []*[]string{&d.Segments, &d.Targets} {
		binenc.CodeSlice(c, names, 1, func(name *string) { c.CodeString(name, MaxNameBytes) })
	}
	codeNumbers(c, &d.Numbers)
	binenc.CodeUvarintMax(c, &d.Concurrency, "a concurrency", 1<<32-1)
	status := byte(d.Status)
	c.CodeByte(&status)
	if d.Status = DrainStatus(status); d.Status < DrainRunning || d.Status > DrainCanceled {
		c.Fail("drain status %d", status)
	}
	c.CodeString(&d.Message, maxTaskMessage)
}

func (d *Drain) codeRest(c *binenc.Coder) {
	binenc.CodeVarint(c, &d.Created)
	binenc.CodeVarint(c, &d.Updated)
	for _, n := range []*uint64{&d.Succeeded, &d.Failed, &d.Bytes} {
		binenc.CodeUvarint(c, n)
	}
}

func (d *Drain) digestTerm() Digest {
	c := binenc.Encoder(nil)
	d.code(&c)
	d.codeRest(&c)
	return finish(mix(seedDrain, xxh3.Hash(c.Encoded())))
}

// SaveDrain begins a drain job, or ends one that runs.
type SaveDrain struct {
	objectEvent

	Drain
}

// Apply saves the job. It closes the segments of the job, or opens them again unless
// something else keeps them closed.
func (e *SaveDrain) Apply(tx *Tx) error {
	s, closes := tx.s, Time(0)
	switch e.Status {
	case DrainRunning:
		closes = draining
	case DrainSucceeded:
		closes = drained
	case DrainFailed, DrainCanceled:
	}
	for _, number := range e.Numbers {
		if p := s.segments[number]; p != nil && (p.closes() == 0 || p.drains()) {
			s.closeSegment(p, closes)
		}
	}
	if tx.globalHas() {
		return nil
	}
	if d := s.drain(e.ID); d != nil {
		s.digest -= d.digestTerm()
		d.Status, d.Message, d.Updated = e.Status, e.Message, tx.now
		s.digest += d.digestTerm()
		return nil
	}
	d := e.Drain
	d.Created, d.Updated = tx.now, tx.now
	s.digest += d.digestTerm()
	s.drainJobs = append(s.drainJobs, &d)
	if len(s.drainJobs) > maxDrains {
		oldest := max(0, slices.IndexFunc(s.drainJobs, func(d *Drain) bool { return d.Status != DrainRunning }))
		s.digest -= s.drainJobs[oldest].digestTerm()
		s.drainJobs = slices.Delete(s.drainJobs, oldest, oldest+1)
	}
	return nil
}

// Code encodes or decodes the fields.
func (e *SaveDrain) Code(c *binenc.Coder) {
	c.Tag(typeSaveDrain)
	e.code(c)
}

func (s *Store) drain(id TaskID) *Drain {
	if at := slices.IndexFunc(s.drainJobs, func(d *Drain) bool { return d.ID == id }); at >= 0 {
		return s.drainJobs[at]
	}
	return nil
}

// countMove notes in the drain jobs that run how a task ended.
func (s *Store) countMove(t *Task, status TaskStatus) {
	for _, d := range s.drainJobs {
		if !t.Move || d.Status != DrainRunning || !slices.Contains(d.Segments, t.Source) {
			continue
		}
		s.digest -= d.digestTerm()
		if status == TaskSucceeded {
			d.Succeeded++
			d.Bytes += t.Size
		} else {
			d.Failed++
		}
		s.digest += d.digestTerm()
	}
}

// codeDrains codes the drain jobs of the state, in the last part of a snapshot.
func (s *Store) codeDrains(c *binenc.Coder) {
	binenc.CodeSlice(c, &s.drainJobs, 24, func(d **Drain) {
		if c.Decoding() {
			*d = new(Drain)
		}
		(*d).code(c)
		if (*d).codeRest(c); c.Decoding() && c.Err() == nil {
			s.digest += (*d).digestTerm()
		}
	})
}

// PrepareDrain decides the beginning of a drain job. Jobs must be decided one at a time,
// each after the one before was applied, and no segment mounted meanwhile.
//
// Errors: InvalidParams without a segment or a concurrency, for a segment that is listed
// twice or is also a target, and for too many segments, names or jobs; SegmentNotFound
// for one that is not mounted; Unavailable for one that takes no new objects, or shares
// its name with one, or while a node of the cluster does not know drain jobs.
func (s *Store) PrepareDrain(d Drain) (*SaveDrain, error) {
	const op = "CreateDrainJob"
	if len(d.Segments) == 0 || d.Concurrency == 0 {
		return nil, errs.New(errs.InvalidParams, op, "give segments, and a max_concurrency above 0")
	}
	bytes, seen := 0, make(map[string]bool)
	for _, name := range slices.Concat(d.Segments, d.Targets) {
		if bytes += len(name); bytes > maxTaskNames || seen[name] {
			return nil, errs.New(errs.InvalidParams, op, "segment %.64q stands twice, or there are too many", name)
		}
		seen[name] = slices.Contains(d.Segments, name)
	}
	for name := range seen {
		if err := s.TakesObjects(op, name); err != nil {
			return nil, err
		}
	}
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if s.Rules() < transferRules {
		return nil, errs.New(errs.Unavailable, op, "nodes of an older version do not know drain jobs; upgrade them")
	}
	for _, name := range d.Segments {
		for _, p := range s.mounts.byName[name] {
			if p.closes() != 0 { // the end of another job would open it
				return nil, errs.New(errs.Unavailable, op, "one of the segments %.64q takes no new objects already", p.Name)
			}
			d.Numbers = append(d.Numbers, p.Number)
		}
	}
	running := 0
	for _, job := range s.drainJobs {
		if job.Status == DrainRunning {
			running++
		}
	}
	if len(d.Numbers) > maxDrained || running >= maxDrains {
		return nil, errs.New(errs.InvalidParams, op, "the job has %d segments, and %d jobs run; at most %d are possible", len(d.Numbers), running, maxDrained)
	}
	slices.Sort(d.Numbers)
	d.Status, d.Message = DrainRunning, "Drain job running"
	return &SaveDrain{Drain: d}, nil
}

// Drains returns the drain jobs, the oldest first.
func (s *Store) Drains() (list []Drain) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	for _, d := range s.drainJobs {
		list = append(list, *d)
	}
	return list
}

// OpenMoves returns the moves of a drain job that have not ended.
func (s *Store) OpenMoves(d *Drain) (list []Task) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	for _, t := range s.tasks.open {
		if t.Move && slices.Contains(d.Segments, t.Source) {
			list = append(list, *t)
		}
	}
	return list
}

// A DrainItem is an object on a segment that is drained.
type DrainItem struct {
	Tenant, Key string
	Source      string   // name of the segment
	On          []string // names of all segments that it is on
	Size        uint64
	Movable     bool // now: it is not pinned hard, in progress, leased, or in a transfer
}

// DrainItems appends the objects of a shard that are on the segments of a job. It also
// returns about how many it has looked at.
func (s *Store) DrainItems(dst []DrainItem, shard int, d *Drain, now Time) ([]DrainItem, int) {
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.all {
		source := o.memoryOn(func(p *segmentState) bool { return slices.Contains(d.Numbers, p.Number) })
		if source == nil {
			continue
		}
		item := DrainItem{
			Tenant: s.tenants.name(o.tenant), Key: o.key(), Source: source.segment.Name, Size: o.size,
			Movable: !o.has(flagHardPin|flagPending) && !o.victim() && s.removable(o, false, now) == nil,
		}
		for i := range o.replicaCount() {
			if r := o.replicaAt(i); r.kind == Memory && r.exists() {
				item.On = append(item.On, r.segment.Name)
			}
		}
		dst = append(dst, item)
	}
	return dst, sh.byKey.Len()
}
