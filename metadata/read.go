package metadata

import (
	"time"

	"github.com/understudy-store/understudy/errs"
)

// A ReplicaList answers a reader: where the bytes are, and for how long they
// will stay there.
type ReplicaList struct {
	ID       ObjectID
	Size     uint64        // bytes
	Replicas []Descriptor  // readable ones only
	LeaseTTL time.Duration // from before the call was sent
	Checksum *uint64       // as given at PutEnd, nil for none
}

// GetReplicaList returns the readable replicas of an object and extends its
// lease: in memory, with a mark for the next scan, and no more.
//
// If a mutation of the object waits for its commit, it returns a channel that
// is closed with the outcome: the caller waits and asks again. Errors:
// ObjectNotFound, ReplicaNotReady.
func (s *Store) GetReplicaList(tenant, key string, now Time) (ReplicaList, <-chan struct{}, error) {
	sh := &s.shards[shardOf(tenant, key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := s.lookup(sh, tenant, key)
	if o == nil {
		return ReplicaList{}, nil, errs.ObjectNotFound
	}
	if wait := s.outcomeOf(sh, o); wait != nil {
		return ReplicaList{}, wait, nil
	}
	if !o.readable() {
		return ReplicaList{}, nil, errs.ReplicaNotReady
	}
	ttl := s.touch(sh, o, now)
	return ReplicaList{
		ID:       o.id,
		Size:     o.size,
		Replicas: o.descriptors(func(r *replica) bool { return r.readable() }),
		LeaseTTL: ttl,
		Checksum: o.checksum(),
	}, nil, nil
}

// Exists reports whether an object has a readable replica. If so it extends
// the lease, unless a mutation of the object waits for its commit.
func (s *Store) Exists(tenant, key string, now Time) bool {
	sh := &s.shards[shardOf(tenant, key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := s.lookup(sh, tenant, key)
	if o == nil || !o.readable() {
		return false
	}
	if !o.has(flagPending | flagVictim) {
		s.touch(sh, o, now)
	}
	return true
}

// Inspect returns all that is known of an object, without a lease.
func (s *Store) Inspect(tenant, key string) (Object, error) {
	sh := &s.shards[shardOf(tenant, key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := s.lookup(sh, tenant, key)
	if o == nil {
		return Object{}, errs.ObjectNotFound
	}
	return s.describe(o), nil
}

// describe needs the shard's lock.
func (s *Store) describe(o *object) Object {
	d := Object{
		Tenant:    s.tenants.name(o.tenant),
		Key:       o.key,
		ID:        o.id,
		Client:    o.client,
		Size:      o.size,
		Replicas:  o.descriptors(func(r *replica) bool { return r.exists() }),
		Checksum:  o.checksum(),
		HardPin:   o.has(flagHardPin),
		SoftPin:   o.readable() && o.softPinned(s.Time()),
		PutStart:  o.putStart,
		LeaseEnds: o.live,
	}
	if o.extra != nil {
		d.Group, d.DataType = o.extra.group, o.extra.dataType
	}
	return d
}

// Keys appends the keys of a shard's objects to dst, with their tenants,
// readable ones only if so asked. It holds the shard's lock while it does.
func (s *Store) Keys(dst []ObjectKey, shard int, readable bool) []ObjectKey {
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.byKey.all() {
		if !o.exists() || readable && !o.readable() {
			continue
		}
		dst = append(dst, ObjectKey{s.tenants.name(o.tenant), o.key})
	}
	return dst
}

// An ObjectKey is the key of an object inside its tenant.
type ObjectKey struct {
	Tenant string
	Key    string
}

// lookup returns the object under a key, nil if there is none. Needs the
// shard's lock.
func (s *Store) lookup(sh *shard, tenant, key string) *object {
	id, ok := s.tenants.find(tenant)
	if !ok {
		return nil
	}
	o := sh.byKey.get(s.hash.of(id, key), id, key)
	if o == nil || !o.exists() {
		return nil
	}
	return o
}

// outcomeOf returns what to wait for before the object can be read, or nil.
// Needs the shard's lock.
func (s *Store) outcomeOf(sh *shard, o *object) <-chan struct{} {
	if !o.has(flagPending | flagVictim) {
		return nil
	}
	if o.has(flagVictim) {
		if pass := s.pass.Load(); pass != nil {
			return pass.outcome
		}
		return nil
	}
	return sh.pending[objectKey{o.tenant, o.key}].outcome()
}

// touch extends an object's lease and marks it for the next scan. It returns
// the TTL to tell the reader. Needs the shard's lock.
func (s *Store) touch(sh *shard, o *object, now Time) time.Duration {
	term := s.inForce.Load()
	if end := now + term.hold; end > o.live {
		sh.leases.extend(o, now)
		o.live = end
		if !o.has(flagDirty) {
			sh.leases.marked++
			o.flags |= flagDirty
			sh.dirty = append(sh.dirty, o)
		}
		if s.opts.OnCritical != nil && s.critical(o.deadline, now) {
			sh.leases.critical++
			s.opts.OnCritical()
		}
	}
	return term.LeaseTTL
}

// critical reports whether a renewal cannot wait for the next scan: a failover
// before it would find a lease ended, or cleaned up, that a reader holds.
func (s *Store) critical(journaled, now Time) bool {
	if journaled <= now {
		return s.opts.CriticalExpired
	}
	return journaled.Sub(now) <= s.opts.CriticalWindow
}

func (o *object) checksum() *uint64 {
	if o.extra == nil || !o.extra.hasChecksum {
		return nil
	}
	sum := o.extra.checksum
	return &sum
}

// descriptors copies what clients need to know of the replicas chosen.
func (o *object) descriptors(choose func(*replica) bool) []Descriptor {
	list := make([]Descriptor, 0, o.replicaCount())
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); choose(r) {
			list = append(list, o.descriptor(r))
		}
	}
	return list
}

func (o *object) descriptor(r *replica) Descriptor {
	d := Descriptor{Kind: r.kind, Status: r.status, Size: o.size}
	switch r.kind {
	case Memory:
		d.Segment = r.segment.Name
		d.Endpoint = r.segment.Endpoint
		d.Protocol = r.segment.Protocol
		d.Address = r.segment.Address(r.rng)
	case Disk:
		d.Path = o.extra.diskPath
	case LocalDisk:
		d.Client = r.segment.Client
		d.Endpoint = r.endpoint.Value()
	}
	return d
}
