package metadata

import "github.com/understudy-store/understudy/errs"

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
		LeaseEnds: o.leasedUntil(),
	}
	if o.extra != nil {
		d.Group, d.DataType = o.extra.group, o.extra.dataType
	}
	return d
}

// An ObjectKey is the key of an object inside its tenant.
type ObjectKey struct {
	Tenant string
	Key    string
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
	if r.status == arriving {
		d.Status = Processing
	}
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
