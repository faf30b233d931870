package metadata

import "math/bits"

// Stats are figures about the state, for policies and people.
type Stats struct {
	Objects         int64 // under a key, reservations included
	Evictable       int64 // leased ones, reservations and those in a transfer included
	KeysEvictable   int64 // that have replicas in memory only: their keys go with these
	SoftPinned      int64
	MemoryReplicas  int64  // complete
	DiskReplicas    int64  // complete
	LocalReplicas   int64  // on clients' SSDs
	LocalDisks      int    // SSDs that clients have mounted
	SSDCapacity     uint64 // bytes of those SSDs whose capacity is known
	Segments        int
	Closed          uint64 // bytes of segments that take no new objects, which the next four leave out
	Capacity        uint64 // bytes
	Busy            uint64 // bytes of allocated ranges, quarantine included
	Quarantined     uint64 // bytes
	LeavingSoon     uint64 // bytes of quarantine that come free within the lease TTL
	Evicted         int64  // objects evicted by this node, ever
	Discarded       int64  // reservations discarded, ever
	DiskBytes       int64  // of the objects of DiskReplicas
	DiscardedBytes  int64  // bytes of discarded reservations in quarantine
	DiscardsFreed   int64  // ranges of them that left it, ever
	QuarantineExits int64  // ranges that left quarantine, ever
}

// Stats returns the figures of now.
func (s *Store) Stats() Stats {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	return s.stats()
}

// TryStats is Stats for callers that must not wait: it reports false while a commit is applied.
func (s *Store) TryStats() (stats Stats, ok bool) {
	if !s.applyMu.TryLock() {
		return Stats{}, false
	}
	defer s.applyMu.Unlock()
	return s.stats(), true
}

// Figures returns where the store stands and its figures there: no commit is
// applied between the two.
func (s *Store) Figures() (Position, Stats) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	return s.position(), s.stats()
}

// stats needs applyMu. It looks at no segment: eviction asks every 10 ms.
func (s *Store) stats() Stats {
	st := Stats{
		Objects:         s.counts.objects.Load(),
		Evictable:       int64(s.indexes[inUnpinned].count + s.indexes[inPinned].count + s.indexes[inReservations].count + s.indexes[inTransfers].count),
		KeysEvictable:   s.counts.goes.Load(),
		SoftPinned:      s.counts.softPins.Load(),
		MemoryReplicas:  s.counts.memory.Load(),
		DiskReplicas:    s.counts.disk.Load(),
		LocalReplicas:   s.counts.localDisk.Load(),
		LocalDisks:      len(s.localDisks.byNumber),
		Segments:        len(s.segments),
		Evicted:         s.counts.evicted.Load(),
		Discarded:       s.counts.discarded.Load(),
		DiskBytes:       s.counts.diskBytes.Load(),
		DiscardedBytes:  s.counts.discardedBytes.Load(),
		DiscardsFreed:   s.counts.discardsFreed.Load(),
		QuarantineExits: s.counts.released.Load(),
		SSDCapacity:     s.localDisks.capacity,
		Closed:          s.memory.all - s.memory.open,
		Capacity:        s.memory.open,
		Busy:            s.memory.busy.Load(),
		Quarantined:     s.quarantine.open,
		LeavingSoon:     s.quarantine.openSoon,
	}
	return st
}

// CutoffClasses is how many classes of size CutoffCounts tells apart.
const CutoffClasses = 13

// CutoffCounts are figures about the cutoffs that this node applied, whichever node
// decided them. They leave out a state that a snapshot has replaced.
type CutoffCounts struct {
	Cutoffs uint64
	Objects uint64 // that they evicted
	// Classes counts cutoffs by the objects they took: class i those of at most
	// 1<<i, and more than class i-1. Larger ones are in none.
	Classes [CutoffClasses]uint64
}

// CutoffCounts returns the figures of now.
func (s *Store) CutoffCounts() CutoffCounts {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	return s.cutoffs
}

// CountCutoff counts a cutoff that took n objects.
func (tx *Tx) CountCutoff(n int) {
	c := &tx.s.cutoffs
	c.Cutoffs++
	c.Objects += uint64(n)
	if class := bits.Len64(uint64(max(n, 1) - 1)); class < CutoffClasses {
		c.Classes[class]++
	}
}

// LeaseCounts are figures about the leases that this node has ever granted. They leave
// out a state that a snapshot has replaced.
type LeaseCounts struct {
	Granted uint64 // to objects without a lease, or whose last one had ended
	Renewed uint64 // leases that were live and were extended
	Expired uint64 // leases that had ended when their object was read again, or went
	Revoked uint64 // leases that were live when their object went
	Marks   uint64 // objects that were marked for the next scan, ever
	Marked  int    // objects that are marked now
}

// LeaseCounts returns the figures of about now. It takes each shard's lock for
// a moment.
func (s *Store) LeaseCounts() LeaseCounts {
	var sum LeaseCounts
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sum.Granted += sh.leases.Granted
		sum.Renewed += sh.leases.Renewed
		sum.Expired += sh.leases.Expired
		sum.Revoked += sh.leases.Revoked
		sum.Marks += sh.leases.Marks
		sum.Marked += len(sh.marked)
		sh.mu.Unlock()
	}
	return sum
}

// grant counts that a reader gets a lease, before the object has it.
func (c *LeaseCounts) grant(o object, now Time) {
	if o.live > now {
		c.Renewed++
		return
	}
	c.Granted++
	if o.has(flagLeased) {
		c.Expired++
	}
	o.flags |= flagLeased
}

// end counts what became of the lease of an object that goes.
func (c *LeaseCounts) end(o object, now Time) {
	switch {
	case !o.has(flagLeased):
	case o.live > now:
		c.Revoked++
	default:
		c.Expired++
	}
}
