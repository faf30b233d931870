package metadata

import (
	"runtime"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/segment"
)

// Inspect returns all that is known of an object, without a lease.
func (s *Store) Inspect(tenant, key string) (Object, error) {
	sh := &s.shards[shardOf(tenant, key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := s.lookup(sh, tenant, key)
	if o.none() {
		return Object{}, errs.ObjectNotFound
	}
	return s.describe(o), nil
}

// Blocks say, to people, why an object cannot be removed or evicted now. A reason is
// empty if nothing prevents it.
type Blocks struct {
	Removal  string // by a call that is not forced
	Eviction string
	Transfer bool // a promotion, a copy or a move is under way
}

// Blocks returns what blocks the removal and the eviction of an object at a time.
func (s *Store) Blocks(tenant, key string, now Time) (b Blocks) {
	sh := &s.shards[shardOf(tenant, key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := s.lookup(sh, tenant, key)
	if o.none() {
		return b
	}
	b.Transfer = o.transfer() != nil
	switch errs.KindOf(s.removable(o, false, now)) {
	case errs.ObjectHasLease:
		b.Removal = "a reader holds a lease on it, or on a member of its group"
	case errs.ReplicaNotReady:
		b.Removal = "it is being put, and its put has not ended"
	case errs.ObjectHasTask:
		b.Removal = "a copy, a move or a promotion of it is under way"
	default: // nothing does
	}
	v := o.survey()
	switch {
	case v.processing > 0:
		b.Eviction = "a replica of it is being written"
	case v.completeMemory == 0:
		b.Eviction = "it has no replica in memory"
	case o.has(flagHardPin):
		b.Eviction = "it is pinned hard"
	case b.Transfer:
		b.Eviction = "a copy, a move or a promotion of it is under way"
	case (Entry{s, sh, o}).KeptUntil(now) > now:
		b.Eviction = "it is leased, or a member of its group is"
	case o.softPinned(now):
		b.Eviction = "it is pinned softly: evicted only when nothing else can be, and if allow_evict_soft_pinned_objects is set"
	}
	return b
}

// describe needs the shard's lock.
func (s *Store) describe(o object) Object {
	d := Object{
		Tenant:    s.tenants.name(o.tenant),
		Key:       o.key(),
		ID:        o.id,
		Client:    o.writer(),
		Size:      o.size,
		Replicas:  o.descriptors(func(r replica) bool { return r.exists() }),
		Checksum:  o.checksum(),
		HardPin:   o.has(flagHardPin),
		SoftPin:   o.readable() && o.softPinned(s.Time()),
		PutStart:  o.putStart,
		LeaseEnds: o.leasedUntil(),
	}
	if x := o.extra(); x != nil {
		d.Group, d.DataType = x.group, x.dataType
	}
	return d
}

// An ObjectKey is the key of an object inside its tenant.
type ObjectKey struct {
	Tenant string
	Key    string
}

// Keys appends the keys of a shard's objects to dst, with their tenants,
// readable ones only if so asked. It holds the shard's lock while it does: between parts an
// upsert could move a key to where the visit has been.
func (s *Store) Keys(dst []ObjectKey, shard int, readable bool) []ObjectKey {
	defer runtime.Gosched() // others go first: whoever visits a shard goes on with the next
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.all {
		if !o.exists() || readable && !o.readable() {
			continue
		}
		dst = append(dst, ObjectKey{s.tenants.name(o.tenant), o.key()})
	}
	return dst
}

func (o object) checksum() *uint64 {
	x := o.extra()
	if x == nil || !x.hasChecksum {
		return nil
	}
	sum := x.checksum
	return &sum
}

// descriptors copies what clients need to know of the replicas chosen.
func (o object) descriptors(choose func(replica) bool) []Descriptor {
	list := make([]Descriptor, 0, o.replicaCount())
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); choose(r) {
			list = append(list, o.descriptor(&r))
		}
	}
	return list
}

func (o object) descriptor(r *replica) Descriptor {
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
		d.Path = o.extra().diskPath
	case LocalDisk:
		d.Client = r.segment.Client
		d.Endpoint = r.endpoint.Value()
	}
	return d
}

// A Glance is what a census counts of an object.
type Glance struct {
	Key       string
	Size      uint64 // bytes
	HardPin   bool
	SoftPin   bool
	LeaseEnds Time
}

// Census visits the objects of a shard under its lock, with the segments in which their
// replicas in memory lie. visit must be quick, and keep neither of its arguments.
func (s *Store) Census(shard int, now Time, visit func(Glance, func(yield func(segment.Number) bool))) {
	defer runtime.Gosched() // others go first: whoever visits a shard goes on with the next
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.all {
		if !o.exists() {
			continue
		}
		visit(Glance{o.key(), o.size, o.has(flagHardPin), o.softPinned(now), o.leasedUntil()}, func(yield func(segment.Number) bool) {
			for i := range o.replicaCount() {
				if r := o.replicaAt(i); r.kind == Memory && r.exists() && !yield(r.segment.Number) {
					return
				}
			}
		})
	}
}
