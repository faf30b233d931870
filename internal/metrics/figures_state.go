package metrics

// state shows what the store knows, on any node that has a state.
func (s *scrape) state(to sink) {
	st := s.stats
	gauge(to, "master_allocated_bytes", "Bytes of memory that are taken in segments that take new objects, rounding and quarantine included.", st.Busy)
	gauge(to, "master_total_capacity_bytes", "Bytes of memory that can be taken in all mounted segments that take new objects.", st.Capacity)
	for name, u := range s.segments {
		gaugeBy(to, "segment_allocated_bytes", "segment", name, "Bytes that are taken in the segments of a name; the smallest of more than 1,000 names are summed up as (others).", u.busy)
		gaugeBy(to, "segment_total_capacity_bytes", "segment", name, "Bytes that can be taken in the segments of a name, as above.", u.capacity)
	}
	gauge(to, "master_key_count", "Keys with an object, reservations included.", st.Objects)
	gauge(to, "understudy_key_bytes", "About what keys and their objects take of this process's memory, as max-key-bytes counts.", s.keyBytes)
	gauge(to, "master_soft_pin_key_count", "Keys that are softly pinned.", st.SoftPinned)
	gauge(to, "mem_cache_nums_", "Complete replicas in memory.", st.MemoryReplicas)
	gauge(to, "file_cache_nums_", "Complete replicas on disk.", st.DiskReplicas)
	gauge(to, "master_allocated_file_size_bytes", "Bytes of the objects of file_cache_nums_.", st.DiskBytes)
	gauge(to, "master_total_file_capacity_bytes", "Bytes that files may have: quota_bytes, if that is set, and the capacity of clients' SSDs.", s.fileCapacity+st.SSDCapacity)
	gauge(to, "understudy_local_disk_replicas", "Replicas on clients' own SSDs.", st.LocalReplicas)
	gauge(to, "understudy_local_disks", "Clients' SSDs that are mounted.", st.LocalDisks)
	counter(to, "master_put_start_discard_cnt",
		"Abandoned reservations that were discarded, by a cleanup or by another put of the key.", st.Discarded)
	gauge(to, "master_put_start_discarded_staging_size",
		"Bytes of memory of discarded reservations that are given to nobody yet.", st.DiscardedBytes)
	counter(to, "master_put_start_release_cnt", "Ranges of memory of discarded reservations that came free.", st.DiscardsFreed)
	gauge(to, "understudy_closed_bytes",
		"Bytes of segments that take no new objects and are unmounted soon; master_total_capacity_bytes leaves them out.", st.Closed)
	gauge(to, "understudy_segments", "Mounted segments.", st.Segments)
	gauge(to, "understudy_evictable_objects", "Objects in memory without a hard pin, leased ones included.", st.Evictable)
	gauge(to, "understudy_quarantined_bytes",
		"Bytes that were freed and are given to nobody yet, because somebody may still read or write there.", st.Quarantined)
	gauge(to, "understudy_quarantine_leaving_soon_bytes",
		"Of understudy_quarantined_bytes, what comes free within a lease TTL.", st.LeavingSoon)
	counter(to, "understudy_quarantine_exits_total", "Ranges of memory that left quarantine.", st.QuarantineExits)
}

// leaseCounts shows how many leases this node granted, and how they ended. etcd's lessor has
// the same four counters.
func (s *scrape) leaseCounts(to sink) {
	l := s.leases
	counter(to, "understudy_leases_granted_total", "Leases that reads gave to objects without one, or whose last one had ended.", l.Granted)
	counter(to, "understudy_leases_renewed_total", "Live leases that reads extended.", l.Renewed)
	counter(to, "understudy_leases_expired_total",
		"Leases that ended by themselves; counted when the object is read again, or goes.", l.Expired)
	counter(to, "understudy_leases_revoked_total", "Leases that were live when their object went, by force or with its segment.", l.Revoked)
	gauge(to, "understudy_dirty_marks", "Objects that were renewed and wait for a scan to journal it.", l.Marked)
	counter(to, "understudy_renewals_critical_total",
		"Reads that extended a lease too late for the next scan, so that one was asked for at once.", s.renewals.Critical.Load())
	counter(to, "understudy_renewals_marked_total", "Marks of renewed objects for a scan.", l.Marks)
}

// renewalCounts shows how lease renewals reached the journal and the standbys.
func (s *scrape) renewalCounts(to sink) {
	r := s.renewals
	counter(to, "understudy_renewals_committed_total", "Lease renewals in commits of this node.", r.Committed.Load())
	counter(to, "understudy_renewal_scans_critical_total", "Scans that a critical renewal asked for.", r.CriticalScans.Load())
	counter(to, "understudy_renewals_applied_total", "Lease renewals that this node applied as a standby.", r.Applied.Load())
	counter(to, "understudy_renewal_scans_total", "Scans for renewed leases.", r.Scans.Load())
	counter(to, "understudy_renewal_scans_failed_total",
		"Scans that could not commit all they found; the next one takes it again.", r.Failed.Load())
	counter(to, "understudy_full_syncs_total", "Comparisons of this standby's leases with those in etcd.", r.Synced.Load())
	counter(to, "understudy_lease_differences_total",
		"Renewals in etcd that a full sync did not find in this standby's state; always 0 without a defect.", r.Differed.Load())
}

// evictionCounts shows what a primary evicted. It evicts from memory only, so the C++
// master's totals and its figures for memory are the same.
func (s *scrape) evictionCounts(to sink) {
	e := s.evictions
	counter(to, "master_attempted_evictions_total", "Rounds of eviction.", e.Attempted.Load())
	counter(to, "master_attempted_evictions_mem", "Rounds of eviction from memory.", e.Attempted.Load())
	counter(to, "master_successful_evictions_total", "Rounds of eviction that evicted something.", e.Successful.Load())
	counter(to, "master_successful_evictions_mem", "Rounds of eviction from memory that evicted something.", e.Successful.Load())
	counter(to, "master_evicted_key_count", "Objects that this node evicted as a primary.", e.Objects.Load())
	counter(to, "master_evicted_key_count_mem", "Objects that this node evicted from memory as a primary.", e.Objects.Load())
	counter(to, "master_evicted_size_bytes", "Bytes of memory that evicted objects held.", e.Bytes.Load())
	counter(to, "master_evicted_size_bytes_mem", "Bytes of memory that objects evicted from memory held.", e.Bytes.Load())
	counter(to, "understudy_cutoffs_total", "Eviction passes that this node journaled as a primary, each as one cutoff.", e.Cutoffs.Load())
	counter(to, "understudy_near_misses_total",
		"Renewals that were journaled because a cutoff would have taken their object.", e.NearMisses.Load())
	counter(to, "understudy_discarded_puts_total",
		"Abandoned puts that the primary discarded when their release time had come.", e.Discarded.Load())
}

// leaseTTLs computes a histogram at the scrape: all leases have the same TTL, so they are all
// in its bucket.
func (s *scrape) leaseTTLs(to sink) {
	leases, ttl, buckets := s.leases.Granted+s.leases.Renewed, s.leaseTTL.Seconds(), make(map[float64]uint64)
	for _, bound := range []float64{1, 2, 5, 10, 20, 60, 300, 600, 3600} { // seconds
		if buckets[bound] = 0; ttl <= bound {
			buckets[bound] = leases
		}
	}
	histogram(to, "understudy_lease_ttl_seconds",
		"TTLs of the leases that were granted or renewed; all of a term have the same, so all are shown with the one in force.",
		leases, float64(leases)*ttl, buckets)
}

// cutoffSizes shows how many objects went with each cutoff.
func (s *scrape) cutoffSizes(to sink) {
	through, buckets := uint64(0), make(map[float64]uint64)
	for class, n := range s.cutoffs.Classes {
		through += n
		buckets[float64(uint64(1)<<class)] = through
	}
	histogram(to, "understudy_objects_per_cutoff", "Objects that went with one cutoff, as this node applied it, whether it evicted or followed.",
		s.cutoffs.Cutoffs, float64(s.cutoffs.Objects), buckets)
}
