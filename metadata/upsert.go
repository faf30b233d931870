package metadata

import (
	"slices"

	"github.com/understudy-store/understudy/errs"
)

// An upsert is a put that replaces the object under its key in one change: the old object
// goes, as by a forced removal, and the reservation gets an id of its own. So calls that
// still mean the old object, such as a late PutEnd with its id or the report of a copy on
// an SSD, find nothing. The key is unreadable until the PutEnd.
//
// An upsert is in place if the new object has the size of the old one, and nobody may
// read or write the old one's memory any more: the reservation gets the same ranges.
// Otherwise it gets others, and the old ranges wait in quarantine.

// displaceable returns why a put must not replace the object under its key, or nil.
//
// A put that is no Upsert gets ObjectExists, unless the object is a reservation that is
// older than the discard timeout or may be replaced before (mayReplace). An upsert
// replaces every object, and fails with
//   - InvalidParams if it would change the object's group;
//   - ObjectHasTask during a copy or a move, or while a client copies the object to its
//     SSD;
//   - ReplicaBusy while the memory replicas of a put are in progress that the client's
//     calls cannot tell from this one, see alike;
//   - ObjectExists if the call is a late repeat: it has made this object;
//   - Unavailable if a node of the cluster does not know upserts.
func (s *Store) displaceable(sh *shard, put *Put, old object, now Time) error {
	term, v := s.inForce.Load(), old.survey()
	switch {
	case !put.Upsert && (v.complete > 0 || s.open(put, old, now)):
		return errs.ObjectExists
	case !put.Upsert:
	case (put.Grouped || put.Group != "") && put.Group != old.group():
		return errs.New(errs.InvalidParams, "UpsertStart", "the object is in group %.64q, which an upsert cannot change; remove the object first", old.group())
	case old.transfer() != nil || sh.copied(old.id, now):
		return errs.ObjectHasTask
	case v.processing > 0 && v.completeMemory == 0 && old.id != put.Own && s.alike(put, old, now):
		return errs.ReplicaBusy
	case v.complete > 0 && put.repeats(old):
		return errs.ObjectExists
	case v.complete > 0 && term.rules < upsertRules:
		return errs.New(errs.Unavailable, "UpsertStart", "nodes of an older version do not know upserts of readable objects; upgrade them")
	}
	return nil
}

// open reports whether the writer of an object may still be at work on it.
func (s *Store) open(put *Put, old object, now Time) bool {
	term := s.inForce.Load()
	return now.Sub(old.putStart) < term.DiscardTimeout && !put.mayReplace(old, term.term)
}

// alike reports whether a late call that ends or revokes the object under the key could
// be taken for one about the put, as the calls of its client name no ids. An upsert of
// such an object has no disk replica: a client writes files in the background, even of an
// object that it has ended, and the late PutEnd for the old file would complete the new
// one.
func (s *Store) alike(put *Put, old object, now Time) bool {
	return put.Unnumbered && old.writer() == put.Client && s.open(put, old, now)
}

// repeats reports whether the put is the same call as the one that made an object.
func (put *Put) repeats(o object) bool {
	return put.Request != 0 && o.request() == put.Request && o.writer() == put.Client
}

// succeed sets what an upsert takes over from the object that it replaces: the hard pin,
// the group, the soft pin if asked, and in place the memory.
func (s *Store) succeed(e *PutStart, put *Put, old object, now Time) {
	e.HardPin = put.HardPin || old.has(flagHardPin)
	e.Group = old.group()
	if put.KeepSoftPin {
		e.SoftPin = old.softPinLeft(now)
	}
	if e.Upsert = old.survey().complete > 0; !e.Upsert {
		return
	}
	if old.leasedUntil() > now {
		e.LeaseUntil = old.leasedUntil()
		return
	}
	if old.size != put.Size || s.inForce.Load().guardUntil > now {
		return
	}
	for i := range old.replicaCount() {
		if r := old.replicaAt(i); r.kind == Memory && r.readable() {
			if !s.pool.HasSegment(r.segment.Segment) { // it takes no new objects
				e.Placements = nil
				return
			}
			e.Placements = append(e.Placements, Placement{Segment: r.segment.Number, Range: r.rng, held: r.segment.Segment})
		}
	}
	e.InPlace = len(e.Placements) > 0
}

// taken returns the index of the placement in which an upsert in place reuses a replica
// of the old object, -1 for none.
func (e *PutStart) taken(r replica) int {
	if !e.InPlace || r.kind != Memory || !r.readable() {
		return -1
	}
	return slices.IndexFunc(e.Placements, func(at Placement) bool { return at.Segment == r.segment.Number && at.Range == r.rng })
}

// inherit appends the replicas of an upsert in place: those of the old object that are
// still there. Their ranges are busy on every node.
func (e *PutStart) inherit(replicas []replica, old object) []replica {
	for i := range e.Placements {
		e.Placements[i].left = true
	}
	if old.none() {
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
func (tx *Tx) takeOver(sh *shard, old object, e *PutStart) {
	if tx.discarding = old.survey().complete == 0; tx.discarding {
		tx.s.counts.discarded.Add(1)
	}
	// An object whose segments are all unmounted is no part of the state: nodes that have
	// swept it, or loaded a snapshot, do not know its request.
	if old.exists() && tx.discarding && tx.s.Rules() >= displacedRules && tx.s.requests.hasRoom() {
		tx.remember(old.request()) // its caller may have no answer yet
	}
	tx.s.subtractTerms(old)
	for i := range old.replicaCount() {
		if r := old.replicaAt(i); e.taken(r) >= 0 {
			tx.s.count(old, &r, -1)
			tx.s.quotas.charge(old.tenant, 0, -int64(old.size))
		} else {
			tx.dropReplica(old, &r, e.LeaseUntil)
		}
	}
	tx.discarding = false
	tx.s.unfile(sh, old)
}
