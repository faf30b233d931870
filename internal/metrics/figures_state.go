package metrics

// stateFigures are what the store knows, on any node that has a state.
func stateFigures() []figure {
	return []figure{
		gauge("master_allocated_bytes", "Bytes of memory that are taken, rounding and quarantine included.",
			func(s *scrape) float64 { return float64(s.stats.Busy) }),
		gauge("master_total_capacity_bytes", "Bytes of memory that can be taken in all mounted segments.",
			func(s *scrape) float64 { return float64(s.stats.Capacity) }),
		gaugeBy("segment", "segment_allocated_bytes", "Bytes that are taken in the segments of a name.",
			func(s *scrape, e emit) {
				for name, u := range s.segments {
					e(float64(u.busy), name)
				}
			}),
		gaugeBy("segment", "segment_total_capacity_bytes", "Bytes that can be taken in the segments of a name.",
			func(s *scrape, e emit) {
				for name, u := range s.segments {
					e(float64(u.capacity), name)
				}
			}),
		gauge("master_key_count", "Keys with an object, reservations included.",
			func(s *scrape) float64 { return float64(s.stats.Objects) }),
		gauge("master_soft_pin_key_count", "Keys that are softly pinned.",
			func(s *scrape) float64 { return float64(s.stats.SoftPinned) }),
		gauge("mem_cache_nums_", "Complete replicas in memory.",
			func(s *scrape) float64 { return float64(s.stats.MemoryReplicas) }),
		gauge("file_cache_nums_", "Complete replicas on disk.",
			func(s *scrape) float64 { return float64(s.stats.DiskReplicas) }),
		gauge("understudy_local_disk_replicas", "Replicas on clients' own SSDs.",
			func(s *scrape) float64 { return float64(s.stats.LocalReplicas) }),
		gauge("understudy_local_disks", "Clients' SSDs that are mounted.",
			func(s *scrape) float64 { return float64(s.stats.LocalDisks) }),
		counter("master_put_start_discard_cnt", "Abandoned reservations that were discarded, by a cleanup or by another put of the key.",
			func(s *scrape) float64 { return float64(s.stats.Discarded) }),
		gauge("understudy_segments", "Mounted segments.",
			func(s *scrape) float64 { return float64(s.stats.Segments) }),
		gauge("understudy_evictable_objects", "Objects in memory without a hard pin, leased ones included.",
			func(s *scrape) float64 { return float64(s.stats.Evictable) }),
		gauge("understudy_quarantined_bytes", "Bytes that were freed and are given to nobody yet, because somebody may still read or write there.",
			func(s *scrape) float64 { return float64(s.stats.Quarantined) }),
		gauge("understudy_quarantine_leaving_soon_bytes", "Of understudy_quarantined_bytes, what comes free within a lease TTL.",
			func(s *scrape) float64 { return float64(s.stats.LeavingSoon) }),
		counter("understudy_quarantine_exits_total", "Ranges of memory that left quarantine.",
			func(s *scrape) float64 { return float64(s.stats.QuarantineExits) }),
	}
}

// leaseFigures are what became of leases that this node granted. etcd's lessor
// has the same four counters.
func leaseFigures() []figure {
	return []figure{
		counter("understudy_leases_granted_total", "Leases that reads gave to objects without one, or whose last one had ended.",
			func(s *scrape) float64 { return float64(s.leases.Granted) }),
		counter("understudy_leases_renewed_total", "Live leases that reads extended.",
			func(s *scrape) float64 { return float64(s.leases.Renewed) }),
		counter("understudy_leases_expired_total", "Leases that ended by themselves; counted when the object is read again, or goes.",
			func(s *scrape) float64 { return float64(s.leases.Expired) }),
		counter("understudy_leases_revoked_total", "Leases that were live when their object went, by force or with its segment.",
			func(s *scrape) float64 { return float64(s.leases.Revoked) }),
		gauge("understudy_dirty_marks", "Objects that were renewed and wait for a scan to journal it.",
			func(s *scrape) float64 { return float64(s.leases.Marked) }),
		counter("understudy_renewals_critical_total", "Reads that extended a lease too late for the next scan, so that one was asked for at once.",
			func(s *scrape) float64 { return float64(s.renewals.Critical.Load()) }),
		counter("understudy_renewals_marked_total", "Marks of renewed objects for a scan.",
			func(s *scrape) float64 { return float64(s.leases.Marks) }),
	}
}
