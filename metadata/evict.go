package metadata

import (
	"slices"
)

// A Cutoff is one eviction pass, as it is journaled: every node evicts on its
// own what falls under it. The cutoff must lie below the time of the last
// commit applied when the pass began [model]: then nothing that completes
// later can fall under it.
type Cutoff struct {
	// Objects whose journaled (deadline, id) is at most this are evicted.
	Deadline Time
	ID       ObjectID
	// Soft pins that end at or before PinTime do not count.
	PinTime Time
	// IncludePinned evicts softly pinned objects as well.
	IncludePinned bool

	pass    *passMark
	victims []*object
}

// passMark is what readers of a pass's victims wait for.
type passMark struct{ outcome chan struct{} }

// Stream returns ObjectEvents.
func (e *Cutoff) Stream() Stream { return ObjectEvents }

// Apply evicts: it drops the memory replicas of each object under the cutoff,
// and the object if it has no others. Whether an object falls under it is read
// from journaled state only, so it is the same on every node.
func (e *Cutoff) Apply(tx *Tx) error {
	s := tx.s
	s.expirePins(e.PinTime)
	before := s.counts.evicted.Load()
	evict := func(o *object) {
		if e.covers(o) {
			tx.evict(o)
		}
	}
	never := func() bool { return false }
	s.unpinned.walk(e.Deadline, evict, never)
	if e.IncludePinned {
		s.pinned.walk(e.Deadline, evict, never)
	}
	s.cutoffs.add(uint64(s.counts.evicted.Load() - before))
	e.unmark(s)
	return nil
}

// Abort takes the marks off the victims and ends the waiting.
func (e *Cutoff) Abort(s *Store) { e.unmark(s) }

func (e *Cutoff) covers(o *object) bool {
	if o.softPinned(e.PinTime) && !e.IncludePinned {
		return false
	}
	return o.before(e.Deadline, e.ID) || o.id == e.ID && o.deadline == e.Deadline
}

func (tx *Tx) evict(o *object) {
	sh := &tx.s.shards[o.shard]
	if tx.has(sh) {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	freed := uint64(0)
	tx.dropSome(sh, o, 0, func(r *replica) bool {
		if r.kind != Memory {
			return false
		}
		freed += o.size
		return true
	})
	if freed > 0 {
		tx.s.counts.evicted.Add(1)
		tx.s.counts.evictedBytes.Add(int64(freed))
	}
}

// expirePins moves objects whose soft pin has ended to the unpinned index.
func (s *Store) expirePins(now Time) {
	for {
		end, ok := s.pinEnds.Min()
		if !ok || end.at > now {
			return
		}
		s.unindex(end.o)
		s.unpinned.insert(end.o)
	}
}

// A Quota bounds an eviction pass.
type Quota struct {
	Objects       int  // evict at most so many
	IncludePinned bool // softly pinned objects as well
	Below         Time // evict only what expired before; 0 for no such bound
}

// A Pass is an eviction pass that the primary has prepared: the renewals that
// must be journaled before its cutoff, and the cutoff.
type Pass struct {
	NearMisses []Renewal
	Cutoff     *Cutoff
	Victims    int
	Bytes      uint64 // of memory that the victims hold
	More       bool   // the quota ended the search, not the lack of candidates
}

// A Renewal is a lease's new end.
type Renewal struct {
	Ref
	Deadline Time
}

// SelectVictims prepares an eviction pass on the primary, oldest deadline
// first. It returns nil if nothing may be evicted now.
//
// Candidates are chosen by journaled state. Those renewed since come back as
// near misses; the others are marked: they grant no lease any more, and
// readers of them wait for the outcome. There must not be another pass under
// way.
func (s *Store) SelectVictims(q Quota) *Pass {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	s.expirePins(s.now)
	limit := s.now - 1
	if q.Below != 0 {
		limit = min(limit, q.Below-1)
	}
	candidates, more := s.candidates(limit, q)
	if len(candidates) == 0 {
		return nil
	}
	last := candidates[len(candidates)-1]
	pass := &Pass{More: more, Cutoff: &Cutoff{
		Deadline:      last.deadline,
		ID:            last.id,
		PinTime:       s.now,
		IncludePinned: q.IncludePinned,
		pass:          &passMark{make(chan struct{})},
	}}
	s.pass.Store(pass.Cutoff.pass)
	for _, o := range candidates {
		s.mark(o, pass)
	}
	return pass
}

// maxCandidates bounds how many objects one pass looks at, near misses
// included, so that it holds the lock for a few milliseconds at most.
const maxCandidates = 1 << 14

// candidates returns the objects that a pass considers, in the order of
// eviction, and whether there are more. It finds every object that is at most
// as old as the last one it returns. Those renewed since they were journaled
// do not count towards the quota.
func (s *Store) candidates(limit Time, q Quota) (found []*object, more bool) {
	search := func(index *stampIndex) {
		victims, before := 0, len(found)
		limit = index.walk(limit, func(o *object) {
			found = append(found, o)
			if s.lease(o) == o.deadline {
				victims++
			}
		}, func() bool { return victims > q.Objects || len(found)-before > maxCandidates })
	}
	search(&s.unpinned)
	if q.IncludePinned {
		search(&s.pinned)
	}
	found = slices.DeleteFunc(found, func(o *object) bool { return o.deadline > limit })
	slices.SortFunc(found, func(a, b *object) int {
		if a.before(b.deadline, b.id) {
			return -1
		}
		return 1
	})
	n := s.within(found, q.Objects)
	return found[:n], n < len(found)
}

// within returns how many of the candidates, in the order of eviction, a cutoff
// may cover so that at most so many become victims. One that was renewed since it
// was journaled becomes a victim too if that lease ends before the cutoff.
func (s *Store) within(found []*object, most int) int {
	var renewed []Time // ends of leases
	for _, o := range found {
		if end := s.lease(o); end > o.deadline {
			renewed = append(renewed, end)
		}
	}
	slices.Sort(renewed)
	plain, ended := 0, 0
	for i, o := range found {
		if plain+ended == most {
			return i
		}
		for ended < len(renewed) && renewed[ended] <= o.deadline {
			ended++
		}
		if s.lease(o) == o.deadline {
			plain++
		}
		if plain+ended > most {
			return i
		}
	}
	return len(found)
}

// lease returns the end of the lease as it was granted last.
func (s *Store) lease(o *object) Time {
	sh := &s.shards[o.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return max(o.live, o.deadline)
}

// mark makes a candidate a victim of the pass, or one of its near misses if it
// was renewed beyond the cutoff in the meantime.
func (s *Store) mark(o *object, pass *Pass) {
	c := pass.Cutoff
	sh := &s.shards[o.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if o.live > c.Deadline {
		pass.NearMisses = append(pass.NearMisses, Renewal{Ref{o.shard, o.id}, o.live})
		return
	}
	o.flags |= flagVictim
	c.victims = append(c.victims, o)
	pass.Victims++
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.kind == Memory && r.exists() {
			pass.Bytes += r.segment.Bytes(r.rng.Length)
		}
	}
}

// unmark ends the waiting for the pass. It may be called with or without
// applyMu held.
func (e *Cutoff) unmark(s *Store) {
	if e.pass == nil {
		return
	}
	for _, o := range e.victims {
		sh := &s.shards[o.shard]
		sh.mu.Lock()
		o.flags &^= flagVictim
		sh.mu.Unlock()
	}
	s.pass.CompareAndSwap(e.pass, nil)
	close(e.pass.outcome)
	e.pass = nil
}
