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

// OffloadSources appends to dst the owners of the segments in which an object
// has readable replicas, but for those whose SSD has a copy already. Whether
// they have an SSD is not looked at.
func (s *Store) OffloadSources(dst []OffloadSource, ref Ref) []OffloadSource {
	sh := &s.shards[ref.Shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if o := sh.byID[ref.ID]; o != nil {
		dst = o.offloadSources(dst)
	}
	return dst
}

// ShardOffloadSources is OffloadSources for all objects of a shard.
func (s *Store) ShardOffloadSources(dst []OffloadSource, shard int) []OffloadSource {
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.byKey.all() {
		dst = o.offloadSources(dst)
	}
	return dst
}

func (o *object) offloadSources(dst []OffloadSource) []OffloadSource {
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.kind == Memory && r.readable() && !o.copiedBy(r.segment.Client) {
			dst = append(dst, OffloadSource{Ref{o.shard, o.id}, r.segment.Client})
		}
	}
	return dst
}

// copiedBy reports whether the object has a replica on a client's SSD.
func (o *object) copiedBy(client segment.ClientID) bool {
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.kind == LocalDisk && r.exists() && r.segment.Client == client {
			return true
		}
	}
	return false
}

// BeginCopy returns the key and the size in bytes of the object of a source, for
// its client to copy. Eviction spares it until EndCopy, at most until a time. It
// reports false if the client cannot copy it any more, or has.
func (s *Store) BeginCopy(source OffloadSource, until Time) (key ObjectKey, size uint64, ok bool) {
	sh := &s.shards[source.Shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := sh.byID[source.ID]
	var buf [4]OffloadSource
	if o == nil || o.has(flagVictim) || !slices.Contains(o.offloadSources(buf[:0]), source) {
		return ObjectKey{}, 0, false
	}
	if sh.copying == nil {
		sh.copying = make(map[ObjectID]copying)
	}
	sh.copying[o.id] = copying{until, sh.copying[o.id].clients + 1}
	return ObjectKey{s.tenants.name(o.tenant), o.key}, o.size, true
}

// copying says until when eviction spares an object, for how many clients.
type copying struct {
	until   Time
	clients int
}

// EndCopy takes back one BeginCopy.
func (s *Store) EndCopy(key ObjectKey, id ObjectID) {
	sh := &s.shards[shardOf(key.Tenant, key.Key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if c, ok := sh.copying[id]; ok && c.clients > 1 {
		sh.copying[id] = copying{c.until, c.clients - 1}
	} else {
		delete(sh.copying, id)
	}
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

// PrepareOffloaded decides what a copy comes down to: a replica, or nothing if
// it is there already, just so. Besides it may return a channel to wait on.
//
// Errors: ObjectNotFound, also when the key was put again since; ReplicaNotReady
// for an object that the client has no readable replica of in its memory now;
// InvalidParams for a copy of another size, or when the object has MaxReplicas
// of them.
func (s *Store) PrepareOffloaded(c Offloaded) (*AddLocalDisk, <-chan struct{}, error) {
	sh := &s.shards[shardOf(c.Tenant, c.Key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o, wait := s.settled(sh, c.Tenant, c.Key)
	switch {
	case wait != nil:
		return nil, wait, nil
	case o == nil || c.ID != o.id:
		return nil, nil, errs.ObjectNotFound
	}
	if err := o.takesCopyOn(c.Number, c.Client, true); err != nil {
		return nil, nil, err
	}
	if c.Size != o.size {
		return nil, nil, errs.New(errs.InvalidParams, "NotifyOffloadSuccess",
			"the copy of key %.64q has %d bytes, the object %d; copy it again", c.Key, c.Size, o.size)
	}
	if r := o.replicaOn(c.Number); r != nil && r.endpoint.Value() == c.Endpoint {
		return nil, nil, nil
	}
	return &AddLocalDisk{
		Ref: Ref{o.shard, o.id}, Number: c.Number, Endpoint: c.Endpoint,
		objectChange: sh.hold(o),
	}, nil, nil
}
