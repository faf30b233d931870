package metadata

import (
	"slices"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// A Removal names one object to remove, and what the primary knew of it.
type Removal struct {
	Ref
	// LeaseUntil is the end of the lease that the removal overrides, 0 for none:
	// until then the memory is given to nobody.
	LeaseUntil Time
	// Request is the caller's request id, 0 for none.
	Request uint64

	pending *Pending
}

// Abort ends the waiting for a removal that will not be committed.
func (r *Removal) Abort() { r.pending.resolve() }

func (s *Store) beginRemoval(sh *shard, o object, now Time) *Removal {
	removal := &struct { // one allocation in place of two
		Removal
		waits Pending
	}{Removal: Removal{Ref: o.name()}}
	removal.pending = sh.begin(&removal.waits, o.hash(), o)
	if o.leasedUntil() > now {
		removal.LeaseUntil = o.leasedUntil()
	}
	return &removal.Removal
}

// promised reports whether a reader may still rely on a lease, by its own clock. The
// store itself honours a lease for a little longer (Params.HoldTime): an object that
// goes meanwhile leaves its memory in quarantine.
func (s *Store) promised(o object, now Time) bool {
	term := s.inForce.Load()
	return o.leasedUntil()-(term.hold-Time(term.LeaseTTL.Milliseconds())) > now
}

// removable returns why an object must not be removed now, or nil.
func (s *Store) removable(o object, force bool, now Time) error {
	if !force && s.promised(o, now) {
		return errs.ObjectHasLease
	}
	switch {
	case o.survey().processing > 0:
		return errs.ReplicaNotReady
	case o.transfer() != nil:
		return errs.ObjectHasTask
	}
	return nil
}

// Remove removes an object. It answers ObjectNotFound if the object is gone.
func (tx *Tx) Remove(r *Removal) error {
	sh := &tx.s.shards[r.Shard]
	if tx.has(sh) {
		tx.remember(r.Request)
		return nil
	}
	if !tx.removeObject(sh, r) {
		return errs.ObjectNotFound
	}
	return nil
}

func (tx *Tx) removeObject(sh *shard, r *Removal) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := sh.withID(r.ID)
	r.pending.resolveLocked(o)
	if o.none() {
		return false
	}
	existed := o.exists()
	tx.drop(sh, o, r.LeaseUntil)
	if existed {
		tx.remember(r.Request) // under the lock: a repeated call finds the object or the request
	}
	return existed
}

// remember notes that a numbered removal was applied.
func (tx *Tx) remember(request uint64) {
	if request != 0 && !tx.globalHas() {
		tx.s.digest += tx.s.requests.add(request, tx.now)
	}
}

// Applied reports whether a call with a request id is a repeat: its removal was applied,
// or its put was replaced by another one. The shard of its key must be locked. It fails
// with Unavailable for a new request when MaxRequests are remembered.
func (s *Store) Applied(request uint64) (bool, error) {
	if request == 0 {
		return false, nil
	}
	return s.requests.has(request)
}

// PrepareClear decides the clearing of an object's replicas on the segments of a name, or
// of all its replicas if the name is empty. As the C++ master does, it drops nothing of
// an object that may not be cleared: one that is missing, another client's, leased, in
// progress, in a transfer, or without a replica there.
func (s *Store) PrepareClear(tenant, key string, client segment.ClientID, name string, now Time) (Drop, <-chan struct{}) {
	sh := &s.shards[shardOf(tenant, key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o, wait := s.settled(sh, tenant, key)
	if wait != nil {
		return Drop{}, wait
	}
	if o.none() || o.writer() != client || s.promised(o, now) || o.transfer() != nil {
		return Drop{}, nil
	}
	v := o.survey()
	if name == "" {
		if v.processing > 0 {
			return Drop{}, nil
		}
		return Drop{Removal: s.beginRemoval(sh, o, now)}, nil
	}
	var on []segment.Number
	for i := range o.replicaCount() {
		r := o.replicaAt(i)
		if !r.exists() || r.kind != Memory || r.segment.Name != name {
			continue
		}
		if r.status != Complete {
			return Drop{}, nil
		}
		on = append(on, r.segment.Number)
	}
	switch {
	case len(on) == 0, len(on) < v.existing && o.leasedUntil() > now && s.Rules() < closingRules:
		return Drop{}, nil
	case len(on) == v.existing:
		return Drop{Removal: s.beginRemoval(sh, o, now)}, nil
	}
	e := &ClearReplicas{Ref: o.name(), Segments: on, objectChange: sh.hold(o)}
	if o.leasedUntil() > now {
		e.LeaseUntil = o.leasedUntil()
	}
	return Drop{Partial: e}, nil
}

// PrepareEvictDisk decides what becomes of an object when a client has deleted its file.
// It changes nothing unless the object has such a replica: one on the client's own SSD,
// or a Disk replica that this client wrote and finished. The call names the key alone, so
// the file may be that of an earlier object, while another client put this one.
//
// Errors: ObjectNotFound, InvalidParams for another kind, Unavailable while a node of the
// cluster does not know such a change.
func (s *Store) PrepareEvictDisk(tenant, key string, client segment.ClientID, kind ReplicaKind, now Time) (Drop, <-chan struct{}, error) {
	const op = "EvictDiskReplica"
	disk, _ := s.FindLocalDisk(client)
	sh := &s.shards[shardOf(tenant, key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o, wait := s.settled(sh, tenant, key)
	switch {
	case wait != nil:
		return Drop{}, wait, nil
	case o.none():
		return Drop{}, nil, errs.ObjectNotFound
	case kind != Disk && kind != LocalDisk:
		return Drop{}, nil, errs.New(errs.InvalidParams, op, "replicas of kind %d have no files that clients delete", kind)
	case kind == Disk && s.Rules() < closingRules:
		return Drop{}, nil, errs.New(errs.Unavailable, op, "nodes of an older version do not know this change; upgrade them")
	}
	e := &ClearReplicas{Ref: o.name(), Disk: kind == Disk}
	if kind == LocalDisk {
		e.Segments = []segment.Number{disk.Number}
	}
	targets := 0
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.exists() && e.hits(r) && (kind == LocalDisk || o.writer() == client && r.status == Complete) {
			targets++
		}
	}
	switch targets {
	case 0:
		return Drop{}, nil, nil
	case o.survey().existing:
		return Drop{Removal: s.beginRemoval(sh, o, now)}, nil, nil
	}
	e.objectChange = sh.hold(o)
	return Drop{Partial: e}, nil, nil
}

// ClearReplicas drops an object's replicas on some segments and SSDs; others stay.
type ClearReplicas struct {
	objectChange
	Ref
	Segments []segment.Number
	// LeaseUntil is as in a Removal. Before closingRules it is 0.
	LeaseUntil Time
	// Disk says that the Disk replica goes too. Before closingRules it is false.
	Disk bool
}

// hits reports whether a replica is one of those that go.
func (e *ClearReplicas) hits(r replica) bool {
	if r.segment == nil {
		return e.Disk
	}
	return slices.Contains(e.Segments, r.segment.Number)
}

// Apply drops the replicas. It answers ObjectNotFound if the object is gone.
func (e *ClearReplicas) Apply(tx *Tx) error {
	return tx.onObject(e.Ref, e.pending, func(sh *shard, o object) {
		tx.dropSome(sh, o, e.LeaseUntil, e.hits)
	})
}

// Code encodes or decodes the fields.
func (e *ClearReplicas) Code(c *binenc.Coder) {
	c.Tag(typeClearReplicas)
	codeRef(c, &e.Ref)
	codeNumbers(c, &e.Segments)
	if c.Decoding() && c.Len() == 0 || !c.Decoding() && e.LeaseUntil == 0 && !e.Disk {
		return // the encoding before closingRules
	}
	binenc.CodeVarint(c, &e.LeaseUntil)
	if c.CodeBool(&e.Disk); e.LeaseUntil == 0 && !e.Disk {
		c.Fail("a clear that names neither a lease nor the disk")
	}
}
