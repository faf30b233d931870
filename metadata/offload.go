package metadata

import (
	"slices"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/segment"
)

// An OffloadSource is an object that a client can copy from its own memory.
type OffloadSource struct {
	Ref
	Client segment.ClientID
}

// OffloadSources appends to dst the owners of the segments in which an object has
// readable replicas, but for those whose SSD has a copy already. It does not check
// whether they have an SSD.
func (s *Store) OffloadSources(dst []OffloadSource, ref Ref) []OffloadSource {
	sh := &s.shards[ref.Shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if o := sh.withID(ref.ID); !o.none() {
		dst = o.offloadSources(dst)
	}
	return dst
}

// ShardOffloadSources is OffloadSources for all objects of a shard.
func (s *Store) ShardOffloadSources(dst []OffloadSource, shard int) []OffloadSource {
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.all {
		dst = o.offloadSources(dst)
	}
	return dst
}

func (o object) offloadSources(dst []OffloadSource) []OffloadSource {
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.kind == Memory && r.readable() && !o.copiedBy(r.segment.Client) {
			dst = append(dst, OffloadSource{o.name(), r.segment.Client})
		}
	}
	return dst
}

// onSSD reports whether the object, or none, has a replica on an SSD.
func (o object) onSSD() bool {
	if o.none() {
		return false
	}
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.kind == LocalDisk && r.exists() {
			return true
		}
	}
	return false
}

// copiedBy reports whether the object has a replica on a client's SSD.
func (o object) copiedBy(client segment.ClientID) bool {
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.kind == LocalDisk && r.exists() && r.segment.Client == client {
			return true
		}
	}
	return false
}

// BeginCopy returns the key and the size in bytes of the object of a source, for its
// client to copy. Eviction spares the object until EndCopy, at most until a time. It
// reports false if the client cannot copy the object any more or has a copy, and during a
// move.
func (s *Store) BeginCopy(source OffloadSource, until Time) (key ObjectKey, size uint64, ok bool) {
	sh := &s.shards[source.Shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := sh.withID(source.ID)
	var buf [4]OffloadSource
	if o.none() || o.victim() || !slices.Contains(o.offloadSources(buf[:0]), source) ||
		o.transfer() != nil && o.transfer().move || o.copyIsVoid(sh, source.Client) {
		return ObjectKey{}, 0, false
	}
	c := sh.copying[o.id]
	sh.copies(o.id, copying{until, append(c.clients, copier{client: source.Client}), c.waited})
	return ObjectKey{s.tenants.name(o.tenant), o.key()}, o.size, true
}

// SpareForCopy makes eviction spare an object until it is copied to an SSD, at most until
// a time. It reports false if an SSD has the object already, or if it was spared before:
// no client may keep memory full for longer.
func (s *Store) SpareForCopy(ref Ref, until Time) bool {
	sh := &s.shards[ref.Shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := sh.withID(ref.ID)
	if o.none() || o.victim() {
		return false
	}
	if _, before := sh.copying[o.id]; before || o.onSSD() {
		return false
	}
	sh.copies(o.id, copying{until: until, waited: true})
	return true
}

func (sh *shard) copies(id ObjectID, c copying) {
	if sh.copying == nil {
		sh.copying = make(map[ObjectID]copying)
	}
	sh.copying[id] = c
}

// copying says until when eviction spares an object, and which clients copy it.
type copying struct {
	until   Time
	clients []copier
	waited  bool // by SpareForCopy; then this stays until the object is on an SSD, or gone
}

// copied reports whether a client may be at work on a copy of an object. An object that
// only waits for its copy does not count.
func (sh *shard) copied(id ObjectID, now Time) bool {
	c := sh.copying[id]
	return len(c.clients) > 0 && c.until > now
}

// A copier is a client that copies an object from its memory.
type copier struct {
	client segment.ClientID
	void   bool // the object has left some of that memory since
}

// EndCopy takes back one BeginCopy of a client.
func (s *Store) EndCopy(client segment.ClientID, key ObjectKey, id ObjectID) {
	sh := &s.shards[shardOf(key.Tenant, key.Key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := sh.copying[id]
	if at := slices.IndexFunc(c.clients, func(by copier) bool { return by.client == client }); at >= 0 {
		c.clients = slices.Delete(c.clients, at, at+1)
		sh.copying[id] = c
	}
	switch {
	case len(c.clients) > 0:
	case c.waited && !sh.withID(id).onSSD():
		sh.copying[id] = copying{waited: true}
	default:
		delete(sh.copying, id)
	}
}

// voidCopies marks the copies that a client may be making from a replica that goes:
// others may get its memory, so the client may have read their bytes.
func (sh *shard) voidCopies(o object, r *replica) {
	if r.kind != Memory || r.status != Complete {
		return
	}
	for i, by := range sh.copying[o.id].clients {
		if by.client == r.segment.Client {
			sh.copying[o.id].clients[i].void = true
		}
	}
}

// copyIsVoid reports whether the object has left memory of a client since the client was
// told to copy it. From then on no copy of that client is taken, as its reports do not
// say which copy they mean.
func (o object) copyIsVoid(sh *shard, client segment.ClientID) bool {
	if slices.Contains(sh.copying[o.id].clients, copier{client, true}) {
		return true
	}
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.kind == Memory && !r.exists() && r.segment.Client == client {
			return true // Sweep has not come by
		}
	}
	return false
}

// An Offloaded is a copy that a client has made of an object.
type Offloaded struct {
	Tenant   string
	Key      string
	ID       ObjectID         // the object that was copied
	Client   segment.ClientID // the owner of the SSD
	Number   segment.Number   // of the mount of the client's SSD
	Size     uint64           // bytes of the copy
	Endpoint string           // where the client is reached
}

// PrepareOffloaded decides what becomes of a copy: a new replica, or no change if the
// object has that replica already. Instead it may return a channel to wait on.
//
// Errors: ObjectNotFound, also when the key was put again since; ReplicaNotReady if the
// client's memory has no readable replica of the object now, or the object has left some
// of that memory since the client was told to copy it; InvalidParams for a copy of
// another size, or when the object has MaxReplicas of them.
func (s *Store) PrepareOffloaded(c Offloaded) (*AddLocalDisk, <-chan struct{}, error) {
	sh := &s.shards[shardOf(c.Tenant, c.Key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o, wait := s.settled(sh, c.Tenant, c.Key)
	switch {
	case wait != nil:
		return nil, wait, nil
	case o.none() || c.ID != o.id:
		return nil, nil, errs.ObjectNotFound
	}
	if err := o.takesCopyOn(c.Number, c.Client, true); err != nil {
		return nil, nil, err
	}
	if o.copyIsVoid(sh, c.Client) {
		return nil, nil, errs.ReplicaNotReady
	}
	if c.Size != o.size {
		return nil, nil, errs.New(errs.InvalidParams, "NotifyOffloadSuccess",
			"the copy of key %.64q has %d bytes, the object %d; copy it again", c.Key, c.Size, o.size)
	}
	if r := o.replicaOn(c.Number); r != nil && r.endpoint.Value() == c.Endpoint {
		return nil, nil, nil
	}
	return &AddLocalDisk{
		Ref: o.name(), Number: c.Number, Endpoint: c.Endpoint,
		objectChange: sh.hold(o),
	}, nil, nil
}
