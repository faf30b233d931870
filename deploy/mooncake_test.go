package deploy_test

import (
	"os"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/metrics"
)

// mooncakeQueries returns what Mooncake's dashboard asks, by the metric or the title of the
// panel: each metric that a node shows, counters by their rate and histograms by their
// 95th percentile, and the ratios that it computes of several. Those that no node
// shows are in mooncake.md with the reason, which package docs checks.
func mooncakeQueries(t *testing.T) map[string]string {
	t.Helper()
	names, err := os.ReadFile("../docs/testdata/mooncake_dashboard.txt")
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string]string{
		"Memory Usage %":       "100 * master_allocated_bytes / master_total_capacity_bytes",
		"File Storage Usage %": "100 * master_allocated_file_size_bytes / master_total_file_capacity_bytes",
		"Total Rejected":       "master_promotion_rejected_frequency_total + master_promotion_rejected_watermark_total + master_promotion_rejected_cap_total",
		"MEM Hit Ratio %":      "100 * rate(mem_cache_hit_nums_[5s]) / (rate(mem_cache_hit_nums_[5s]) + rate(file_cache_hit_nums_[5s]))",
		"Valid Get Rate %":     "100 * rate(valid_get_nums_[5s]) / rate(total_get_nums_[5s])",
	}
	series := shown()
	for line := range strings.Lines(string(names)) {
		name := strings.TrimSpace(line)
		switch f, there := series[name]; {
		case !there:
		case strings.HasSuffix(name, "_bucket"):
			queries[name] = "histogram_quantile(0.95, sum by (le) (rate(" + name + "[5s])))"
		case f.Kind == metrics.Counter:
			queries[name] = "rate(" + name + "[5s])"
		default:
			queries[name] = name
		}
	}
	if len(queries) < 90 {
		t.Fatalf("got %d queries of Mooncake's dashboard, want 90 and more", len(queries))
	}
	return queries
}
