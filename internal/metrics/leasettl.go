package metrics

import "github.com/prometheus/client_golang/prometheus"

var leaseTTLSeconds = Family{"understudy_lease_ttl_seconds", Histogram,
	"TTLs of the leases that were granted or renewed; all of a term have the same, so all are shown with the one in force.", nil}

// ttlBuckets are upper bounds in seconds.
var ttlBuckets = []float64{1, 2, 5, 10, 20, 60, 300, 600, 3600}

// leaseTTLs returns a histogram that nobody has to keep: all leases are in the
// bucket of the only TTL there is.
func leaseTTLs(desc *prometheus.Desc, s *scrape) prometheus.Metric {
	count, ttl := s.leases.Granted+s.leases.Renewed, s.leaseTTL.Seconds()
	buckets := make(map[float64]uint64, len(ttlBuckets))
	for _, bound := range ttlBuckets {
		if buckets[bound] = 0; ttl <= bound {
			buckets[bound] = count
		}
	}
	return prometheus.MustNewConstHistogram(desc, count, float64(count)*ttl, buckets)
}
