package metadata

import "github.com/understudy-store/understudy/segment"

// A Spare is an object whose memory its tenant can give up.
type Spare struct {
	Ref
	KeptUntil  Time   // the end of its lease
	Bytes      uint64 // that its tenant is charged for it
	SoftPinned bool
}

// Spares appends to dst the objects of a tenant in a shard that may be evicted at a
// time: those without a lease, a hard pin, or a change or a replica under way.
func (s *Store) Spares(dst []Spare, tenant string, shard int, now Time) []Spare {
	id, known := s.tenants.find(tenant)
	if !known {
		return dst
	}
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.byKey.all() {
		if o.tenant != id || !s.spare(sh, o, now) {
			continue
		}
		dst = append(dst, Spare{Ref{o.shard, o.id}, Entry{s, sh, o}.KeptUntil(now), o.memoryCharge(), o.softPinned(now)})
	}
	return dst
}

// spare reports whether an object may be evicted. Needs the shard's lock.
func (s *Store) spare(sh *shard, o *object, now Time) bool {
	if o.has(flagHardPin|flagPending|flagVictim) || o.transfer() != nil {
		return false
	}
	v := o.survey()
	return v.processing == 0 && v.completeMemory > 0 && Entry{s, sh, o}.KeptUntil(now) <= now && s.outcomeOf(sh, o) == nil
}

// PrepareEvict decides the eviction of one object, on behalf of its tenant. There is
// nothing to change if it may not be evicted any more. As when a cutoff takes it, it
// keeps its replicas outside of memory.
func (s *Store) PrepareEvict(ref Ref, now Time) Drop {
	sh := &s.shards[ref.Shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := sh.byID[ref.ID]
	if o == nil || !o.exists() || !s.spare(sh, o, now) || sh.pending[objectKey{o.tenant, o.key}] != nil {
		return Drop{}
	}
	var on []segment.Number
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.kind == Memory && r.exists() {
			on = append(on, r.segment.Number)
		}
	}
	if len(on) == o.survey().existing {
		return Drop{Removal: s.beginRemoval(sh, o, now)}
	}
	return Drop{Partial: &ClearReplicas{Ref: ref, Segments: on, objectChange: sh.hold(o)}}
}
