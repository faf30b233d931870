package metadata

import (
	"runtime"

	"github.com/understudy-store/understudy/segment"
)

// BeginUnmount returns the leased ranges of segments that the caller is about to unmount,
// for the event. When it returns, readers of these segments wait, so that none gets a lease
// that the event lacks. The caller calls end when the event has its outcome. Within a term
// only one unmount may be under way.
//
// To find the leases it looks at every object, 50 ns or more each. Readers go on meanwhile:
// the leases that they get are noted. They wait only while the notes are gathered.
func (s *Store) BeginUnmount(numbers []segment.Number, now Time) (leases []Claim, end func()) {
	u := s.newUnmounting(numbers, now)
	s.lookForLeases(u)
	end = s.holdReaders(u)
	return s.gatherNotes(u), end
}

// An unmounting is the search for the leases on segments about to be unmounted.
type unmounting struct {
	number uint64 // they are counted: a term may end while it looks, and the next begin one
	now    Time
	on     map[*segmentState]bool // does not change
	held   map[*segmentState][]heldRange
	looks  bool // for leases: the first rules have no claims
	each   int  // claims of a segment, at most
}

// notes are the objects of a shard that readers got since the search has looked there: with
// a lease, or with one that lasted long enough already: each once, and only those on the
// segments, so they take less than the objects do.
type notes struct {
	of  *unmounting
	ids map[ObjectID]bool
}

func (s *Store) newUnmounting(numbers []segment.Number, now Time) *unmounting {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	s.unmountings++
	u := &unmounting{number: s.unmountings, now: now, on: make(map[*segmentState]bool), held: make(map[*segmentState][]heldRange)}
	for _, number := range numbers {
		if p := s.segments[number]; p != nil {
			u.on[p] = true
		}
	}
	u.looks = s.Rules() != FirstRules && len(u.on) > 0
	u.each = max(1, maxEventClaims/max(1, len(u.on)))
	return u
}

// lookForLeases looks for leases on the segments, and has those granted later noted.
func (s *Store) lookForLeases(u *unmounting) {
	if !u.looks {
		return
	}
	for i := range s.shards {
		s.shards[i].lookForLeases(u)
		runtime.Gosched() // readers and commits go first
	}
	for p, list := range u.held {
		u.held[p] = cover(flatten(list), u.each)
	}
}

func (sh *shard) lookForLeases(u *unmounting) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.all {
		u.add(o)
	}
	if sh.notes == nil || sh.notes.of.number < u.number {
		sh.notes = &notes{u, make(map[ObjectID]bool)}
	}
}

// add adds what is leased of an object. Needs the shard's lock.
func (u *unmounting) add(o object) {
	if o.leasedUntil() <= u.now {
		return
	}
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.kind == Memory && u.on[r.segment] {
			u.held[r.segment] = append(u.held[r.segment], heldRange{uint64(r.rng.Offset), uint64(r.rng.End()), o.leasedUntil()})
		}
	}
}

// note notes that a reader relies on the lease of an object. Needs the shard's lock.
func (n *notes) note(o object) {
	for i := range o.replicaCount() {
		if n.of.on[o.replicaAt(i).segment] {
			n.ids[o.id] = true
		}
	}
}

// holdReaders has the readers of segments wait until end is called. If a later term has begun
// an unmount, it does not: it would take the place of that one, and end the waiting for it.
func (s *Store) holdReaders(u *unmounting) (end func()) {
	outcome := make(chan struct{})
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if s.unmountings == u.number {
		for p := range u.on {
			p.leaving.Store(&outcome)
		}
	}
	return func() {
		for p := range u.on {
			p.leaving.CompareAndSwap(&outcome, nil) // unless a later term has set its own
		}
		close(outcome)
	}
}

// gatherNotes adds the leases that readers got before they had to wait, and returns all.
func (s *Store) gatherNotes(u *unmounting) (leases []Claim) {
	if !u.looks {
		return nil
	}
	for i := range s.shards {
		s.shards[i].gatherNotes(u)
	}
	for p, list := range u.held {
		for _, r := range cover(flatten(list), u.each) {
			leases = append(leases, Claim{p.Number, segment.Range{Offset: uint32(r.from), Length: uint32(r.to - r.from)}, r.until})
		}
	}
	return leases
}

func (sh *shard) gatherNotes(u *unmounting) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.notes == nil || sh.notes.of != u {
		return // a later term has begun its own
	}
	for id := range sh.notes.ids {
		if o := sh.withID(id); !o.none() {
			u.add(o)
		}
	}
	sh.notes = nil
}
