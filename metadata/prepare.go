package metadata

import (
	"slices"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/safeguard"
	"github.com/understudy-store/understudy/segment"
)

// The Prepare methods are the primary's: they decide a change against the
// committed state, mark what it touches, and return it for the journal. The
// change takes effect when Apply gets it in a commit; until then, or until
// Abort, no other change to the same key is prepared: such a call returns a
// channel that is closed with the outcome, and is made again then.
//
// now is the primary's cluster time.

// StartIDs makes the store give object ids of a term, which must be new.
func (s *Store) StartIDs(term Term) { s.ids.start(term) }

func (i *idSource) start(term Term) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.term, i.next = term, 0
}

func (i *idSource) stop() { i.start(0) }

// take returns the next id. It reports false when the term has run out of ids,
// or none was started; the primary then takes a new term.
func (i *idSource) take() (ObjectID, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.term == 0 || i.next == 1<<counterBits-1 {
		return 0, false
	}
	i.next++
	return NewObjectID(i.term, i.next), true
}

// A Put asks for the reservation of an object.
type Put struct {
	Tenant    string
	Key       string
	Client    segment.ClientID
	Size      uint64 // bytes, at least 1
	Request   uint64 // the caller's request id, 0 for none
	Replicas  int    // memory replicas wanted; one is enough
	Preferred []string
	DiskPath  string // adds a disk replica unless empty
	SoftPin   time.Duration
	HardPin   bool
	Group     string
	DataType  uint8
	// Unnumbered says that the caller's protocol has no request ids: the client
	// may replace a reservation of its own that it cannot have been told of.
	Unnumbered bool
}

// PreparePutStart decides a PutStart. Besides a change to commit or a channel
// to wait on, it may return the object: the reservation that the same request
// made before.
//
// Errors: ObjectExists for a key with a readable object, or with a reservation
// younger than the discard timeout (but see Put.Unnumbered); NoAvailableHandle
// if no segment has room; Unavailable if the term has run out of ids.
func (s *Store) PreparePutStart(put *Put, now Time) (*PutStart, *Object, <-chan struct{}, error) {
	sh := &s.shards[shardOf(put.Tenant, put.Key)]
	tenant := s.tenants.intern(put.Tenant)
	key := objectKey{tenant, put.Key}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if p := sh.pending[key]; p != nil {
		return nil, nil, p.outcome(), nil
	}
	old := s.lookup(sh, put.Tenant, put.Key)
	if old != nil {
		if wait := s.outcomeOf(sh, old); wait != nil {
			return nil, nil, wait, nil
		}
		term := s.inForce.Load()
		switch {
		case old.survey().complete > 0:
			return nil, nil, nil, errs.ObjectExists
		case put.Request != 0 && old.request == put.Request && old.client == put.Client && !safeguard.Off(safeguard.RequestIDs):
			repeated := s.describe(old)
			return nil, &repeated, nil, nil
		case now.Sub(old.putStart) <= term.DiscardTimeout && !put.mayReplace(old, term.term):
			return nil, nil, nil, errs.ObjectExists
		}
	}
	e := &PutStart{
		Tenant: put.Tenant, Key: put.Key, Client: put.Client, Size: put.Size, Request: put.Request,
		DiskPath: put.DiskPath, SoftPin: put.SoftPin, HardPin: put.HardPin, Group: put.Group, DataType: put.DataType,
	}
	if old != nil {
		e.Replaces = old.id
	}
	if err := s.reserve(e, put); err != nil {
		return nil, nil, nil, err
	}
	e.pending = sh.begin(key, old)
	e.pending.put = e.ID
	return e, nil, nil, nil
}

// mayReplace reports whether a put may replace a reservation before its time:
// one of the same client, who was never answered. The caller had gone (see
// Abandon), or the reservation is of an earlier term, whose primary may have
// failed before it answered; that it did answer cannot be told apart.
func (put *Put) mayReplace(old *object, term Term) bool {
	return put.Unnumbered && old.client == put.Client && (old.has(flagAbandoned) || old.id.Term() < term)
}

// Abandon notes that nobody was there to be told of a reservation, whether it
// is committed yet or not: its client may replace it with a put that is
// Unnumbered. An object that is not there, or is readable, stays as it is.
//
// The mark is this node's own and no part of the state. It goes when the
// object is finished or replaced; a later term needs none.
func (s *Store) Abandon(tenant, key string, id ObjectID) {
	sh := &s.shards[shardOf(tenant, key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if o := sh.byID[id]; o != nil && !o.readable() {
		o.flags |= flagAbandoned
		return
	}
	if tenantID, ok := s.tenants.find(tenant); ok {
		if p := sh.pending[objectKey{tenantID, key}]; p != nil && p.put == id {
			p.abandoned = true
		}
	}
}

// reserve gives the put its id and its ranges, busy from now on.
func (s *Store) reserve(e *PutStart, put *Put) error {
	var buf [4]segment.Placement
	placed := s.pool.Allocate(buf[:0], segment.Request{Size: put.Size, Replicas: put.Replicas, Preferred: put.Preferred})
	if len(placed) == 0 {
		return errs.NoAvailableHandle
	}
	e.Placements = make([]Placement, len(placed))
	for i, at := range placed {
		e.Placements[i] = Placement{Segment: at.Segment.Number, Range: at.Range, held: at.Segment}
	}
	var ok bool
	if e.ID, ok = s.ids.take(); !ok {
		e.giveBack()
		return errs.New(errs.Unavailable, "PutStart", "this term has run out of object ids; hand over, so that a new one begins")
	}
	return nil
}

// CouldHold reports whether an object of a size, in bytes, could have so many
// replicas if all mounted memory were free.
func (s *Store) CouldHold(size uint64, replicas int) bool { return s.pool.CouldHold(size, replicas) }

// A PutRef names a put that its writer goes on with.
type PutRef struct {
	Tenant   string
	Key      string
	Client   segment.ClientID
	ID       ObjectID // as PutStart gave it, 0 if the caller does not know
	Selector Selector
	Request  uint64 // the caller's request id, 0 for none
}

// PreparePutEnd decides a PutEnd. It returns nothing at all if the replicas
// are complete already.
//
// Errors: ObjectNotFound, also when the key was put again since; IllegalClient
// for a stranger's put; InvalidWrite if there is no such replica.
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
	return &PutEnd{
		Ref: Ref{o.shard, o.id}, Selector: put.Selector, Checksum: checksum,
		pending: sh.begin(objectKey{o.tenant, o.key}, o),
	}, nil, nil
}

// A Revocation is what a PutRevoke comes down to: the removal of the object,
// the loss of some replicas, or nothing for a repeated call.
type Revocation struct {
	Removal *Removal
	Partial *RevokeReplicas
}

// PreparePutRevoke decides a PutRevoke.
//
// Errors: ObjectNotFound, IllegalClient, InvalidWrite if a chosen replica is
// not in progress or there is none.
func (s *Store) PreparePutRevoke(put PutRef) (Revocation, <-chan struct{}, error) {
	sh, o, wait, err := s.writersObject(put)
	defer sh.mu.Unlock()
	if wait == nil && s.requests.has(put.Request) {
		return Revocation{}, nil, nil
	}
	if wait != nil || err != nil {
		return Revocation{}, wait, err
	}
	processing, complete := o.selected(put.Selector)
	if processing == 0 && complete == 0 && put.Request != 0 && put.ID != 0 {
		return Revocation{}, nil, nil // it revoked some replicas, and is repeated: no other is left of them
	}
	if processing == 0 || complete > 0 {
		return Revocation{}, nil, errs.InvalidWrite
	}
	ref, pending := Ref{o.shard, o.id}, sh.begin(objectKey{o.tenant, o.key}, o)
	if processing == o.survey().existing {
		return Revocation{Removal: &Removal{Ref: ref, Request: put.Request, pending: pending}}, nil, nil
	}
	return Revocation{Partial: &RevokeReplicas{Ref: ref, Selector: put.Selector, pending: pending}}, nil, nil
}

// writersObject finds the object of a put and checks that the caller is its
// writer. It returns with the shard locked.
func (s *Store) writersObject(put PutRef) (*shard, *object, <-chan struct{}, error) {
	sh := &s.shards[shardOf(put.Tenant, put.Key)]
	sh.mu.Lock()
	o, wait := s.settled(sh, put.Tenant, put.Key)
	switch {
	case wait != nil:
		return sh, nil, wait, nil
	case o == nil || put.ID != 0 && put.ID != o.id:
		return sh, nil, nil, errs.ObjectNotFound
	case o.client != put.Client:
		return sh, nil, nil, errs.IllegalClient
	}
	return sh, o, nil, nil
}

// settled returns the object under a key, nil if there is none, or what to
// wait for before that can be said. Needs the shard's lock.
func (s *Store) settled(sh *shard, tenant, key string) (*object, <-chan struct{}) {
	id, ok := s.tenants.find(tenant)
	if !ok {
		return nil, nil
	}
	if p := sh.pending[objectKey{id, key}]; p != nil {
		return nil, p.outcome()
	}
	o := s.lookup(sh, tenant, key)
	if o == nil {
		return nil, nil
	}
	return o, s.outcomeOf(sh, o)
}

// selected counts the existing replicas that a selector chooses.
func (o *object) selected(choose Selector) (processing, complete int) {
	for i := range o.replicaCount() {
		r := o.replicaAt(i)
		switch {
		case !r.exists() || !choose.selects(r.kind):
		case r.status == Processing:
			processing++
		default:
			complete++
		}
	}
	return processing, complete
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

func (s *Store) beginRemoval(sh *shard, o *object, now Time) *Removal {
	removal := &Removal{Ref: Ref{o.shard, o.id}, pending: sh.begin(objectKey{o.tenant, o.key}, o)}
	if o.live > now {
		removal.LeaseUntil = o.live
	}
	return removal
}

// Abort ends the waiting for a removal that will not be committed.
func (r *Removal) Abort() { r.pending.resolve() }

// A Clearing is what a BatchReplicaClear comes down to for one key: the
// removal of the object, or the loss of the replicas on one segment.
type Clearing struct {
	Removal *Removal
	Partial *ClearReplicas
}

// PrepareClear decides the clearing of an object's replicas on the segments of
// a name, or of all its replicas if the name is empty. It reports false, as
// the C++ master does, for whatever may not be cleared: a missing key, another
// client's, a leased one, one in progress, one without a replica there.
func (s *Store) PrepareClear(tenant, key string, client segment.ClientID, name string, now Time) (Clearing, <-chan struct{}, bool) {
	sh := &s.shards[shardOf(tenant, key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o, wait := s.settled(sh, tenant, key)
	if wait != nil {
		return Clearing{}, wait, false
	}
	if o == nil || o.client != client || o.live > now {
		return Clearing{}, nil, false
	}
	v := o.survey()
	if name == "" {
		if v.processing > 0 {
			return Clearing{}, nil, false
		}
		return Clearing{Removal: s.beginRemoval(sh, o, now)}, nil, true
	}
	var on []segment.Number
	for i := range o.replicaCount() {
		r := o.replicaAt(i)
		if !r.exists() || r.kind != Memory || r.segment.Name != name {
			continue
		}
		if r.status != Complete {
			return Clearing{}, nil, false
		}
		on = append(on, r.segment.Number)
	}
	switch {
	case len(on) == 0:
		return Clearing{}, nil, false
	case len(on) == v.existing:
		return Clearing{Removal: s.beginRemoval(sh, o, now)}, nil, true
	}
	return Clearing{Partial: &ClearReplicas{
		Ref: Ref{o.shard, o.id}, Segments: on, pending: sh.begin(objectKey{o.tenant, o.key}, o),
	}}, nil, true
}

// PrepareDiscards decides the discarding of up to limit reservations that are
// older than the release timeout: nobody may write there any more.
func (s *Store) PrepareDiscards(now Time, limit int) []*Discard {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	until := now.Add(-s.inForce.Load().ReleaseTimeout)
	var list []*Discard
	s.reservations.walk(until, func(o *object) {
		if len(list) >= limit {
			return
		}
		sh := &s.shards[o.shard]
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if !o.has(flagPending|flagVictim) && sh.pending[objectKey{o.tenant, o.key}] == nil {
			list = append(list, &Discard{Ref: Ref{o.shard, o.id}, pending: sh.begin(objectKey{o.tenant, o.key}, o)})
		}
	}, func() bool { return len(list) >= limit })
	return list
}

// PrepareMount decides the mounting of a segment: nothing if it is mounted
// just so already. Mounts must be decided one at a time, each after the one
// before was applied.
//
// Errors: InvalidParams for a specification that cannot be, SegmentExists for
// another place, or other properties, under an id that the client has mounted.
func (s *Store) PrepareMount(spec segment.Spec) (*Mount, error) {
	if err := spec.Validate(); err != nil {
		return nil, errs.Wrap(errs.InvalidParams, "MountSegment", err)
	}
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	e := &Mount{Spec: spec}
	for _, p := range s.segments {
		switch {
		case p.Spec == spec:
			return nil, nil
		case p.SamePlace(spec) && (p.ID != spec.ID || p.Client != spec.Client):
			e.Replaces = append(e.Replaces, p.Number)
		case p.ID == spec.ID:
			return nil, errs.New(errs.SegmentExists, "MountSegment",
				"segment %v is mounted at another place; unmount it first or use a new id", spec.ID)
		}
	}
	slices.Sort(e.Replaces)
	return e, nil
}

// FindSegment returns the number of a mounted segment.
func (s *Store) FindSegment(id segment.ID) (segment.Number, bool) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	for _, p := range s.segments {
		if p.ID == id {
			return p.Number, true
		}
	}
	return 0, false
}
