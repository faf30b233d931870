package metrics

// A distribution is a histogram that is read of the state at a scrape.
type distribution struct {
	title string // of its group
	Family
	read func(*scrape) (count uint64, sum float64, buckets map[float64]uint64)
}

func distributions() []distribution {
	return []distribution{
		{titleLeases, Family{"understudy_lease_ttl_seconds", Histogram,
			"TTLs of the leases that were granted or renewed; all of a term have the same, so all are shown with the one in force.", nil}, leaseTTLs},
		{titleEviction, Family{"understudy_objects_per_cutoff", Histogram,
			"Objects that went with one cutoff, as this node applied it, whether it evicted or followed.", nil}, cutoffSizes},
	}
}

// ttlBuckets are upper bounds in seconds.
var ttlBuckets = []float64{1, 2, 5, 10, 20, 60, 300, 600, 3600}

// leaseTTLs is a histogram that nobody has to keep: all leases are in the
// bucket of the only TTL there is.
func leaseTTLs(s *scrape) (count uint64, sum float64, buckets map[float64]uint64) {
	count, ttl := s.leases.Granted+s.leases.Renewed, s.leaseTTL.Seconds()
	buckets = make(map[float64]uint64, len(ttlBuckets))
	for _, bound := range ttlBuckets {
		if buckets[bound] = 0; ttl <= bound {
			buckets[bound] = count
		}
	}
	return count, float64(count) * ttl, buckets
}

func cutoffSizes(s *scrape) (count uint64, sum float64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(s.cutoffs.Classes))
	through := uint64(0)
	for class, n := range s.cutoffs.Classes {
		through += n
		buckets[float64(uint64(1)<<class)] = through
	}
	return s.cutoffs.Cutoffs, float64(s.cutoffs.Objects), buckets
}
