package metadata

import (
	"slices"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// A transfer is a copy or a move of an object between segments that is under way, or
// its promotion, from its client's SSD to a segment: a client reads one replica, the
// source, and writes others, which are arriving. It is part of the state. While it
// lasts the object is neither evicted nor removed. It ends at the release timeout at
// the latest; what its client may still write to is given to nobody before.
type transfer struct {
	client    segment.ClientID // who copies the bytes
	started   Time
	move      bool           // the source goes when the transfer is complete
	promotion bool           // the source is on an SSD
	source    segment.Number // where the source is
	targets   uint64         // how many replicas it makes
}

// arriving is the status of a replica that a transfer makes. Clients see it as
// Processing, like a replica that its writer is at work on.
const arriving ReplicaStatus = 3

func (t *transfer) code(c *binenc.Coder) {
	c.CodeFixed(t.client[:])
	binenc.CodeVarint(c, &t.started)
	codeTransferKind(c, &t.move, &t.promotion)
	codeNumber(c, &t.source)
	binenc.CodeUvarintMax(c, &t.targets, "a number of targets", MaxReplicas)
}

// codeTransferKind codes what a transfer is. Before promotionRules it is no promotion.
func codeTransferKind(c *binenc.Coder, move, promotion *bool) {
	kind := uint8(0)
	switch {
	case *move:
		kind = 1
	case *promotion:
		kind = 2
	}
	binenc.CodeUvarintMax(c, &kind, "a kind of transfer", 2)
	*move, *promotion = kind == 1, kind == 2
}

func (t *transfer) mixInto(h uint64) uint64 {
	h = mixBytes(mix(h, seedTransfer), t.client)
	h = mix(mix(h, uint64(t.started)), uint64(t.source))
	move := uint64(0)
	if t.move {
		move = 1
	}
	if t.promotion {
		h = mix(h, 1)
	}
	return mix(h, t.targets<<1|move)
}

// transfer returns the object's transfer, nil for none.
func (o object) transfer() *transfer {
	if x := o.extra(); x != nil {
		return x.transfer
	}
	return nil
}

// memoryOn returns a replica in memory on a segment that is holds for, a readable one if
// there is one; nil for none.
func (o object) memoryOn(is func(*segmentState) bool) *replica {
	var found *replica
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.kind == Memory && r.exists() && is(r.segment) && (found == nil || r.readable()) {
			found = &r
		}
	}
	return found
}

// sourceOf returns the replica that a transfer reads, nil if it is gone.
func (o object) sourceOf(number segment.Number, promotion bool) *replica {
	if promotion {
		return o.replicaOn(number)
	}
	return o.memoryOn(func(p *segmentState) bool { return p.Number == number })
}

func (o object) memoryOnName(name string) *replica {
	return o.memoryOn(func(p *segmentState) bool { return p.Name == name })
}

// A Transfer asks for a copy of an object's replica on a segment to other segments, or
// for its move to one. Segments are given by their names. Segments that have a replica of
// the object get no second one.
type Transfer struct {
	Tenant  string
	Key     string
	Client  segment.ClientID
	Move    bool
	Source  string
	Targets []string
	// Metered has the tenant's quota admit the copies, see Put.Metered.
	Metered bool
	// Promotion is set to end a promotion, of an object of this ID; 0 for any.
	Promotion bool
	ID        ObjectID
}

func (t *Transfer) op() string {
	if t.Move {
		return "MoveStart"
	}
	return "CopyStart"
}

// PrepareTransfer decides the start of a transfer.
//
// Errors: SegmentNotFound for a target that is not mounted, Unavailable for one
// that takes no new objects, and while a node of the cluster does not know
// transfers; ObjectNotFound; ObjectHasTask during another one; ReplicaNotFound
// without a readable replica on the source; InvalidParams when the object would
// have more than MaxReplicas; NoAvailableHandle if a target has no room; of a Metered
// one TenantNotRegistered and TenantQuotaExceeded. Without room it is a *NoRoomError.
func (s *Store) PrepareTransfer(t *Transfer) (*StartTransfer, <-chan struct{}, error) {
	if s.Rules() < transferRules {
		return nil, nil, errs.New(errs.Unavailable, t.op(), "nodes of an older version do not know copies and moves; upgrade them")
	}
	for _, name := range t.Targets {
		if err := s.TakesObjects(t.op(), name); err != nil {
			return nil, nil, err
		}
	}
	sh := &s.shards[shardOf(t.Tenant, t.Key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o, wait := s.settled(sh, t.Tenant, t.Key)
	switch {
	case wait != nil:
		return nil, wait, nil
	case o.none():
		return nil, nil, errs.ObjectNotFound
	case o.transfer() != nil:
		return nil, nil, errs.ObjectHasTask
	}
	source := o.memoryOnName(t.Source)
	if source == nil || !source.readable() {
		return nil, nil, errs.ReplicaNotFound
	}
	var names []string
	for _, name := range t.Targets {
		if o.memoryOnName(name) == nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if o.replicaCount()+len(names) > MaxReplicas {
		return nil, nil, errs.New(errs.InvalidParams, t.op(), "the object would have more than %d replicas", MaxReplicas)
	}
	e := &StartTransfer{Ref: o.name(), Client: t.Client, Move: t.Move, Source: source.segment.Number, from: o.descriptor(source), size: o.size}
	if t.Metered {
		var err error
		if e.charge, err = s.admit(t.Tenant, o.size, uint64(len(names)), 0); err != nil {
			return nil, nil, o.noRoom(t.op(), len(names), err)
		}
	}
	for _, name := range names {
		at, ok := s.pool.AllocateOn(name, o.size)
		if !ok {
			e.charge.release()
			giveBack(e.Targets)
			return nil, nil, o.noRoom(t.op(), len(names), errs.NoAvailableHandle)
		}
		e.Targets = append(e.Targets, Placement{Segment: at.Segment.Number, Range: at.Range, held: at.Segment})
	}
	e.objectChange = sh.hold(o)
	return e, nil, nil
}

// A NoRoomError is the answer to a transfer for which there is no memory, or no room in
// its tenant's quota.
type NoRoomError struct {
	Err    error // NoAvailableHandle or TenantQuotaExceeded
	ID     ObjectID
	Size   uint64 // bytes of the object
	Wanted uint64 // bytes of the copies
	Kept   uint64 // bytes that the object has in memory as it is
}

func (e *NoRoomError) Error() string { return e.Err.Error() }
func (e *NoRoomError) Unwrap() error { return e.Err }

// noRoom returns why a transfer of the object cannot begin. Errors that have nothing to do
// with room stay as they are.
func (o object) noRoom(op string, copies int, err error) error {
	e := &NoRoomError{ID: o.id, Size: o.size, Wanted: MemoryOf(o.size, uint64(copies)), Kept: o.memoryCharge()}
	switch kind := errs.KindOf(err); kind {
	case errs.TenantQuotaExceeded:
		e.Err = errs.New(kind, op, "the tenant's quota has no room for %d bytes beside the %d that the object has; raise it, or remove objects", e.Wanted, e.Kept)
	case errs.NoAvailableHandle:
		e.Err = errs.New(kind, op, "there is no room for %d bytes; try again after an eviction, or choose other segments", e.Wanted)
	default:
		return err
	}
	return e
}

// TakesObjects returns why the segments of a name take no new objects, or nil:
// SegmentNotFound if none is mounted, Unavailable if all are closed.
func (s *Store) TakesObjects(op, name string) error {
	if s.pool.Has(name) {
		return nil
	}
	if s.HasSegmentNamed(name) {
		return errs.New(errs.Unavailable, op, "segment %.64q takes no new objects", name)
	}
	return errs.New(errs.SegmentNotFound, op, "segment %.64q is not mounted", name)
}

// StartTransfer reserves memory for the replicas that a transfer makes.
type StartTransfer struct {
	objectChange
	Ref
	Client segment.ClientID
	Move   bool
	// Promotion says that the source is on an SSD. Before promotionRules it is false.
	Promotion bool
	Source    segment.Number
	Targets   []Placement

	from   Descriptor // of the source, on the node that prepared it
	size   uint64
	charge *charge // nil for none
}

// Apply adds the replicas. It answers ObjectNotFound if the object is gone,
// ReplicaNotFound if its source is, and SegmentNotFound if a target is.
func (e *StartTransfer) Apply(tx *Tx) (answer error) {
	defer e.charge.release()
	err := tx.onObject(e.Ref, e.pending, func(_ *shard, o object) {
		source := o.sourceOf(e.Source, e.Promotion)
		switch {
		case source == nil || !source.readable():
			answer = errs.ReplicaNotFound
		case slices.ContainsFunc(e.Targets, func(at Placement) bool { return tx.s.segments[at.Segment] == nil }):
			answer = errs.SegmentNotFound
		case o.transfer() != nil:
			tx.Fail("object %v begins a second transfer", o.id)
		}
		if answer != nil || tx.fault != nil {
			return
		}
		tx.s.subtractTerms(o)
		o.needExtra().transfer = &transfer{e.Client, tx.now, e.Move, e.Promotion, e.Source, uint64(len(e.Targets))}
		for i := range e.Targets {
			if p := tx.occupy(&e.Targets[i], e.ID); p != nil {
				o.addReplica(replica{segment: p, rng: e.Targets[i].Range, kind: Memory, status: arriving})
				tx.s.quotas.charge(o.tenant, 0, int64(o.size))
			}
		}
		tx.s.addTerms(o)
		tx.s.file(o)
	})
	if err != nil {
		answer = err
	}
	if answer != nil {
		giveBack(e.Targets) // other nodes never took them
	}
	return answer
}

// Abort gives the prepared ranges back and ends the waiting.
func (e *StartTransfer) Abort(*Store) {
	e.charge.release()
	giveBack(e.Targets)
	e.pending.resolve()
}

// Descriptors tells the client what to read and where to write, once the change is
// applied. It is for the node that prepared it.
func (e *StartTransfer) Descriptors() (source Descriptor, targets []Descriptor) {
	return e.from, placed(make([]Descriptor, 0, len(e.Targets)), e.Targets, e.size)
}

// Code encodes or decodes the fields.
func (e *StartTransfer) Code(c *binenc.Coder) {
	c.Tag(typeStartTransfer)
	codeRef(c, &e.Ref)
	c.CodeFixed(e.Client[:])
	codeTransferKind(c, &e.Move, &e.Promotion)
	codeNumber(c, &e.Source)
	codePlacements(c, &e.Targets)
}

// PrepareTransferEnd decides what becomes of a client's transfer: it is complete, or it
// is given up.
//
// Errors: ObjectNotFound; ObjectNoTask without a transfer; IllegalClient for another
// client's; InvalidParams for one of another kind.
func (s *Store) PrepareTransferEnd(t *Transfer, complete bool, now Time) (*EndTransfer, <-chan struct{}, error) {
	sh := &s.shards[shardOf(t.Tenant, t.Key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o, wait := s.settled(sh, t.Tenant, t.Key)
	switch {
	case wait != nil:
		return nil, wait, nil
	case o.none() || t.ID != 0 && t.ID != o.id:
		return nil, nil, errs.ObjectNotFound
	case o.transfer() == nil:
		return nil, nil, errs.ObjectNoTask
	case o.transfer().client != t.Client:
		return nil, nil, errs.IllegalClient
	case o.transfer().move != t.Move, o.transfer().promotion != t.Promotion:
		return nil, nil, errs.InvalidParams
	}
	e := &EndTransfer{Ref: o.name(), Complete: complete, objectChange: sh.hold(o)}
	if t.Move && complete && o.leasedUntil() > now {
		e.LeaseUntil = o.leasedUntil()
	}
	return e, nil, nil
}

// EndTransfer ends an object's transfer.
type EndTransfer struct {
	objectChange
	Ref
	// Complete makes the new replicas readable, and takes the source of a move away;
	// else the new replicas go.
	Complete bool
	// LeaseUntil is the end of readers' leases on the source of a move, 0 for none.
	LeaseUntil Time

	// Lost is set by Apply on this node if the source or a new replica went with its
	// segment. Without its source nothing becomes readable; a move that lost its target
	// leaves the source.
	Lost bool
}

// Apply ends the transfer. It answers ObjectNotFound if the object is gone, and
// ObjectNoTask if it has no transfer. The commit becomes the object's stamp for
// eviction, as when a put ends.
func (e *EndTransfer) Apply(tx *Tx) (answer error) {
	err := tx.onObject(e.Ref, e.pending, func(sh *shard, o object) {
		t := o.transfer()
		if t == nil {
			answer = errs.ObjectNoTask
			return
		}
		complete := e.Complete && e.survives(o, t)
		if complete {
			o.arrive(tx)
		}
		if !tx.dropSome(sh, o, e.LeaseUntil, func(r replica) bool {
			return r.status == arriving || complete && t.move && r.kind == Memory && r.segment.Number == t.source
		}) {
			return
		}
		tx.s.subtractTerms(o)
		o.extra().transfer = nil
		o.stamp(tx.now)
		tx.s.addTerms(o)
		tx.s.file(o)
	})
	if err != nil {
		return err
	}
	return answer
}

// survives reports whether a transfer can be completed with what is left of it, and
// notes what is lost.
func (e *EndTransfer) survives(o object, t *transfer) bool {
	source := o.sourceOf(t.source, t.promotion)
	arrived, others := uint64(0), 0
	for i := range o.replicaCount() {
		switch r := o.replicaAt(i); {
		case r.kind != Memory || !r.exists() || source != nil && r == *source:
		case r.status == arriving:
			arrived++
		case r.readable():
			others++
		}
	}
	e.Lost = source == nil || !source.readable() || arrived < t.targets || t.move && arrived == 0 && others == 0
	return !e.Lost || source != nil && source.readable() && !t.move
}

// arrive makes the replicas of a transfer readable.
func (o object) arrive(tx *Tx) {
	tx.s.subtractTerms(o)
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.status == arriving && r.exists() {
			o.complete(i)
			r.status = Complete
			tx.s.count(o, &r, 1)
		}
	}
	tx.s.addTerms(o)
}

// Code encodes or decodes the fields.
func (e *EndTransfer) Code(c *binenc.Coder) {
	c.Tag(typeEndTransfer)
	codeRef(c, &e.Ref)
	c.CodeBool(&e.Complete)
	binenc.CodeVarint(c, &e.LeaseUntil)
}

// PrepareTransferTimeouts decides the end of up to limit transfers that are older
// than the release timeout: nobody may write there any more.
func (s *Store) PrepareTransferTimeouts(now Time, limit int) []*EndTransfer {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	var list []*EndTransfer
	s.indexes[inTransfers].walk(Through(now.Add(-s.inForce.Load().ReleaseTimeout)), limit, func(o object) {
		sh := &s.shards[o.shard()]
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if len(list) < limit && o.exists() && !o.has(flagPending) && sh.change(o) == nil {
			list = append(list, &EndTransfer{Ref: o.name(), objectChange: sh.hold(o)})
		}
	}, func(Rank) bool { return len(list) >= limit })
	return list
}
