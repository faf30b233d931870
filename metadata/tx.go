package metadata

import (
	"fmt"
	"math"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/segment"
)

// A Tx is a commit being applied. Changes use its methods from Apply, and only
// there.
//
// While a follower loads a snapshot, its parts stand at different sequences.
// Each method leaves out what the part already has, so the same changes bring
// all parts to one sequence (design section 4, snapshot and tail).
type Tx struct {
	s     *Store
	seq   Seq
	term  Term
	now   Time
	fault error // the commit does not fit this state
	// discarding is set while an abandoned put is dropped.
	discarding bool
	sink       uint64                     // keeps the compiler from dropping the reads of ReadAhead
	replicas   [2]replica                 // of the put being applied
	following  []Change                   // the changes behind the one being applied
	writers    map[segment.Number][]Claim // see findWriters

	gathers  bool            // free only gathers ranges
	gathered []*segmentState // those with ranges in their freed
}

// Apply makes the changes of the next commit: first the renewals, then the object events,
// then the deletions, each in the order in which they stand. answers, if not nil,
// receives for each change what Change.Apply answered.
//
// An error means that the commit cannot belong to this state: it is not the next one, its
// time runs backwards, it needs newer rules, or it reserves memory that is taken. Then the
// state must not be trusted: a follower loads a snapshot.
func (s *Store) Apply(c *Commit, answers []error) (Position, error) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if c.Seq != s.seq+1 {
		return s.position(), fmt.Errorf("commit %d does not follow %d", c.Seq, s.seq)
	}
	if c.Time == 0 && len(c.Changes) == 0 {
		s.seq = c.Seq
		return s.position(), nil
	}
	if c.Time < s.now {
		return s.position(), fmt.Errorf("commit %d goes back in time, from %d to %d", c.Seq, s.now, c.Time)
	}
	tx := &Tx{s: s, seq: c.Seq, term: c.Term, now: c.Time}
	s.seq, s.now = c.Seq, c.Time
	tx.releaseDue(len(c.Changes) > 0)
	s.lastTime.Store(int64(c.Time))
	for stream := LeaseRenewals; stream < StreamCount; stream++ {
		for i, change := range c.Changes {
			if change.Stream() != stream || !tx.allows(change) {
				continue
			}
			tx.following = c.Changes[i+1:]
			if err := change.Apply(tx); answers != nil {
				answers[i] = err
			}
		}
	}
	if !s.loading {
		s.digests.add(s.seq, s.digest)
	}
	s.applied()
	return s.position(), tx.fault
}

// Fail records that the commit cannot belong to this state: Store.Apply returns
// an error, and a follower loads a snapshot.
func (tx *Tx) Fail(format string, args ...any) {
	if tx.fault == nil {
		tx.fault = fmt.Errorf("commit %d: %s", tx.seq, fmt.Sprintf(format, args...))
	}
}

// has reports whether the shard's copy already contains this commit.
func (tx *Tx) has(sh *shard) bool { return tx.seq <= sh.loadedThrough }

// globalHas reports whether the last part of the snapshot already contains this commit:
// the term, quarantine, requests, claims, tasks, drain jobs and quotas. It says nothing
// of segments and SSDs: these were copied first, so all later commits apply to them.
func (tx *Tx) globalHas() bool { return tx.seq <= tx.s.loadedThrough }

// onObject runs change on an object under its shard's lock and ends the
// waiting for its outcome. It answers ObjectNotFound if the object is gone.
func (tx *Tx) onObject(ref Ref, pending *Pending, change func(*shard, object)) error {
	sh := &tx.s.shards[ref.Shard]
	if tx.has(sh) {
		return nil
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := sh.withID(ref.ID)
	pending.resolveLocked(o)
	if o.none() || !o.exists() {
		return errs.ObjectNotFound
	}
	change(sh, o)
	return nil
}

// Renew sets the journaled deadline of an object's lease, unless it is later already. It
// does nothing if the object is gone.
func (tx *Tx) Renew(ref Ref, deadline Time) {
	sh := &tx.s.shards[ref.Shard]
	if tx.has(sh) {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := sh.withID(ref.ID)
	if o.none() || deadline <= o.deadline {
		return
	}
	tx.s.subtractTerms(o)
	o.stamp(deadline)
	tx.s.addTerms(o)
	tx.s.renewals++
}

// enter makes an object of a draft and files it. The shard must not have its key, which
// has that hash. It fails the commit if there is no room for the record. Room may be short
// on this node alone, by fragmentation; a node that has just loaded a snapshot has none.
// Needs the shard's lock.
func (tx *Tx) enter(sh *shard, hash uint64, d *draft) {
	s := tx.s
	o := s.store(d)
	if o.none() {
		tx.Fail("there is no room for the record of object %v", d.id)
		return
	}
	sh.enter(hash, o)
	s.join(o)
	s.counts.objects.Add(1)
	s.peers.filed(d.client, len(d.key), 1)
	s.quotas.charge(o.tenant, 1, int64(o.memoryCharge()))
	s.watch.before = 0
	for i := range o.replicaCount() {
		r := o.replicaAt(i)
		s.count(o, &r, 1)
	}
	s.addTerms(o)
	s.file(o)
}

// discard is dropSome for an abandoned put.
func (tx *Tx) discard(sh *shard, o object, unwanted func(replica) bool) {
	tx.discarding = true
	tx.dropSome(sh, o, 0, unwanted)
	tx.discarding = false
	tx.s.counts.discarded.Add(1)
}

// drop removes an object with all its replicas. Needs the shard's lock.
func (tx *Tx) drop(sh *shard, o object, leaseUntil Time) {
	tx.dropSome(sh, o, leaseUntil, func(replica) bool { return true })
}

// dropSome removes those replicas of an object that unwanted chooses, and the object if
// none is left. Needs the shard's lock.
//
// If that ends a reservation, the object becomes evictable. Its stamp is then this
// commit's time: a cutoff that was chosen before and is not applied yet must not cover
// it.
//
// It reports whether the object is still there.
func (tx *Tx) dropSome(sh *shard, o object, leaseUntil Time, unwanted func(replica) bool) bool {
	tx.s.subtractTerms(o)
	wasReserved := o.survey().processing > 0
	var kept []replica
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.exists() && !unwanted(r) {
			kept = append(kept, r)
		} else {
			sh.voidCopies(o, &r)
			tx.dropReplica(o, &r, leaseUntil)
		}
	}
	if len(kept) == 0 {
		tx.s.unfile(sh, o)
		return false
	}
	o.setReplicas(kept)
	if wasReserved && o.survey().processing == 0 {
		o.stamp(tx.now)
	}
	tx.s.addTerms(o)
	tx.s.file(o)
	return true
}

// dropReplica gives a replica's memory back, into quarantine if need be:
//   - until the end of the lease that the removal overrides;
//   - of a reservation, or of a copy under way, until its release time, as its
//     writer may be late;
//   - in a term's first lease TTL, until that is over, as the primary before
//     may have granted a lease that it could not journal.
func (tx *Tx) dropReplica(o object, r *replica, leaseUntil Time) {
	tx.s.count(o, r, -1)
	if r.kind != Memory {
		return
	}
	if o.has(flagPending) { // keep the quota for the put that replaces the object
		o.home().change(o).charge.raise()
	}
	tx.s.quotas.charge(o.tenant, 0, -int64(o.size))
	if r.segment.Gone() {
		return
	}
	term := tx.s.inForce.Load()
	until := max(leaseUntil, term.guardUntil)
	until = max(until, o.writtenUntil(r, term.ReleaseTimeout))
	tx.release(r.segment, r.rng, until)
}

// writtenUntil returns until when somebody may write to a replica, 0 for nobody.
func (o object) writtenUntil(r *replica, release time.Duration) Time {
	switch r.status {
	case Processing:
		return o.putStart.Add(release)
	case arriving:
		return o.transfer().started.Add(release)
	case Complete:
	}
	return 0
}

// release frees a range at once if until has come, and puts it into quarantine otherwise.
func (tx *Tx) release(p *segmentState, r segment.Range, until Time) {
	if tx.globalHas() {
		return
	}
	if until <= tx.now {
		tx.free(p, r)
		return
	}
	q := quarantined{until: until, segment: p, rng: r, discarded: tx.discarding}
	if q.discarded {
		tx.s.counts.discardedBytes.Add(int64(q.bytes()))
	}
	tx.s.quarantine.add(q)
	tx.s.addTerm(p, q.digestTerm())
}

// free gives a range back to its allocator. While loading there is nothing to
// do: the allocators are built when all parts have come together.
func (tx *Tx) free(p *segmentState, r segment.Range) {
	if tx.s.loading {
		return
	}
	if tx.gathers {
		if len(p.freed) == 0 {
			tx.gathered = append(tx.gathered, p)
		}
		p.freed = append(p.freed, r)
		return
	}
	if err := p.Free(r); err != nil {
		tx.Fail("%v", err)
	}
}

// gather has free only gather ranges until the function that it returns frees those of each
// segment in their order: all together, as segment.FreeLots waits less for memory. Nothing
// may be reserved meanwhile.
func (tx *Tx) gather() (freeAll func()) {
	tx.gathers = true
	return func() {
		lots := make([]segment.Lot, len(tx.gathered))
		for i, p := range tx.gathered {
			lots[i] = segment.Lot{Segment: p.Segment, Ranges: p.freed}
			p.freed = p.freed[:0]
		}
		tx.gathers, tx.gathered = false, nil
		if err := segment.FreeLots(lots); err != nil {
			tx.Fail("%v", err)
		}
	}
}

// keepQuarantine extends the quarantine of all ranges that would leave before a time to
// that time.
func (tx *Tx) keepQuarantine(until Time) {
	var early []quarantined
	for {
		q, ok := tx.s.quarantine.popDue(until - 1)
		if !ok {
			break
		}
		early = append(early, q)
	}
	for _, q := range early {
		tx.s.addTerm(q.segment, -q.digestTerm())
		q.until = until
		tx.s.addTerm(q.segment, q.digestTerm())
		tx.s.quarantine.add(q)
	}
	tx.s.releasing.Store(tx.s.quarantine.due(tx.now))
}

// releaseDue frees ranges whose quarantine has ended: the oldest first, and as many
// on every node. A commit without changes frees none, as it has no record: a
// node that reads the records alone does not see it.
func (tx *Tx) releaseDue(changes bool) {
	if tx.globalHas() {
		return
	}
	left := tx.s.quarantine.slices(tx.now)
	switch rules := tx.s.Rules(); {
	case rules < sliceRules:
		left = math.MaxInt
	case rules >= recordRules && !changes:
		left = 0
	case rules < smallSliceRules:
		left = tx.s.quarantine.pace()
	}
	for ; left > 0; left-- {
		q, ok := tx.s.quarantine.popDue(tx.now)
		if !ok {
			break
		}
		if q.discarded {
			tx.s.counts.discardedBytes.Add(-int64(q.bytes()))
			tx.s.counts.discardsFreed.Add(1)
		}
		tx.s.addTerm(q.segment, -q.digestTerm())
		tx.s.counts.released.Add(1)
		tx.free(q.segment, q.rng)
	}
	tx.s.releasing.Store(tx.s.quarantine.due(tx.now))
	tx.s.quarantine.moveHorizon(tx.now + tx.s.inForce.Load().hold)
	tx.s.digest += tx.s.requests.expire(tx.now)
	tx.s.endClaims(tx.now)
}

// unfile takes an object out of tables and indexes, and frees its record. Needs the
// shard's lock.
func (s *Store) unfile(sh *shard, o object) {
	sh.strike(o)
	delete(sh.copying, o.id)
	s.unindex(o)
	s.leave(o)
	sh.leases.end(o, s.now)
	s.report(o, 0)
	s.counts.objects.Add(-1)
	s.peers.filed(o.writer(), o.keyLength(), -1)
	s.quotas.charge(o.tenant, -1, 0)
	s.forget(o)
}

// file puts an object into the index it belongs to now, and out of the one it was in.
// Whatever is in an index may be chosen from it as soon as its stamp allows:
//
//	transfers     a copy or a move is under way
//	reservations  some replica is in progress
//	pinned        complete in memory, softly pinned when last looked at
//	unpinned      complete in memory
//	none          pinned hard, or without a memory replica
func (s *Store) file(o object) {
	s.unindex(o)
	v := o.survey()
	goes := v.complete == v.completeMemory
	switch {
	case o.transfer() != nil:
		s.indexes[inTransfers].insert(o)
	case v.processing > 0:
		s.indexes[inReservations].insert(o)
	case v.completeMemory == 0 || o.has(flagHardPin):
	case o.softPinned(s.now):
		s.indexes[inPinned].insert(o)
		s.pinEnds.Set(pinEnd{o.soft(), o.id, o.ref})
		s.counts.softPins.Add(1)
		s.setGoes(o, goes)
	default:
		s.indexes[inUnpinned].insert(o)
		s.setGoes(o, goes)
	}
}

// setGoes records whether an eviction of the object takes its key as well.
func (s *Store) setGoes(o object, goes bool) {
	switch {
	case goes == o.has(flagGoes):
	case goes:
		o.flags |= flagGoes
		s.counts.goes.Add(1)
	default:
		o.flags &^= flagGoes
		s.counts.goes.Add(-1)
	}
}

func (s *Store) unindex(o object) {
	if o.index == inPinned {
		s.pinEnds.Delete(pinEnd{at: o.soft(), id: o.id})
		s.counts.softPins.Add(-1)
	}
	s.setGoes(o, false)
	s.unlink(o)
}

// count keeps the figures up to date when a replica comes (+1) or goes (-1).
func (s *Store) count(o object, r *replica, by int64) {
	switch {
	case r.status != Complete:
	case r.kind == Memory:
		s.counts.memory.Add(by)
	case r.kind == Disk:
		s.counts.disk.Add(by)
		s.counts.diskBytes.Add(by * int64(o.size))
	case r.kind == LocalDisk:
		s.counts.localDisk.Add(by)
		r.segment.ssdUsed.Add(by * int64(o.size))
	}
}
