package metadata

import (
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// A PutRef names a put that its writer ends or revokes.
type PutRef struct {
	Tenant   string
	Key      string
	Client   segment.ClientID
	ID       ObjectID // as PutStart gave it, 0 if the caller does not know
	Selector Selector
	Request  uint64 // the caller's request id, 0 for none
}

// PreparePutEnd decides a PutEnd. It returns nothing at all if the replicas are complete
// already.
//
// Errors: ObjectNotFound, also when the key was put again since; IllegalClient for
// another client's put; InvalidWrite if there is no such replica.
func (s *Store) PreparePutEnd(put PutRef, checksum *uint64) (*PutEnd, <-chan struct{}, error) {
	sh, o, wait, err := s.writersObject(put)
	defer sh.mu.Unlock()
	if wait != nil || err != nil {
		return nil, wait, err
	}
	processing, complete := o.selected(put.Selector)
	switch {
	case processing == 0 && complete == 0:
		return nil, nil, errs.InvalidWrite
	case processing == 0:
		return nil, nil, nil
	}
	e := &struct { // one allocation in place of two
		PutEnd
		waits Pending
	}{PutEnd: PutEnd{Ref: o.name(), Selector: put.Selector, Checksum: checksum}}
	e.pending = sh.begin(&e.waits, o.hash(), o)
	return &e.PutEnd, nil, nil
}

// writersObject finds the object of a put and checks that the caller is its
// writer. It returns with the shard locked.
func (s *Store) writersObject(put PutRef) (*shard, object, <-chan struct{}, error) {
	sh := &s.shards[shardOf(put.Tenant, put.Key)]
	sh.mu.Lock()
	o, wait := s.settled(sh, put.Tenant, put.Key)
	switch {
	case wait != nil:
		return sh, o, wait, nil
	case o.none() || put.ID != 0 && put.ID != o.id:
		return sh, object{}, nil, errs.ObjectNotFound
	case o.writer() != put.Client:
		return sh, object{}, nil, errs.IllegalClient
	}
	return sh, o, nil, nil
}

// selected counts the existing replicas that a selector chooses.
func (o object) selected(choose Selector) (processing, complete int) {
	for i := range o.replicaCount() {
		r := o.replicaAt(i)
		switch {
		case !r.exists() || !choose.selects(r.kind) || r.status == arriving:
		case r.status == Processing:
			processing++
		default:
			complete++
		}
	}
	return processing, complete
}

// PutEnd makes replicas readable.
type PutEnd struct {
	objectChange
	Ref
	Selector Selector
	Checksum *uint64 // nil for none
}

// Apply completes the replicas. The end of the lease becomes the time of this commit,
// plus a whole lease under Params.LeaseOnPutEnd, so no cutoff that was chosen before can
// reach the object. It answers ObjectNotFound if the object is gone.
func (e *PutEnd) Apply(tx *Tx) error {
	return tx.onObject(e.Ref, e.pending, func(_ *shard, o object) {
		term := tx.s.inForce.Load()
		pinBegins := o.deadline == 0 // nothing of it was ever complete
		if term.rules == FirstRules {
			pinBegins = !o.readable()
		}
		tx.s.subtractTerms(o)
		for i := range o.replicaCount() {
			if r := o.replicaAt(i); r.status == Processing && e.Selector.selects(r.kind) {
				o.complete(i)
				r.status = Complete
				tx.s.count(o, &r, 1)
			}
		}
		o.flags &^= flagAbandoned
		if pinBegins && o.soft() > 0 {
			o.setSoft(o.soft() + tx.now) // from a length to an end
		}
		deadline := tx.now
		if term.LeaseOnPutEnd {
			deadline += term.hold
		}
		o.stamp(deadline)
		if e.Checksum != nil {
			x := o.needExtra()
			x.checksum, x.hasChecksum = *e.Checksum, true
		}
		tx.s.addTerms(o)
		tx.s.file(o)
	})
}

// Code encodes or decodes the fields.
func (e *PutEnd) Code(c *binenc.Coder) {
	c.Tag(typePutEnd)
	codeRef(c, &e.Ref)
	codeSelector(c, &e.Selector)
	there := e.Checksum != nil
	if c.CodeBool(&there); there {
		if c.Decoding() {
			e.Checksum = new(uint64)
		}
		c.CodeUint64(e.Checksum)
	}
}

// A Drop is what a PutRevoke or a BatchReplicaClear of one key comes down to: the
// removal of the object, the loss of some replicas, or neither.
type Drop struct {
	Removal *Removal
	Partial Change
}

// PreparePutRevoke decides a PutRevoke. It drops nothing if the call is a repeat.
//
// Errors: ObjectNotFound, IllegalClient, InvalidWrite if a chosen replica is not in
// progress or there is none; Unavailable while too many numbered calls are remembered
// (Applied).
func (s *Store) PreparePutRevoke(put PutRef) (Drop, <-chan struct{}, error) {
	sh, o, wait, err := s.writersObject(put)
	defer sh.mu.Unlock()
	if wait == nil {
		if applied, full := s.Applied(put.Request); applied || full != nil {
			return Drop{}, nil, full
		}
	}
	if wait != nil || err != nil {
		return Drop{}, wait, err
	}
	processing, complete := o.selected(put.Selector)
	if processing == 0 && complete == 0 && put.Request != 0 && put.ID != 0 {
		return Drop{}, nil, nil // a repeat: the first call revoked the chosen replicas
	}
	if processing == 0 || complete > 0 {
		return Drop{}, nil, errs.InvalidWrite
	}
	ref, held := o.name(), sh.hold(o)
	if processing == o.survey().existing {
		return Drop{Removal: &Removal{Ref: ref, Request: put.Request, pending: held.pending}}, nil, nil
	}
	return Drop{Partial: &RevokeReplicas{Ref: ref, Selector: put.Selector, objectChange: held}}, nil, nil
}

// RevokeReplicas drops the replicas in progress of one kind from an object
// that keeps others. A revocation that leaves nothing is a deletion instead.
type RevokeReplicas struct {
	objectChange
	Ref
	Selector Selector
}

// Apply drops the replicas. It answers ObjectNotFound if the object is gone.
func (e *RevokeReplicas) Apply(tx *Tx) error {
	return tx.onObject(e.Ref, e.pending, func(sh *shard, o object) {
		tx.dropSome(sh, o, 0, func(r replica) bool {
			return r.status == Processing && e.Selector.selects(r.kind)
		})
	})
}

// Code encodes or decodes the fields.
func (e *RevokeReplicas) Code(c *binenc.Coder) {
	c.Tag(typeRevokeReplicas)
	codeRef(c, &e.Ref)
	codeSelector(c, &e.Selector)
}

// Discard drops the replicas in progress of an abandoned put, and the object
// if nothing else is left.
type Discard struct {
	objectChange
	Ref
}

// Apply drops the replicas. It answers ObjectNotFound if the object is gone.
func (e *Discard) Apply(tx *Tx) error {
	return tx.onObject(e.Ref, e.pending, func(sh *shard, o object) {
		tx.discard(sh, o, func(r replica) bool { return r.status == Processing })
	})
}

// Code encodes or decodes the fields.
func (e *Discard) Code(c *binenc.Coder) {
	c.Tag(typeDiscard)
	codeRef(c, &e.Ref)
}

// PrepareDiscards decides the discarding of up to limit reservations that are
// older than the release timeout: nobody may write there any more.
func (s *Store) PrepareDiscards(now Time, limit int) []*Discard {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	until := now.Add(-s.inForce.Load().ReleaseTimeout)
	var list []*Discard
	s.indexes[inReservations].walk(Through(until), limit, func(o object) {
		if len(list) >= limit {
			return
		}
		sh := &s.shards[o.shard()]
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if o.exists() && !o.has(flagPending|flagVictim) && sh.change(o) == nil {
			list = append(list, &Discard{Ref: o.name(), objectChange: sh.hold(o)})
		}
	}, func(Rank) bool { return len(list) >= limit })
	return list
}
