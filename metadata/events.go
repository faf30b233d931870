package metadata

import (
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/segment"
)

// TermStart is the first entry of a term: the times and rules in force.
type TermStart struct {
	Term   Term
	Params Params
	// Guard is how long, from this entry on, freed memory stays in quarantine,
	// because a primary before may have granted leases that it could not
	// journal: that primary's HoldTime, or 0 after a clean handover.
	Guard time.Duration
	// Empty says that all that was before is lost. A follower that still has
	// state must load a snapshot.
	Empty bool
}

// Stream returns ObjectEvents.
func (e *TermStart) Stream() Stream { return ObjectEvents }

// Apply puts the times in force.
func (e *TermStart) Apply(tx *Tx) error {
	if tx.globalHas() {
		return nil
	}
	if e.Term != tx.term {
		tx.Fail("a commit of term %d starts term %d", tx.term, e.Term)
		return nil
	}
	if e.Empty && tx.s.counts.objects.Load()+int64(len(tx.s.segments)+len(tx.s.localDisks.byNumber)) > 0 {
		tx.Fail("term %d starts empty, this node still holds the state of before", e.Term)
		return nil
	}
	before := tx.s.inForce.Load()
	next := &termState{
		Params:       e.Params,
		term:         e.Term,
		guardUntil:   max(before.guardUntil, tx.now.Add(e.Guard)),
		startedEmpty: e.Empty || before.startedEmpty && tx.now < before.guardUntil,
		hold:         Time(e.Params.HoldTime().Milliseconds()),
	}
	if before.term != 0 {
		tx.s.digest -= before.digestTerm()
	}
	tx.s.digest += next.digestTerm()
	tx.s.inForce.Store(next)
	tx.s.quarantine.moveHorizon(tx.now + next.hold)
	return nil
}

// Abort has nothing to take back.
func (e *TermStart) Abort(*Store) {}

// Mount makes a segment known, and unmounts in the same step the segments
// whose memory it takes over.
type Mount struct {
	Spec     segment.Spec
	Replaces []segment.Number
}

// Stream returns ObjectEvents.
func (e *Mount) Stream() Stream { return ObjectEvents }

// Apply mounts the segment under the next number.
func (e *Mount) Apply(tx *Tx) error {
	for _, number := range e.Replaces {
		_ = tx.Unmount(number) // one that is gone already is what was wanted
	}
	s := tx.s
	s.lastNumber++
	p := s.mount(e.Spec, s.lastNumber)
	if tx.globalHas() {
		return nil
	}
	if term := s.inForce.Load(); term.startedEmpty && tx.now < term.guardUntil {
		// Readers from before the loss may still hold leases on this memory.
		whole := p.Whole()
		if err := p.Reserve(whole); err != nil {
			tx.Fail("%v", err)
		}
		tx.release(p, whole, term.guardUntil)
	}
	return nil
}

// mount makes a segment known, all of it free.
func (s *Store) mount(spec segment.Spec, number segment.Number) *segmentState {
	p := s.expected[number]
	if p == nil {
		p = new(segmentState)
	}
	delete(s.expected, number)
	p.Segment = segment.New(spec, number)
	s.segments[number] = p
	s.addTerm(p, p.digestTerm())
	s.pool.Add(p.Segment)
	return p
}

// Abort has nothing to take back.
func (e *Mount) Abort(*Store) {}

// A Placement is the range of one memory replica.
type Placement struct {
	Segment segment.Number
	Range   segment.Range

	held *segment.Segment // not nil: this node's allocator has the range busy already
	left bool             // out when the put was applied here: the segment had gone
}

// PutStart reserves memory for a new object.
type PutStart struct {
	Tenant     string
	Key        string
	ID         ObjectID
	Client     segment.ClientID
	Size       uint64
	Request    uint64        // the caller's request id, 0 for none
	Placements []Placement   // memory replicas
	DiskPath   string        // of the disk replica, empty for none
	SoftPin    time.Duration // how long the object is pinned softly once readable
	HardPin    bool
	Group      string
	DataType   uint8
	Replaces   ObjectID // the abandoned reservation it discards, 0 for none

	pending *Pending
}

// Stream returns ObjectEvents.
func (e *PutStart) Stream() Stream { return ObjectEvents }

// Apply inserts the reservation. It answers NoAvailableHandle if every segment
// it was placed on is gone.
func (e *PutStart) Apply(tx *Tx) error {
	shardNumber := shardOf(e.Tenant, e.Key)
	sh := &tx.s.shards[shardNumber]
	if tx.has(sh) {
		return nil
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e.pending.resolveLocked()
	tenant := tx.s.tenants.intern(e.Tenant)
	if old := sh.byID[e.Replaces]; old != nil && old.survey().complete == 0 {
		tx.drop(sh, old, 0)
		tx.s.counts.discarded.Add(1)
	}
	if old := sh.byKey.get(tx.s.hash.of(tenant, e.Key), tenant, e.Key); old != nil && old.exists() {
		tx.Fail("object %v is put under a key that object %v holds", e.ID, old.id)
		return errs.ObjectExists
	}
	o := &object{
		id: e.ID, key: e.Key, tenant: tenant, shard: shardNumber, client: e.Client, size: e.Size,
		putStart: tx.now, soft: Time(e.SoftPin.Milliseconds()), request: e.Request,
	}
	if e.HardPin {
		o.flags |= flagHardPin
	}
	if e.pending != nil && e.pending.abandoned {
		o.flags |= flagAbandoned
	}
	if e.DiskPath != "" || e.Group != "" || e.DataType != 0 {
		o.extra = &extra{diskPath: e.DiskPath, group: e.Group, dataType: e.DataType}
	}
	replicas := e.place(tx)
	if len(replicas) == 0 {
		return errs.NoAvailableHandle
	}
	o.setReplicas(replicas)
	tx.insert(sh, o)
	return nil
}

// place makes the replicas, with their ranges busy on this node, leaving out
// segments that are gone.
func (e *PutStart) place(tx *Tx) []replica {
	replicas := make([]replica, 0, len(e.Placements)+1)
	for i := range e.Placements {
		at := &e.Placements[i]
		p := tx.s.segments[at.Segment]
		if at.left = p == nil; at.left {
			continue
		}
		if at.held == nil && !tx.s.loading {
			if err := p.Reserve(at.Range); err != nil {
				tx.Fail("object %v: %v", e.ID, err)
				continue
			}
		}
		replicas = append(replicas, replica{segment: p, rng: at.Range, kind: Memory, status: Processing})
	}
	if e.DiskPath != "" {
		replicas = append(replicas, replica{kind: Disk, status: Processing})
	}
	return replicas
}

// Abort gives the prepared ranges back and ends the waiting.
func (e *PutStart) Abort(*Store) {
	e.giveBack()
	e.pending.resolve()
}

// Descriptors tells the writer where to put its bytes, once the put is applied.
// It is for the node that prepared the put.
func (e *PutStart) Descriptors() []Descriptor {
	list := make([]Descriptor, 0, len(e.Placements)+1)
	for _, at := range e.Placements {
		if at.left {
			continue
		}
		list = append(list, Descriptor{
			Kind: Memory, Status: Processing, Segment: at.held.Name, Endpoint: at.held.Endpoint,
			Protocol: at.held.Protocol, Address: at.held.Address(at.Range), Size: e.Size,
		})
	}
	if e.DiskPath != "" {
		list = append(list, Descriptor{Kind: Disk, Status: Processing, Size: e.Size, Path: e.DiskPath})
	}
	return list
}

// giveBack frees the ranges that this node made busy when it prepared the put.
func (e *PutStart) giveBack() {
	for _, at := range e.Placements {
		if at.held != nil && !at.held.Gone() {
			// An error would mean that the range was given out twice; applying
			// the next reservation there finds that out.
			_ = at.held.Free(at.Range)
		}
	}
}

// PutEnd makes replicas readable.
type PutEnd struct {
	Ref
	Selector Selector
	Checksum *uint64 // nil for none

	pending *Pending
}

// Stream returns ObjectEvents.
func (e *PutEnd) Stream() Stream { return ObjectEvents }

// Apply completes the replicas. The end of the lease becomes the time of this
// commit, so no cutoff that was chosen before can reach the object. It answers
// ObjectNotFound if the object is gone.
func (e *PutEnd) Apply(tx *Tx) error {
	return tx.onObject(e.Ref, e.pending, func(_ *shard, o *object) {
		term := tx.s.inForce.Load()
		wasReadable := o.readable()
		tx.s.subtractTerms(o)
		for i := range o.replicaCount() {
			if r := o.replicaAt(i); r.status == Processing && e.Selector.selects(r.kind) {
				r.status = Complete
				tx.s.count(r, 1)
			}
		}
		o.flags &^= flagAbandoned
		if !wasReadable && o.soft > 0 {
			o.soft += tx.now // from a length to an end
		}
		deadline := tx.now
		if term.LeaseOnPutEnd {
			deadline += term.hold
		}
		o.deadline = max(o.deadline, deadline)
		o.live = max(o.live, o.deadline)
		if e.Checksum != nil {
			if o.extra == nil {
				o.extra = new(extra)
			}
			o.extra.checksum, o.extra.hasChecksum = *e.Checksum, true
		}
		tx.s.addTerms(o)
		tx.s.file(o)
	})
}

// Abort ends the waiting.
func (e *PutEnd) Abort(*Store) { e.pending.resolve() }

// RevokeReplicas drops the replicas in progress of one kind from an object
// that keeps others. A revocation that leaves nothing is a deletion instead.
type RevokeReplicas struct {
	Ref
	Selector Selector

	pending *Pending
}

// Stream returns ObjectEvents.
func (e *RevokeReplicas) Stream() Stream { return ObjectEvents }

// Apply drops the replicas. It answers ObjectNotFound if the object is gone.
func (e *RevokeReplicas) Apply(tx *Tx) error {
	return tx.onObject(e.Ref, e.pending, func(sh *shard, o *object) {
		tx.dropSome(sh, o, 0, func(r *replica) bool {
			return r.status == Processing && e.Selector.selects(r.kind)
		})
	})
}

// Abort ends the waiting.
func (e *RevokeReplicas) Abort(*Store) { e.pending.resolve() }

// ClearReplicas drops an object's replicas on some segments; others stay.
type ClearReplicas struct {
	Ref
	Segments []segment.Number

	pending *Pending
}

// Stream returns ObjectEvents.
func (e *ClearReplicas) Stream() Stream { return ObjectEvents }

// Apply drops the replicas. It answers ObjectNotFound if the object is gone.
func (e *ClearReplicas) Apply(tx *Tx) error {
	return tx.onObject(e.Ref, e.pending, func(sh *shard, o *object) {
		tx.dropSome(sh, o, 0, func(r *replica) bool {
			for _, number := range e.Segments {
				if r.segment != nil && r.segment.Number == number {
					return true
				}
			}
			return false
		})
	})
}

// Abort ends the waiting.
func (e *ClearReplicas) Abort(*Store) { e.pending.resolve() }

// Discard drops the replicas in progress of an abandoned put, and the object
// if nothing else is left.
type Discard struct {
	Ref

	pending *Pending
}

// Stream returns ObjectEvents.
func (e *Discard) Stream() Stream { return ObjectEvents }

// Apply drops the replicas. It answers ObjectNotFound if the object is gone.
func (e *Discard) Apply(tx *Tx) error {
	return tx.onObject(e.Ref, e.pending, func(sh *shard, o *object) {
		tx.dropSome(sh, o, 0, func(r *replica) bool { return r.status == Processing })
		tx.s.counts.discarded.Add(1)
	})
}

// Abort ends the waiting.
func (e *Discard) Abort(*Store) { e.pending.resolve() }

// onObject runs change on an object under its shard's lock and ends the
// waiting for its outcome. It answers ObjectNotFound if the object is gone.
func (tx *Tx) onObject(ref Ref, pending *Pending, change func(*shard, *object)) error {
	sh := &tx.s.shards[ref.Shard]
	if tx.has(sh) {
		return nil
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	pending.resolveLocked()
	o := sh.byID[ref.ID]
	if o == nil || !o.exists() {
		return errs.ObjectNotFound
	}
	change(sh, o)
	return nil
}
