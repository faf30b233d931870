package metadata

import "github.com/understudy-store/understudy/segment"

// A TenantCandidate is an object that may be evicted for its tenant's quota.
type TenantCandidate struct {
	Ref
	KeptUntil  Time   // the end of its lease
	Bytes      uint64 // that its tenant is charged for it
	SoftPinned bool
}

// TenantCandidates appends to dst the objects of a tenant in a shard that may be
// evicted now: those without a lease, a hard pin, or a change or a replica under way.
func (s *Store) TenantCandidates(dst []TenantCandidate, tenant string, shard int, now Time) []TenantCandidate {
	id, known := s.tenants.find(tenant)
	if !known {
		return dst
	}
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.byKey.all() {
		if o.tenant == id && s.evictable(sh, o, now) {
			dst = append(dst, TenantCandidate{Ref{o.shard, o.id}, Entry{s, sh, o}.KeptUntil(now), o.memoryCharge(), o.softPinned(now)})
		}
	}
	return dst
}

// evictable reports whether an object may be evicted. Needs the shard's lock.
func (s *Store) evictable(sh *shard, o *object, now Time) bool {
	if o.has(flagHardPin|flagPending) || o.victim() || o.transfer() != nil {
		return false
	}
	v := o.survey()
	return v.processing == 0 && v.completeMemory > 0 && Entry{s, sh, o}.KeptUntil(now) <= now && s.outcomeOf(sh, o) == nil
}

// PrepareEvict decides the eviction of an object for its tenant's quota, together
// with its group: all members that can be evicted, softly pinned ones if pinned is
// set, or none. It decides nothing if the object may not be evicted any more, a
// member is leased, or there are more than most members. As when a cutoff takes
// them, objects keep their replicas outside of memory. All drops must be submitted
// at once.
func (s *Store) PrepareEvict(ref Ref, pinned bool, most int, now Time) (drops []Drop, bytes uint64) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	o := s.shards[ref.Shard].byID[ref.ID]
	if o == nil {
		return nil, 0
	}
	members := []*object{o}
	if g := o.memberOf(); g != nil {
		members = g.members
	}
	if len(members) > most {
		return nil, 0
	}
	locked := make(map[uint16]bool, len(members))
	for _, o := range members { // applyMu keeps others from locking several shards
		if sh := &s.shards[o.shard]; !locked[o.shard] {
			locked[o.shard] = true
			sh.mu.Lock()
			defer sh.mu.Unlock()
		}
	}
	for _, o := range members {
		if o.victim() || (Entry{s, &s.shards[o.shard], o}).KeptUntil(now) > now {
			return nil, 0
		}
	}
	for _, o := range members {
		if sh := &s.shards[o.shard]; o.exists() && s.evictable(sh, o, now) && (pinned || !o.softPinned(now)) {
			drops = append(drops, s.evict(sh, o, now))
			bytes += o.memoryCharge()
		}
	}
	return drops, bytes
}

// evict marks an object whose replicas in memory go. Needs the shard's lock.
func (s *Store) evict(sh *shard, o *object, now Time) Drop {
	var on []segment.Number
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.kind == Memory && r.exists() {
			on = append(on, r.segment.Number)
		}
	}
	if len(on) == o.survey().existing {
		return Drop{Removal: s.beginRemoval(sh, o, now)}
	}
	return Drop{Partial: &ClearReplicas{Ref: Ref{o.shard, o.id}, Segments: on, objectChange: sh.hold(o)}}
}
