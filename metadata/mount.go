package metadata

import (
	"slices"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/metadata/reftable"
	"github.com/understudy-store/understudy/segment"
)

// Mount makes a segment known, and unmounts in the same step the segments
// whose memory it takes over.
type Mount struct {
	objectEvent

	Spec     segment.Spec
	Replaces []segment.Number
	Claims   []Claim // ranges of replaced segments that readers have leases on
	Peer     string  // the peer that the segment counts for, on the primary; no part of the state
}

// Apply mounts the segment under the next number.
func (e *Mount) Apply(tx *Tx) error {
	tx.Claim(e.Replaces, e.Claims)
	for _, number := range e.Replaces {
		_ = tx.Unmount(number) // one that is gone already is what was wanted
	}
	s := tx.s
	if s.mounts.byID[e.Spec.ID] != nil {
		tx.Fail("segment %v is mounted twice", e.Spec.ID)
		return errs.SegmentExists
	}
	s.lastNumber++
	p := s.mount(e.Spec, s.lastNumber, e.Peer)
	defer s.pool.Add(p.Segment) // once claimed ranges are busy: others place objects meanwhile
	if tx.globalHas() {
		return nil
	}
	term := s.inForce.Load()
	guarded := term.startedEmpty && tx.now < term.guardUntil // readers from before the loss may still hold leases on this memory
	switch {
	case term.rules > FirstRules && guarded:
		tx.honourClaims(p, term.guardUntil)
	case term.rules > FirstRules:
		tx.honourClaims(p, 0)
	case guarded:
		whole := p.Whole()
		if err := p.Reserve(whole); err != nil {
			tx.Fail("%v", err)
		}
		tx.release(p, whole, term.guardUntil)
	}
	return nil
}

// mount makes a segment known, all of it free. The pool does not have it yet.
func (s *Store) mount(spec segment.Spec, number segment.Number, peer string) *segmentState {
	p := s.expected[number]
	if p == nil {
		p = new(segmentState)
	}
	delete(s.expected, number)
	p.Segment = segment.New(spec, number)
	s.segments[number], p.peer = p, peer
	s.memory.all += p.Capacity()
	s.setOpen(p, true)
	s.peers.mounted(peer, p.Spec)
	s.mounts.add(p)
	s.addTerm(p, p.digestTerm())
	s.quotas.resize(int64(spec.Size))
	return p
}

// Code encodes or decodes the fields.
func (e *Mount) Code(c *binenc.Coder) {
	c.Tag(typeMount)
	codeSpec(c, &e.Spec)
	codeNumbers(c, &e.Replaces)
	instance := e.Spec.Instance != 0
	if c.Decoding() && c.Len() == 0 || !c.Decoding() && len(e.Claims) == 0 && !instance {
		return // the encoding before there were claims and instances
	}
	codeClaims(c, &e.Claims)
	if c.Decoding() {
		instance = c.Len() > 0
	}
	if instance {
		c.CodeUint64(&e.Spec.Instance)
	}
	if instance != (e.Spec.Instance != 0) || len(e.Claims) == 0 && !instance {
		c.Fail("a mount with %d claims and the instance %d", len(e.Claims), e.Spec.Instance)
	}
}

// PrepareMounts decides the mounting of the first segments of a list: as many as do not
// touch each other, and at most MaxMounts. A segment that is already mounted with the
// same properties needs no change. Decide the next mounts when these were applied. An
// error is about the first segment of the list.
//
// Errors: as PrepareMount.
func (s *Store) PrepareMounts(specs []segment.Spec) (changes []*Mount, decided int, err error) {
	replaced := 0
	for decided < min(len(specs), MaxMounts) {
		spec := specs[decided]
		if slices.ContainsFunc(specs[:decided], func(o segment.Spec) bool { return o.ID == spec.ID || o.SamePlace(spec) }) {
			break
		}
		e, err := s.prepareMount(spec, changes)
		switch {
		case err != nil && decided == 0:
			return nil, 0, err
		case err != nil:
			return changes, decided, nil // when those before are mounted
		case e != nil:
			if replaced += len(e.Replaces); decided > 0 && replaced > MaxReplaced {
				return changes, decided, nil // with a commit of its own
			}
			changes = append(changes, e)
		}
		decided++
	}
	return changes, decided, nil
}

// MaxMounts is how many segments are mounted together at most.
const MaxMounts = 64

// PrepareMount decides the mounting of a segment. It returns nothing if the segment is
// already mounted with the same properties. Mounts that may touch each other must be
// decided one at a time, each after the one before was applied.
//
// Errors: InvalidParams for an invalid specification, and if the segments would have more
// than MaxMounted bytes in all; Unavailable if it would replace more than MaxReplaced
// others, or if its endpoint has the most claims there can be; SegmentExists if the id is
// mounted with other properties by this client, or at another place by another one.
func (s *Store) PrepareMount(spec segment.Spec) (*Mount, error) { return s.prepareMount(spec, nil) }

// prepareMount decides a mount that follows others in one commit.
func (s *Store) prepareMount(spec segment.Spec, ahead []*Mount) (*Mount, error) {
	if err := spec.Validate(); err != nil {
		return nil, errs.Wrap(errs.InvalidParams, "MountSegment", err)
	}
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if s.Rules() < instanceRules {
		spec.Instance = 0
	}
	e := &Mount{Spec: spec}
	if p := s.mounts.byID[spec.ID]; p != nil {
		if p.SameMount(spec) {
			return nil, nil
		}
		if p.Client == spec.Client || !p.SamePlace(spec) {
			return nil, errs.New(errs.SegmentExists, "MountSegment",
				"segment %v is mounted at another place; unmount it first or use a new id", spec.ID)
		}
	}
	if err := s.claims.admitsMount(spec.Endpoint); err != nil {
		return nil, err
	}
	there := s.mounts.at(spec)
	if len(there) > MaxReplaced {
		return nil, errs.New(errs.Unavailable, "MountSegment",
			"segment %v lies over more than %d others, the most whose place it can take; unmount them, or wait until their clients have expired", spec.ID, MaxReplaced)
	}
	for _, p := range there {
		e.Replaces = append(e.Replaces, p.Number)
	}
	slices.Sort(e.Replaces)
	if sum, ok := s.mountedWith(ahead, e); !ok {
		return nil, errs.New(errs.InvalidParams, "MountSegment",
			"segment %v has %d bytes; with the %d bytes of the others that is more than %d, the most there can be; unmount some of them", spec.ID, spec.Size, sum, MaxMounted)
	}
	return e, nil
}

// MaxReplaced bounds the segments that the mounts of one commit replace: it unmounts them
// all while other commits wait.
const MaxReplaced = 256

// MaxMounted bounds the bytes of all mounted segments: sums of them must not overflow.
const MaxMounted = uint64(1<<63 - 1)

// mountedWith returns how many bytes the other segments will have once the mounts ahead,
// and then more, are applied, and whether more fits MaxMounted besides. Needs applyMu.
func (s *Store) mountedWith(ahead []*Mount, more *Mount) (sum uint64, ok bool) {
	sum = s.QuotaCapacity()
	gone := make(map[segment.Number]bool)
	for _, e := range append(slices.Clip(ahead), more) {
		for _, number := range e.Replaces {
			if !gone[number] {
				gone[number] = true
				sum -= s.segments[number].Size
			}
		}
	}
	for _, e := range ahead {
		sum += e.Spec.Size
	}
	return sum, sum <= MaxMounted && more.Spec.Size <= MaxMounted-sum
}

// FindSegment returns the number of a mounted segment.
func (s *Store) FindSegment(id segment.ID) (segment.Number, bool) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if p := s.mounts.byID[id]; p != nil {
		return p.Number, true
	}
	return 0, false
}

// OwnerOf returns the client that has mounted a segment, and the bytes of objects in it, those
// that are being written among them.
func (s *Store) OwnerOf(id segment.ID) (owner segment.ClientID, used uint64, mounted bool) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if p := s.mounts.byID[id]; p != nil {
		return p.Client, p.Busy() - p.quarantined.Load(), true
	}
	return owner, 0, false
}

// Unmount takes a segment away, with every replica and quarantined range on it, for every
// reader and in the digest at once. Sweep tidies up the objects that lose a replica. It
// answers SegmentNotFound if the segment is gone.
func (tx *Tx) Unmount(number segment.Number) error {
	p := tx.s.segments[number]
	if p == nil {
		return errs.SegmentNotFound
	}
	delete(tx.s.segments, number)
	tx.s.setOpen(p, false)
	tx.s.memory.all -= p.Capacity()
	tx.s.peers.unmounted(p.peer, p.Spec)
	tx.s.mounts.remove(p)
	tx.s.gone.add(p)
	discards, bytes := tx.s.quarantine.forget(p)
	tx.s.counts.discardsFreed.Add(discards)
	tx.s.counts.discardedBytes.Add(-bytes)
	tx.s.dropShare(p)
	tx.s.pool.Remove(p.Segment)
	tx.s.quotas.resize(-int64(p.Size))
	return nil
}

// dropShare takes away all that lies on a segment or an SSD.
func (s *Store) dropShare(p *segmentState) {
	s.encoding.Lock()
	p.MarkGone()
	s.encoding.Unlock()
	s.digest -= p.share
	p.share = 0
	s.sweepLeft, s.sweepFrom = ShardCount, reftable.Place{}
}

// Sweep tidies up after unmounts: it unlinks replicas on segments that are
// gone, and objects that have no other. For readers and for the digest they
// are gone already; what is left is memory. One call looks at so many parts of shards, of
// some hundred objects at most, and holds no lock for longer than one of them takes. It
// reports whether there is more to do.
func (s *Store) Sweep(parts int) bool {
	for range parts {
		if !s.sweepPart() {
			return false
		}
	}
	return true
}

func (s *Store) sweepPart() bool {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if s.sweepLeft == 0 {
		return false
	}
	sh := &s.shards[s.sweepAt]
	tx := &Tx{s: s, seq: s.seq, now: s.now}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	more := sh.part(&s.sweepFrom, func(o object) {
		lost := false
		for i := range o.replicaCount() {
			r := o.replicaAt(i)
			lost = lost || !r.exists()
		}
		if lost {
			tx.dropSome(sh, o, 0, func(replica) bool { return false })
		}
	})
	if !more {
		s.sweepAt, s.sweepFrom = (s.sweepAt+1)%ShardCount, reftable.Place{}
		s.sweepLeft--
		s.applied()
	}
	return s.sweepLeft > 0
}
