package metadata

import (
	"slices"
	"sync/atomic"

	"github.com/understudy-store/understudy/metadata/slab"
)

// A group is the objects of one tenant that were put with the same group id. They are
// leased together, and evicted together:
//
//   - The lease of each member lasts until the latest lease of all of them has ended.
//     Nothing is journaled for that: it follows from the leases of the objects.
//   - One cutoff evicts all members that can be evicted, or none. So a pass takes a group
//     only if the journaled end of every member's lease lies under the cutoff. If only some
//     members' do, the pass journals the later end for these, as near misses.
//
// Members that cannot be evicted stay, as with the C++ master: those pinned hard, or
// softly in a pass that spares soft pins, those without a readable replica in memory, and
// those that are being copied, moved or put.
//
// A group is no part of the state; it is there while it has members. The number of
// members is bounded, because eviction looks at all of them, or takes them, while no
// commit is applied. Objects that are put beyond it form another group of the same name.
type group struct {
	key     groupKey
	members []slab.Ref // Store.applyMu

	// live is the latest end of a member's lease, as granted. It may outlast the member.
	live atomic.Int64
	// evicting says that a pass decides about the members, or has made them victims:
	// they grant no lease before its outcome. Primary only.
	evicting atomic.Bool
}

// maxMembers bounds the members of a group. One eviction for a tenant can take as many.
const maxMembers = 1024

type groupKey struct {
	tenant tenantID
	name   string
}

// join makes an object a member of its group, if it has one. Needs applyMu and the
// lock of the object's shard.
func (s *Store) join(o object) {
	name := o.group()
	if name == "" {
		return
	}
	key := groupKey{o.tenant, name}
	parts := s.groups[key]
	if n := len(parts); n == 0 || len(parts[n-1].members) == maxMembers {
		parts = append(parts, &group{key: key})
		s.groups[key] = parts
	}
	g := parts[len(parts)-1]
	x := o.extra()
	x.memberOf, x.at = g, len(g.members)
	g.members = append(g.members, o.ref)
	g.extend(o.live)
}

// leave takes an object out of its group, if it is in one. Needs the same locks.
func (s *Store) leave(o object) {
	g := o.memberOf()
	if g == nil {
		return
	}
	x, last := o.extra(), len(g.members)-1
	g.members[x.at] = g.members[last]
	s.object(g.members[x.at]).extra().at = x.at
	if g.members = g.members[:last]; last == 0 {
		s.dissolve(g)
	}
	x.memberOf = nil
}

func (s *Store) dissolve(g *group) {
	parts := slices.DeleteFunc(s.groups[g.key], func(other *group) bool { return other == g })
	if s.groups[g.key] = parts; len(parts) == 0 {
		delete(s.groups, g.key)
	}
}

// memberOf returns the group that the object is in, nil for none.
func (o object) memberOf() *group {
	if x := o.extra(); x != nil {
		return x.memberOf
	}
	return nil
}

// extend notes the end of a member's lease.
func (g *group) extend(end Time) {
	for {
		live := g.live.Load()
		if int64(end) <= live || g.live.CompareAndSwap(live, int64(end)) {
			return
		}
	}
}

// setLive sets the end of the object's lease as granted.
func (o object) setLive(end Time) {
	o.live = end
	if g := o.memberOf(); g != nil {
		g.extend(end)
	}
}

// leasedUntil returns the end of the lease as granted, to readers of the object or of
// another member of its group.
func (o object) leasedUntil() Time {
	if g := o.memberOf(); g != nil {
		return max(o.live, Time(g.live.Load()))
	}
	return o.live
}

// victim reports whether an eviction of the object waits for its outcome.
func (o object) victim() bool {
	g := o.memberOf()
	return o.has(flagVictim) || g != nil && g.evicting.Load()
}

// regroup resets the leases of groups to those that are journaled for their members.
func (s *Store) regroup() {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	for _, parts := range s.groups {
		for _, g := range parts {
			live := Time(0)
			for _, ref := range g.members {
				live = max(live, s.object(ref).deadline)
			}
			g.live.Store(int64(live))
		}
	}
}

// decide returns the time until which eviction must spare the members of a group. If that
// is not beyond a time, they grant no lease from now on, until Release.
func (v *Victims) decide(g *group, beyond, now Time) Time {
	kept, decided := v.groups[g]
	if decided {
		return kept
	}
	g.evicting.Store(true)
	for _, ref := range g.members {
		o := v.s.object(ref)
		// A reader who came before evicting was set has its lease when it unlocks.
		e := Candidate{o}.Lock()
		kept = max(kept, e.KeptUntil(now))
		if o.deadline < o.live && o.live == beyond && !o.has(flagHardPin) {
			// Its renewal may be on its way into the journal, ahead of the cutoff. Then
			// it would be as old as the last victim, and fall under the cutoff or not.
			kept = max(kept, beyond+1)
		}
		e.Unlock()
	}
	if kept > beyond {
		g.evicting.Store(false)
	}
	if v.groups == nil {
		v.groups = make(map[*group]Time)
	}
	v.groups[g] = kept
	return kept
}
