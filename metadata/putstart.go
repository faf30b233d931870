package metadata

import (
	"sync"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// The Prepare methods are the primary's: they decide a change against the committed
// state, mark what it touches, and return it for the journal. The change takes effect
// when Apply gets it in a commit. Until then, or until Abort, no other change to the same
// key is prepared: a call for one gets a channel that is closed with the outcome, and is
// made again after that.
//
// now is the primary's cluster time.

// A Put asks for the reservation of an object.
type Put struct {
	Tenant    string
	Key       string
	Client    segment.ClientID
	Size      uint64 // bytes, at least 1
	Request   uint64 // the caller's request id, 0 for none
	Replicas  int    // memory replicas wanted; one is enough
	Preferred []string
	DiskPath  string // of a disk replica, whose file has the id as suffix; empty for none. See alike
	SoftPin   time.Duration
	HardPin   bool
	Group     string
	// Grouped says that an empty Group is meant: an upsert then asks for an object in no
	// group.
	Grouped  bool
	DataType uint8
	// Unnumbered says that the caller's protocol has no request ids: the client
	// may replace a reservation of its own whose answer it cannot have received.
	Unnumbered bool
	// Upsert says that the put replaces what is under the key, see displaceable.
	Upsert bool
	// KeepSoftPin makes an upsert keep what is left of the soft pin of the object that it
	// replaces.
	KeepSoftPin bool
	// Own is a reservation of the key that the same call has made, 0 for none: an
	// Unnumbered upsert may replace it.
	Own  ObjectID
	Peer string // the peer that the put counts for, empty for none
	// Refused is why the put must not add a key, nil if it may. A repeated put, and one
	// that replaces an object, are accepted nevertheless.
	Refused error
	// Metered makes the put count against its tenant's quota. The bytes of the object
	// that it replaces count as free.
	Metered bool
}

// PreparePutStart decides a PutStart. It returns a change to commit, a channel to wait
// on, or the reservation that the same request made before.
//
// Errors: InvalidKey for a key that not every node can read; put.Refused; what
// displaceable returns; ObjectNotFound for a repeated call whose put was made, and
// replaced by another one before its end; NoAvailableHandle if no segment has room, or
// there is none for a record (HasRecordRoom); Unavailable if the term has run out of ids;
// for a Metered put TenantNotRegistered, and TenantQuotaExceeded, which eviction of the
// tenant's objects can help.
func (s *Store) PreparePutStart(put *Put, now Time) (*PutStart, *Object, <-chan struct{}, error) {
	if err := s.checkKey(put.Key); err != nil {
		return nil, nil, nil, err
	}
	if put.Metered {
		if err := s.Registered(put.Tenant); err != nil {
			return nil, nil, nil, err
		}
	}
	sh := &s.shards[shardOf(put.Tenant, put.Key)]
	tenant := s.tenants.intern(put.Tenant)
	hash := s.hash.of(tenant, put.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if p := sh.pending.find(hash); p != nil {
		return nil, nil, p.outcome(), nil
	}
	old := sh.there(hash, tenant, put.Key)
	if !old.none() {
		if wait := s.outcomeOf(sh, old); wait != nil {
			return nil, nil, wait, nil
		}
		if put.repeats(old) && old.survey().complete == 0 {
			repeated := s.describe(old)
			return nil, &repeated, nil, nil
		}
	}
	if replaced, _ := s.Applied(put.Request); replaced {
		return nil, nil, nil, errs.New(errs.ObjectNotFound, "PutStart", "the reservation was made, and another put has replaced it since")
	}
	if err := s.admissible(sh, put, old, now); err != nil {
		return nil, nil, nil, err
	}
	prepared := &preparedPut{PutStart: PutStart{
		Tenant: put.Tenant, Key: put.Key, Client: put.Client, Size: put.Size, Request: put.Request,
		SoftPin: put.SoftPin, HardPin: put.HardPin, Group: put.Group, DataType: put.DataType, peer: put.Peer,
	}}
	e := &prepared.PutStart
	if !old.none() {
		e.Replaces = old.id
	}
	if !old.none() && put.Upsert {
		s.succeed(e, put, old, now)
	}
	if err := s.meter(e, put, old); err != nil {
		return nil, nil, nil, err
	}
	if err := s.reserve(prepared, put); err != nil {
		e.charge.release()
		return nil, nil, nil, err
	}
	if put.DiskPath != "" && (old.none() || !s.alike(put, old, now)) {
		e.DiskPath = put.DiskPath + "." + e.ID.String() // an abandoned writer may still write the file of its own put
	}
	e.pending = sh.begin(&prepared.waits, hash, old)
	e.pending.put, e.pending.inPlace, e.pending.charge = e.ID, e.InPlace, e.charge
	return e, nil, nil, nil
}

// admissible returns why a put must not have its key, or nil. old is the object under the
// key, if there is one.
func (s *Store) admissible(sh *shard, put *Put, old object, now Time) error {
	if old.none() && put.Refused != nil {
		return put.Refused
	}
	if !old.none() {
		if err := s.displaceable(sh, put, old, now); err != nil {
			return err
		}
	}
	return s.checkRoom(!old.none())
}

// meter charges a Metered put to its tenant's quota, less the memory of the object that
// it replaces.
func (s *Store) meter(e *PutStart, put *Put, old object) (err error) {
	if !put.Metered {
		return nil
	}
	if e.InPlace { // Apply gives the bytes back before it takes them again
		e.charge = &charge{q: &s.quotas, id: old.tenant, goes: int64(old.size) * int64(len(e.Placements))}
		return nil
	}
	goes := uint64(0)
	if !old.none() {
		goes = old.memoryCharge()
	}
	e.charge, err = s.admit(put.Tenant, put.Size, uint64(put.Replicas), goes)
	return err
}

// mayReplace reports whether a put may replace a reservation before the discard timeout:
// one of the same client and term whose answer reached nobody (see Abandon). The answer
// of an earlier term may have arrived: a PutEnd of that writer, which names the key
// alone, would complete the new put.
func (put *Put) mayReplace(old object, term Term) bool {
	return put.Unnumbered && old.writer() == put.Client && old.has(flagAbandoned) && old.id.Term() == term
}

// Abandon notes that the answer with a reservation reached nobody, whether or not the
// reservation is committed yet: its client may replace it with a put that is Unnumbered.
// Abandon does nothing if the object is gone or readable.
//
// The mark is this node's own and no part of the state. It goes when the object is
// finished or replaced, and counts in its term only.
func (s *Store) Abandon(tenant, key string, id ObjectID) {
	sh := &s.shards[shardOf(tenant, key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if o := sh.withID(id); !o.none() && !o.readable() {
		o.flags |= flagAbandoned
		return
	}
	if tenantID, ok := s.tenants.find(tenant); ok {
		if p := sh.pending.find(s.hash.of(tenantID, key)); p != nil && p.put == id {
			p.abandoned = true
		}
	}
}

// A preparedPut is a PutStart in one piece with what nearly all of them need: one
// allocation takes less time than four.
type preparedPut struct {
	PutStart
	allocated [1]segment.Allocation
	placed    [1]Placement
	waits     Pending
}

// reserve gives the put its id and its ranges, busy from now on.
func (s *Store) reserve(e *preparedPut, put *Put) error {
	if !e.InPlace {
		placed := s.pool.Allocate(e.allocated[:0], segment.Request{Size: put.Size, Replicas: put.Replicas, Preferred: put.Preferred})
		if len(placed) == 0 {
			return errs.NoAvailableHandle
		}
		e.Placements = e.placed[:0]
		for _, at := range placed {
			e.Placements = append(e.Placements, Placement{Segment: at.Segment.Number, Range: at.Range, held: at.Segment})
		}
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

// HasRoom reports whether a segment has room for an object of a size, in bytes.
func (s *Store) HasRoom(size uint64) bool {
	var buf [1]segment.Allocation
	placed := s.pool.Allocate(buf[:0], segment.Request{Size: size, Replicas: 1})
	for _, at := range placed {
		_ = at.Segment.Free(at.Range) // as in giveBack
	}
	return len(placed) > 0
}

// PutStart reserves memory for a new object.
type PutStart struct {
	objectEvent

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
	Replaces   ObjectID // the object that it replaces, mostly an abandoned reservation; 0 for none
	// Upsert says that the replaced object was readable. Upsert and the fields behind it
	// are zero before upsertRules.
	Upsert     bool
	InPlace    bool // Placements are memory of the replaced object, to be written anew
	LeaseUntil Time // as in a Removal

	pending *Pending
	charge  *charge // nil for none
	peer    string  // as in a Put; empty on a follower
}

// A Placement is the range of one memory replica.
type Placement struct {
	Segment segment.Number
	Range   segment.Range

	held *segment.Segment // set on the node that prepared it: the range is busy in its allocator
	left bool             // set by Apply on this node if the segment was gone
}

// Apply inserts the reservation. It answers NoAvailableHandle if every segment
// it was placed on is gone, and replaces nothing then.
func (e *PutStart) Apply(tx *Tx) error {
	shardNumber := shardOf(e.Tenant, e.Key)
	sh := &tx.s.shards[shardNumber]
	if tx.has(sh) {
		return nil
	}
	e.charge.raise()
	defer e.charge.release()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	tenant := tx.s.tenants.intern(e.Tenant)
	old := sh.withID(e.Replaces) // which is what pending marks
	e.pending.resolveLocked(old)
	replicas := e.place(tx.replicas[:0], tx, old)
	if len(replicas) == 0 && (e.Upsert || tx.s.Rules() >= keepingRules) {
		return errs.NoAvailableHandle
	}
	if !old.none() && (e.Upsert || old.survey().complete == 0) {
		tx.takeOver(sh, old, e)
	}
	hash := tx.s.hash.of(tenant, e.Key)
	left := sh.withKey(hash, tenant, e.Key)
	if !left.none() && left.exists() {
		tx.Fail("object %v is put under a key that object %v holds", e.ID, left.id)
		return errs.ObjectExists
	}
	d := &draft{
		id: e.ID, key: e.Key, tenant: tenant, shard: shardNumber, client: e.Client, size: e.Size,
		putStart: tx.now, soft: Time(e.SoftPin.Milliseconds()), request: e.Request, replicas: replicas,
	}
	if e.HardPin {
		d.flags |= flagHardPin
	}
	if e.pending != nil && e.pending.abandoned {
		d.flags |= flagAbandoned
	}
	if e.DiskPath != "" || e.Group != "" || e.DataType != 0 {
		d.extra = &extra{diskPath: e.DiskPath, group: e.Group, dataType: e.DataType}
	}
	if len(replicas) == 0 {
		return errs.NoAvailableHandle
	}
	if !left.none() {
		tx.drop(sh, left, 0) // all its segments are unmounted: nothing to give back
	}
	tx.enter(sh, hash, d)
	tx.s.peers.put(e.Client, e.peer)
	return nil
}

// place appends the replicas and makes their ranges busy on this node. It leaves out
// segments that are gone. An upsert in place keeps the ranges of the object that it replaces.
func (e *PutStart) place(replicas []replica, tx *Tx, old object) []replica {
	placements := e.Placements
	if e.InPlace {
		replicas, placements = e.inherit(replicas, old), nil
	}
	for i := range placements {
		at := &placements[i]
		if p := tx.occupy(at, e.ID); p != nil {
			replicas = append(replicas, replica{segment: p, rng: at.Range, kind: Memory, status: Processing})
		}
	}
	if e.DiskPath != "" {
		replicas = append(replicas, replica{kind: Disk, status: Processing})
	}
	return replicas
}

// occupy makes a placement's range busy on this node. It returns the segment, or
// nil if that is gone.
func (tx *Tx) occupy(at *Placement, id ObjectID) *segmentState {
	p := tx.s.segments[at.Segment]
	if at.left = p == nil; at.left {
		return nil
	}
	if at.held == nil && !tx.s.loading {
		if err := p.Reserve(at.Range); err != nil {
			tx.Fail("object %v: %v", id, err)
			return nil
		}
	}
	return p
}

// Abort gives the prepared ranges back and ends the waiting.
func (e *PutStart) Abort(*Store) {
	e.charge.release()
	e.giveBack()
	e.pending.resolve()
}

// giveBack frees the ranges that this node allocated for the put. An upsert in place
// allocated none.
func (e *PutStart) giveBack() {
	if !e.InPlace {
		giveBack(e.Placements)
	}
}

// giveBack frees the ranges that this node made busy when it prepared a change.
func giveBack(placements []Placement) {
	for _, at := range placements {
		if at.held != nil && !at.held.Gone() {
			// An error would mean that the range was given out twice; applying
			// the next reservation there finds that out.
			_ = at.held.Free(at.Range)
		}
	}
}

// Descriptors tells the writer where to put its bytes, once the put is applied.
// It is for the node that prepared the put.
func (e *PutStart) Descriptors() []Descriptor {
	files := 0
	if e.DiskPath != "" {
		files = 1
	}
	list := placed(make([]Descriptor, 0, len(e.Placements)+files), e.Placements, e.Size)
	if e.DiskPath != "" {
		list = append(list, Descriptor{Kind: Disk, Status: Processing, Size: e.Size, Path: e.DiskPath})
	}
	return list
}

// placed appends descriptions of replicas that this node has placed, and that are not gone.
func placed(list []Descriptor, placements []Placement, size uint64) []Descriptor {
	for _, at := range placements {
		if !at.left {
			list = append(list, Descriptor{
				Kind: Memory, Status: Processing, Segment: at.held.Name, Endpoint: at.held.Endpoint,
				Protocol: at.held.Protocol, Address: at.held.Address(at.Range), Size: size,
			})
		}
	}
	return list
}

// Code encodes or decodes the fields.
func (e *PutStart) Code(c *binenc.Coder) {
	c.Tag(typePutStart)
	follows := c.Optional(e.Request != 0, e.DiskPath != "", e.SoftPin != 0, e.HardPin, e.Group != "", e.DataType != 0, e.Replaces != 0, e.Upsert)
	codeTenant(c, &e.Tenant)
	c.CodeString(&e.Key, MaxKeyBytes)
	binenc.CodeUvarint(c, &e.ID)
	c.CodeFixed(e.Client[:])
	binenc.CodeUvarint(c, &e.Size)
	codePlacements(c, &e.Placements)
	if follows[0] {
		c.CodeUint64(&e.Request)
	}
	if follows[1] {
		c.CodeString(&e.DiskPath, MaxPathBytes)
	}
	if follows[2] {
		codeMillis(c, &e.SoftPin)
	}
	e.HardPin = follows[3]
	if follows[4] {
		c.CodeString(&e.Group, MaxNameBytes)
	}
	if follows[5] {
		c.CodeByte(&e.DataType)
	}
	if follows[6] {
		binenc.CodeUvarint(c, &e.Replaces)
	}
	if e.Upsert = follows[7]; e.Upsert {
		c.CodeBool(&e.InPlace)
		binenc.CodeVarint(c, &e.LeaseUntil)
	}
}

// idSource gives object ids on the primary.
type idSource struct {
	mu   sync.Mutex
	term Term
	next uint64
}

// StartIDs makes the store assign object ids of a term, which must be new; 0 makes it
// assign none.
func (s *Store) StartIDs(term Term) { s.StartIDsAfter(term, 0) }

// StartIDsAfter is StartIDs with counters above the given one, which is at most
// MaxCounter.
func (s *Store) StartIDsAfter(term Term, counter uint64) {
	s.ids.mu.Lock()
	defer s.ids.mu.Unlock()
	s.ids.term, s.ids.next = term, counter
}

// take returns the next id. It reports false when the term has run out of ids,
// or none was started: then a handover gives the next primary new ones.
func (i *idSource) take() (ObjectID, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.term == 0 || i.next == MaxCounter {
		return 0, false
	}
	i.next++
	return NewObjectID(i.term, i.next), true
}
