package metadata

// LeaseCounts are figures about the leases that this node granted, ever, but
// for those of a state that a snapshot replaced.
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
		sum.Granted += sh.leases.granted
		sum.Renewed += sh.leases.renewed
		sum.Expired += sh.leases.expired
		sum.Revoked += sh.leases.revoked
		sum.Marks += sh.leases.marks
		sum.Marked += len(sh.marked)
		sh.mu.Unlock()
	}
	return sum
}

// leaseCounts are a shard's part of LeaseCounts. Guarded by the shard's lock,
// which whoever counts holds anyway.
type leaseCounts struct{ granted, renewed, expired, revoked, marks uint64 }

// grant counts that a reader gets a lease, before the object has it.
func (c *leaseCounts) grant(o *object, now Time) {
	if o.live > now {
		c.renewed++
		return
	}
	c.granted++
	if o.has(flagLeased) {
		c.expired++
	}
	o.flags |= flagLeased
}

// end counts what became of the lease of an object that goes.
func (c *leaseCounts) end(o *object, now Time) {
	switch {
	case !o.has(flagLeased):
	case o.live > now:
		c.revoked++
	default:
		c.expired++
	}
}
