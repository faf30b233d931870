package metadata

import (
	"slices"

	"github.com/understudy-store/understudy/errs"
)

// An upsert is a put that replaces what is under its key, in one change: the object
// before goes, as by a forced removal, and the reservation comes with an id of its
// own. So whatever still names the object before, such as a late PutEnd with its id
// or the report of a copy on an SSD, finds nothing. The key is unreadable until the
// PutEnd.
//
// An upsert is in place if the new object has the size of the one before and nobody
// may read or write that one's memory any more: the reservation gets the very ranges.
// Else it gets others, and those before wait in quarantine.

// displaceable returns why a put must not replace the object under its key, or nil.
//
// For a put that is no Upsert that is ObjectExists, unless the object is a
// reservation older than the discard timeout, or as in Put.Unnumbered. An upsert
// replaces every object, and fails with
//   - InvalidParams if it would change the object's group;
//   - ObjectHasTask during a copy or a move, or while a client copies the object to
//     its SSD;
//   - ReplicaBusy while a put of the same client is in progress that an Unnumbered
//     PutEnd could not be told from;
//   - ObjectExists if the call is an old one that comes again: it has made this object;
//   - Unavailable if a node of the cluster does not know upserts.
func (s *Store) displaceable(sh *shard, put *Put, old *object, now Time) error {
	term, v := s.inForce.Load(), old.survey()
	open := now.Sub(old.putStart) < term.DiscardTimeout && !put.mayReplace(old, term.term)
	switch {
	case !put.Upsert && (v.complete > 0 || open):
		return errs.ObjectExists
	case !put.Upsert:
	case put.Group != "" && put.Group != old.group():
		return errs.New(errs.InvalidParams, "UpsertStart", "the object is in group %.64q, which an upsert cannot change; remove the object first", old.group())
	case old.transfer() != nil || sh.copying[old.id].until > now:
		return errs.ObjectHasTask
	case put.Unnumbered && v.processing > 0 && old.client == put.Client && old.id != put.Own && open:
		return errs.ReplicaBusy
	case v.complete > 0 && put.repeats(old):
		return errs.ObjectExists
	case v.complete > 0 && term.rules < upsertRules:
		return errs.New(errs.Unavailable, "UpsertStart", "nodes of an older version do not know upserts of readable objects; upgrade them")
	}
	return nil
}

// repeats reports whether the put is the same call as the one that made an object.
func (put *Put) repeats(o *object) bool {
	return put.Request != 0 && o.request == put.Request && o.client == put.Client
}

// succeed says what an upsert takes over from the object that it replaces. The hard
// pin stays, and the group.
func (s *Store) succeed(e *PutStart, put *Put, old *object, now Time) {
	e.HardPin = put.HardPin || old.has(flagHardPin)
	e.Group = old.group()
	if put.KeepSoftPin {
		e.SoftPin = old.softPinLeft(now)
	}
	if e.Upsert = old.survey().complete > 0; !e.Upsert {
		return
	}
	if old.live > now {
		e.LeaseUntil = old.live
		return
	}
	if old.size != put.Size || s.inForce.Load().guardUntil > now {
		return
	}
	for i := range old.replicaCount() {
		if r := old.replicaAt(i); r.kind == Memory && r.readable() {
			if !s.pool.Has(r.segment.Name) { // it takes no new objects
				e.Placements = nil
				return
			}
			e.Placements = append(e.Placements, Placement{Segment: r.segment.Number, Range: r.rng, held: r.segment.Segment})
		}
	}
	e.InPlace = len(e.Placements) > 0
}

// taken returns which placement of an upsert in place is a replica of the object
// before it, -1 for none.
func (e *PutStart) taken(r *replica) int {
	if !e.InPlace || r.kind != Memory || !r.readable() {
		return -1
	}
	return slices.IndexFunc(e.Placements, func(at Placement) bool { return at.Segment == r.segment.Number && at.Range == r.rng })
}

// inherit appends the replicas of an upsert in place: those of the object before it
// that are still there. Their ranges are busy on every node.
func (e *PutStart) inherit(replicas []replica, old *object) []replica {
	for i := range e.Placements {
		e.Placements[i].left = true
	}
	if old == nil {
		return replicas
	}
	for i := range old.replicaCount() {
		r := old.replicaAt(i)
		if at := e.taken(r); at >= 0 {
			e.Placements[at].left = false
			replicas = append(replicas, replica{segment: r.segment, rng: r.rng, kind: Memory, status: Processing})
		}
	}
	return replicas
}

// takeOver removes the object that a put replaces. Needs the shard's lock.
func (tx *Tx) takeOver(sh *shard, old *object, e *PutStart) {
	tx.s.subtractTerms(old)
	for i := range old.replicaCount() {
		if r := old.replicaAt(i); e.taken(r) >= 0 {
			tx.s.count(old, r, -1)
		} else {
			tx.dropReplica(old, r, e.LeaseUntil)
		}
	}
	tx.s.unfile(sh, old)
}
