package metadata

import (
	"github.com/understudy-store/understudy/metadata/slab"
	"github.com/understudy-store/understudy/segment"
)

// WalkTenant visits the objects of one tenant as Walk does, behind a rank, until visit
// returns false or it has looked at about most objects. It returns the rank through which
// it has visited everything, and how many objects it has looked at.
func (x Evictable) WalkTenant(tenant string, pinned bool, behind, until Rank, most int, visit func(Candidate) bool) (through Rank, looked int) {
	id, known := x.s.tenants.find(tenant)
	if !known {
		return until, 0
	}
	return x.index(pinned).walkTenant(id, behind, until, most, func(o object) bool { return visit(Candidate{o}) })
}

// evictable reports whether an object may be evicted. Needs the shard's lock.
func (s *Store) evictable(sh *shard, o object, now Time) bool {
	if o.has(flagHardPin|flagPending) || o.victim() || o.transfer() != nil {
		return false
	}
	v := o.survey()
	return v.processing == 0 && v.completeMemory > 0 && Entry{s, sh, o}.KeptUntil(now) <= now && s.outcomeOf(sh, o) == nil
}

// PrepareEvict decides the eviction of the object for its tenant's quota. It takes the
// members of its group along that can be evicted, those with a soft pin only if pinned is
// set. If a member is leased, or is the object to spare, it returns no drops. It does not
// fit if the group has more than most members. As after a cutoff, objects keep their replicas outside of memory.
// All drops must be submitted together.
func (c Candidate) PrepareEvict(pinned bool, spare ObjectID, most int, now Time) (drops []Drop, bytes uint64, fits bool) {
	s, refs := c.o.s, []slab.Ref{c.o.ref}
	if g := c.o.memberOf(); g != nil {
		refs = g.members
	}
	if len(refs) > most {
		return nil, 0, false
	}
	if c.isKept(now) {
		return nil, 0, true
	}
	members := make([]object, len(refs))
	for i, ref := range refs {
		members[i] = s.object(ref)
	}
	locked := make(map[uint16]bool, len(members))
	for _, o := range members { // applyMu keeps others from locking several shards
		if sh := &s.shards[o.shard()]; !locked[o.shard()] {
			locked[o.shard()] = true
			sh.mu.Lock()
			defer sh.mu.Unlock()
		}
	}
	for _, o := range members {
		if o.id == spare || o.victim() || (Entry{s, &s.shards[o.shard()], o}).KeptUntil(now) > now {
			return nil, 0, true
		}
	}
	for _, o := range members {
		if sh := &s.shards[o.shard()]; o.exists() && s.evictable(sh, o, now) && (pinned || !o.softPinned(now)) {
			drops = append(drops, s.evict(sh, o, now))
			bytes += o.memoryCharge()
		}
	}
	return drops, bytes, true
}

// isKept reports whether the object, or its group, is leased. Then nobody needs to look
// at the other members.
func (c Candidate) isKept(now Time) bool {
	e := c.Lock()
	defer e.Unlock()
	return e.KeptUntil(now) > now
}

// evict prepares the removal of an object's replicas in memory. Needs the shard's lock.
func (s *Store) evict(sh *shard, o object, now Time) Drop {
	var on []segment.Number
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.kind == Memory && r.exists() {
			on = append(on, r.segment.Number)
		}
	}
	if len(on) == o.survey().existing {
		return Drop{Removal: s.beginRemoval(sh, o, now)}
	}
	return Drop{Partial: &ClearReplicas{Ref: o.name(), Segments: on, objectChange: sh.hold(o)}}
}
