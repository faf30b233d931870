package metadata

import (
	"sync"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/binenc"
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

func (s *Store) beginRemoval(sh *shard, o *object, now Time) *Removal {
	removal := &Removal{Ref: Ref{o.shard, o.id}, pending: sh.hold(o).pending}
	if o.live > now {
		removal.LeaseUntil = o.live
	}
	return removal
}

// removable returns why an object must not be removed now, or nil.
func (o *object) removable(force bool, now Time) error {
	if o.live > now && !force {
		return errs.ObjectHasLease
	}
	if o.survey().processing > 0 {
		return errs.ReplicaNotReady
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
	r.pending.resolveLocked()
	o := sh.byID[r.ID]
	if o == nil {
		return false
	}
	existed := o.exists()
	tx.drop(sh, o, r.LeaseUntil)
	if existed {
		tx.remember(r.Request) // before the lock is gone: who repeats the call finds one or the other
	}
	return existed
}

func (tx *Tx) remember(request uint64) {
	if request == 0 || tx.globalHas() {
		return
	}
	displaced, added := tx.s.requests.add(request)
	if !added {
		return
	}
	tx.s.digest += requestTerm(request)
	if displaced != 0 {
		tx.s.digest -= requestTerm(displaced)
	}
}

// MaxRequests is how many applied removals are remembered by request id. A
// caller that lost the answer repeats its call within seconds, most of them
// seconds without a primary, so that few other removals come between.
const MaxRequests = 1 << 17

// A requestLog remembers the request ids of the last removals applied, so that
// a repeated call gets the answer of the first one instead of removing a later
// object. It is part of the state: the oldest go by count, not by age, and so
// at the same commit on every node.
type requestLog struct {
	mu    sync.Mutex // guards all; a leaf
	ring  []uint64
	next  int
	known map[uint64]struct{}
}

// add remembers a request and returns the one it displaces, or 0. It reports
// false if the request is known already.
func (l *requestLog) add(request uint64) (displaced uint64, added bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.known[request]; ok {
		return 0, false
	}
	if l.known == nil {
		l.known = make(map[uint64]struct{})
	}
	l.known[request] = struct{}{}
	if len(l.ring) < MaxRequests {
		l.ring = append(l.ring, request)
		return 0, true
	}
	displaced = l.ring[l.next]
	delete(l.known, displaced)
	l.ring[l.next] = request
	l.next = (l.next + 1) % MaxRequests
	return displaced, true
}

func (l *requestLog) has(request uint64) bool {
	if request == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.known[request]
	return ok
}

// all returns the requests, the oldest first.
func (l *requestLog) all() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(append([]uint64(nil), l.ring[l.next:]...), l.ring[:l.next]...)
}

// Applied reports whether a removal with a request id was applied, so that the
// call is a repeated one. The shard of its key must be locked.
func (s *Store) Applied(request uint64) bool { return s.requests.has(request) }

// PrepareClear decides the clearing of an object's replicas on the segments of
// a name, or of all its replicas if the name is empty. It drops nothing, as the
// C++ master does, of whatever may not be cleared: a missing key, another
// client's, a leased one, one in progress, one without a replica there.
func (s *Store) PrepareClear(tenant, key string, client segment.ClientID, name string, now Time) (Drop, <-chan struct{}) {
	sh := &s.shards[shardOf(tenant, key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o, wait := s.settled(sh, tenant, key)
	if wait != nil {
		return Drop{}, wait
	}
	if o == nil || o.client != client || o.live > now {
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
	case len(on) == 0:
		return Drop{}, nil
	case len(on) == v.existing:
		return Drop{Removal: s.beginRemoval(sh, o, now)}, nil
	}
	return Drop{Partial: &ClearReplicas{Ref: Ref{o.shard, o.id}, Segments: on, objectChange: sh.hold(o)}}, nil
}

// ClearReplicas drops an object's replicas on some segments; others stay.
type ClearReplicas struct {
	objectChange
	Ref
	Segments []segment.Number
}

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

// Code goes through the fields.
func (e *ClearReplicas) Code(c *binenc.Coder) {
	c.Tag(typeClearReplicas)
	codeRef(c, &e.Ref)
	codeNumbers(c, &e.Segments)
}
