package metrics

// evictionFigures are what a primary evicted. There is memory only to evict
// from, so the C++ master's totals and its figures of memory are the same.
func evictionFigures() []figure {
	attempted := func(s *scrape) float64 { return float64(s.evictions.Attempted.Load()) }
	successful := func(s *scrape) float64 { return float64(s.evictions.Successful.Load()) }
	objects := func(s *scrape) float64 { return float64(s.evictions.Objects.Load()) }
	bytes := func(s *scrape) float64 { return float64(s.evictions.Bytes.Load()) }
	return []figure{
		counter("master_attempted_evictions_total", "Rounds of eviction.", attempted),
		counter("master_attempted_evictions_mem", "Rounds of eviction from memory.", attempted),
		counter("master_successful_evictions_total", "Rounds of eviction that evicted something.", successful),
		counter("master_successful_evictions_mem", "Rounds of eviction from memory that evicted something.", successful),
		counter("master_evicted_key_count", "Objects that this node evicted as a primary.", objects),
		counter("master_evicted_key_count_mem", "Objects that this node evicted from memory as a primary.", objects),
		counter("master_evicted_size_bytes", "Bytes of memory that evicted objects held.", bytes),
		counter("master_evicted_size_bytes_mem", "Bytes of memory that objects evicted from memory held.", bytes),
		counter("understudy_cutoffs_total", "Eviction passes that this node journaled as a primary, each as one cutoff.",
			func(s *scrape) float64 { return float64(s.evictions.Cutoffs.Load()) }),
		counter("understudy_near_misses_total", "Renewals that were journaled because a cutoff would have taken their object.",
			func(s *scrape) float64 { return float64(s.evictions.NearMisses.Load()) }),
		counter("understudy_discarded_puts_total", "Abandoned puts that the primary discarded when their release time had come.",
			func(s *scrape) float64 { return float64(s.evictions.Discarded.Load()) }),
	}
}

// renewalFigures are how lease renewals reached the journal and the standbys.
func renewalFigures() []figure {
	return []figure{
		counter("understudy_renewals_committed_total", "Lease renewals in commits of this node.",
			func(s *scrape) float64 { return float64(s.renewals.Committed.Load()) }),
		counter("understudy_renewal_scans_critical_total", "Scans that a critical renewal asked for.",
			func(s *scrape) float64 { return float64(s.renewals.CriticalScans.Load()) }),
		counter("understudy_renewals_applied_total", "Lease renewals that this node applied as a standby.",
			func(s *scrape) float64 { return float64(s.renewals.Applied.Load()) }),
		counter("understudy_renewal_scans_total", "Scans for renewed leases.",
			func(s *scrape) float64 { return float64(s.renewals.Scans.Load()) }),
		counter("understudy_renewal_scans_failed_total", "Scans that could not commit all they found; the next one takes it again.",
			func(s *scrape) float64 { return float64(s.renewals.Failed.Load()) }),
		counter("understudy_full_syncs_total", "Comparisons of this standby's leases with those in etcd.",
			func(s *scrape) float64 { return float64(s.renewals.Synced.Load()) }),
		counter("understudy_lease_differences_total", "Renewals in etcd that a full sync did not find in this standby's state; always 0 without a defect.",
			func(s *scrape) float64 { return float64(s.renewals.Differed.Load()) }),
	}
}
