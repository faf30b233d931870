package metadata

import (
	"fmt"
	"maps"
	"slices"

	"github.com/understudy-store/understudy/metadata/slab"
	"github.com/understudy-store/understudy/segment"
)

// InSlices returns options of a store in which at most n ranges leave quarantine with each
// commit.
func InSlices(n int) Options { return Options{quarantineSlice: n} }

// InRecords returns options of a store whose records take at most n bytes.
func InRecords(n int64) Options { return Options{recordBytes: n} }

// QuarantineOf puts n ranges into the quarantine of a store's only segment, as if they had been
// allocated before. No real cluster could have that state.
func QuarantineOf(s *Store, n int) *Store {
	for _, p := range s.segments {
		for i := range n {
			until := Time(1<<40 + i*7919%n) // in no order of addresses
			s.quarantine.add(quarantined{until: until, segment: p, rng: segment.Range{Offset: uint32(2 * i), Length: 1}})
		}
	}
	return s
}

// FinishUnchecked is Finish, but ignores the digest in the last part.
func (l *Loader) FinishUnchecked() (*Store, error) {
	fresh := l.s.digest
	for _, q := range l.quarantine { // buildAllocators adds these
		if p := l.s.segments[q.Segment]; p != nil {
			fresh += quarantined{segment: p, rng: q.Range, until: q.until}.digestTerm()
		}
	}
	l.digest = fresh
	return l.Finish()
}

// ChargeFaults compares what tenants are charged with what their objects take, how
// much of SSDs is used with the objects there, and what is stored with what is found.
func (s *Store) ChargeFaults() (faults []string) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	objects, bytes, onSSD := make(map[tenantID]int64), make(map[tenantID]int64), make(map[*segmentState]int64)
	for i := range s.shards {
		for o := range s.shards[i].all {
			objects[o.tenant]++
			bytes[o.tenant] += int64(o.memoryCharge())
			for j := range o.replicaCount() {
				if r := o.replicaAt(j); r.kind == LocalDisk {
					onSSD[r.segment] += int64(o.size)
				}
			}
		}
	}
	faults = append(faults, s.storeFaults()...)
	faults = append(faults, s.sumFaults()...)
	for number, p := range s.localDisks.byNumber {
		if used := p.ssdUsed.Load(); used != onSSD[p] {
			faults = append(faults, fmt.Sprintf("SSD %d: %d bytes used, want %d", number, used, onSSD[p]))
		}
	}
	capacity := uint64(0)
	for _, p := range s.segments {
		capacity += p.Size
	}
	if capacity != s.quotas.capacity {
		faults = append(faults, fmt.Sprintf("a capacity of %d, want %d", s.quotas.capacity, capacity))
	}
	for id := range tenantID(len(s.quotas.accounts)) {
		if a := s.quotas.accounts[id]; a.objects != objects[id] || a.charged != bytes[id] {
			faults = append(faults, fmt.Sprintf("tenant %s: %d objects of %d bytes, want %d of %d", s.tenants.name(id), a.objects, a.charged, objects[id], bytes[id]))
		}
	}
	return faults
}

// sumFaults compares the sums that Stats reads with what each segment and SSD has. Nothing
// may be allocated meanwhile.
func (s *Store) sumFaults() (faults []string) {
	got, want := s.stats(), Stats{}
	for _, p := range s.segments {
		if p.closes() != 0 {
			want.Closed += p.Capacity()
			continue
		}
		want.Capacity += p.Capacity()
		want.Busy += p.Busy()
		want.Quarantined += p.quarantined.Load()
		want.LeavingSoon += p.leavingSoon.Load()
	}
	for _, p := range s.localDisks.byNumber {
		want.SSDCapacity += p.ssdCapacity.Load()
	}
	got = Stats{
		Closed: got.Closed, Capacity: got.Capacity, Busy: got.Busy, Quarantined: got.Quarantined, LeavingSoon: got.LeavingSoon,
		SSDCapacity: got.SSDCapacity,
	}
	if got != want {
		faults = append(faults, fmt.Sprintf("the figures are %+v, want %+v", got, want))
	}
	return faults
}

// storeFaults compares tables, records, and the uses of what records refer to.
func (s *Store) storeFaults() (faults []string) {
	going := int64(0)
	records, extras, clients, located := 0, 0, make(map[uint32]int), make(map[uint32]int)
	for i := range s.shards {
		sh := &s.shards[i]
		for o := range sh.all {
			records++
			clients[o.client]++
			located[o.segment]++
			if v := o.survey(); o.index == inPinned || o.index == inUnpinned {
				if goes := v.complete == v.completeMemory; goes && o.has(flagGoes) {
					going++
				} else if goes != o.has(flagGoes) && s.sweepLeft == 0 {
					faults = append(faults, fmt.Sprintf("object %v goes with its memory: %v, want %v", o.id, !goes, goes))
				}
			}
			if o.more != 0 {
				extras++
			}
			if sh.withID(o.id) != o || sh.withKey(o.hash(), o.tenant, o.key()) != o || int(o.shard()) != i {
				faults = append(faults, fmt.Sprintf("object %v is not found in shard %d", o.id, i))
			}
		}
		for _, x := range sh.extras {
			if x != nil {
				extras--
			}
		}
		if sh.byKey.Len() != sh.byID.Len() {
			faults = append(faults, fmt.Sprintf("shard %d has %d keys and %d ids", i, sh.byKey.Len(), sh.byID.Len()))
		}
	}
	if stored := s.slab.Stats().Blocks; stored != int64(records) || extras != 0 {
		faults = append(faults, fmt.Sprintf("%d records for %d objects, %d extras are missing", stored, records, extras))
	}
	if counted := s.counts.goes.Load(); counted != going && s.sweepLeft == 0 {
		faults = append(faults, fmt.Sprintf("%d objects go with their memory, want %d", counted, going))
	}
	for name, uses := range s.clients.uses {
		if name != 0 && uses != clients[uint32(name)] {
			faults = append(faults, fmt.Sprintf("client %d has %d uses, want %d", name, uses, clients[uint32(name)]))
		}
	}
	for name, uses := range s.located.uses {
		if name != 0 && uses != located[uint32(name)] {
			faults = append(faults, fmt.Sprintf("segment %d has %d uses, want %d", name, uses, located[uint32(name)]))
		}
	}
	return faults
}

// IndexFaults checks the indexes of a store that has just been loaded: each object is in the
// one that file puts it into, once, in a bucket of its tenant whose span holds its rank.
// Buckets are no larger, and no wider, than an insert makes them, and none overlap.
func (s *Store) IndexFaults() (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	found, all, indexed := make(map[slab.Ref]indexKind), 0, 0
	for kind := inUnpinned; kind < indexKinds; kind++ {
		x, count := &s.indexes[kind], 0
		last := make(map[tenantID]*bucket)
		x.buckets.Scan(func(b *bucket) bool {
			if before := last[b.tenant]; before != nil && b.from.before(before.to) || !b.from.before(b.to) || b.to.At > b.from.At+bucketWidth {
				fault("a bucket from %v to %v behind %+v", b.from, b.to, before)
			}
			if same, _ := x.tenants[b.tenant].buckets.From(b); same != b || s.buckets.at(b.self) != b || b.owner != x {
				fault("a bucket of tenant %d from %v is not found", b.tenant, b.from)
			}
			n, prev := 0, b.self
			for at := b.head; !at.ends(); at = s.object(slab.Ref(at)).next {
				o := s.object(slab.Ref(at))
				if o.prev != prev || o.tenant != b.tenant || o.index != kind || !b.holds(x.rank(o)) {
					fault("object %v of rank %v is in index %d, in a bucket from %v to %v", o.id, x.rank(o), kind, b.from, b.to)
				}
				n, prev, found[o.ref] = n+1, at, o.index
			}
			if n != b.count || n == 0 || n > maxBucket || b.tail != prev {
				fault("%d objects in a bucket of %d", n, b.count)
			}
			last[b.tenant], count = b, count+n
			return true
		})
		if count != x.count {
			fault("%d objects in index %d, want %d", count, kind, x.count)
		}
		indexed += count
	}
	for i := range s.shards {
		for o := range s.shards[i].all {
			if want := s.wantedIndex(o); found[o.ref] != want {
				fault("object %v is in index %d, want %d", o.id, found[o.ref], want)
			} else if want != inNone {
				all++
			}
		}
	}
	if all != indexed || s.shardsLoaded != 0 {
		fault("%d objects in indexes, want %d", indexed, all)
	}
	return faults
}

// wantedIndex returns the index that an object belongs to when it is filed.
func (s *Store) wantedIndex(o object) indexKind {
	switch v := o.survey(); {
	case o.transfer() != nil:
		return inTransfers
	case v.processing > 0:
		return inReservations
	case v.completeMemory == 0 || o.has(flagHardPin):
		return inNone
	case o.softPinned(s.now):
		return inPinned
	}
	return inUnpinned
}

// Prepared returns the bytes that prepared changes hold of all quotas.
func (s *Store) Prepared() (bytes int64) {
	for _, a := range s.quotas.accounts {
		bytes += a.prepared
	}
	return bytes
}

// MemoryHeld returns the bytes that records, and the shards' tables, have of the
// operating system.
func (s *Store) MemoryHeld() (bytes int64) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	bytes = s.slab.Stats().Held
	for i := range s.shards {
		bytes += int64(s.shards[i].byKey.Bytes() + s.shards[i].byID.Bytes())
	}
	return bytes
}

// Copying returns the number of objects with a note about copies to SSDs.
func (s *Store) Copying() (n int) {
	for i := range s.shards {
		n += len(s.shards[i].copying)
	}
	return n
}

// ClaimsLooked returns how many reservations and transfers mounts and unmounts have visited.
func (s *Store) ClaimsLooked() int { return s.claims.looked }

// Claimed returns at how many endpoints there are claims, and how many claims there are. It
// fails if these are not in the queue of their ends.
func (s *Store) Claimed() (endpoints, claims int) {
	for endpoint, c := range s.claims.at {
		if queued, there := s.claims.ends.From(c.end); !there || queued.of != c || c.endpoint != endpoint {
			panic("claims at " + endpoint + " are not in the queue")
		}
		claims += len(c.list)
	}
	if s.claims.ends.Len() != len(s.claims.at) {
		panic("the queue has endpoints without claims")
	}
	return len(s.claims.at), claims
}

// Idle reports whether a commit could be applied at once.
func (s *Store) Idle() bool {
	if !s.applyMu.TryLock() {
		return false
	}
	s.applyMu.Unlock()
	return true
}

// Flatten is flatten, for ranges that are given as from, to and until.
func Flatten(list [][3]uint64) (flat [][3]uint64) {
	var held []heldRange
	for _, r := range list {
		held = append(held, heldRange{r[0], r[1], Time(r[2])})
	}
	for _, r := range flatten(held) {
		flat = append(flat, [3]uint64{r.from, r.to, uint64(r.until)})
	}
	return flat
}

// BeginUnmountInSteps is BeginUnmount in two steps: look looks for leases, and until hold
// readers do not wait.
func (s *Store) BeginUnmountInSteps(numbers []segment.Number, now Time) (look func(), hold func() (leases []Claim, end func())) {
	u := s.newUnmounting(numbers, now)
	return func() { s.lookForLeases(u) }, func() ([]Claim, func()) {
		end := s.holdReaders(u)
		return s.gatherNotes(u), end
	}
}

// SegmentNumbers returns the numbers of the segments in memory, in order.
func (s *Store) SegmentNumbers() []segment.Number { return slices.Sorted(maps.Keys(s.segments)) }

// Swept returns how many shards the sweep under way has done.
func (s *Store) Swept() int { return ShardCount - s.sweepLeft }

// Records returns how many objects have a record, those included that are to be swept.
func (s *Store) Records() (n int) {
	for i := range s.shards {
		n += s.shards[i].byKey.Len()
	}
	return n
}

// LastSeq returns the sequence of the last commit.
func (s *Store) LastSeq() Seq { return s.seq }

// HoldEncoded holds a shard as a snapshot does that encodes it, until release is called.
func (s *Store) HoldEncoded(shard int) (release func()) {
	sh := &s.shards[shard]
	sh.encoded.Lock()
	sh.mu.Lock()
	return func() {
		sh.mu.Unlock()
		sh.encoded.Unlock()
	}
}

// SortSpread is sortSpread.
func SortSpread(list []uint64) { sortSpread(list) }
