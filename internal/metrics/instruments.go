package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/understudy-store/understudy/promote"
)

// Buckets of histograms.
var (
	seconds        = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	micros         = []float64{100, 500, 1e3, 5e3, 1e4, 5e4, 1e5, 5e5, 1e6, 5e6} // C++ master
	recordBytes    = []float64{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
	changeCounts   = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}
	objectBytes    = []float64{4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20} // C++ master
	snapshotMillis = []float64{0, 500, 1e3, 5e3, 1e4, 3e4, 6e4, 12e4, 18e4, 24e4, 30e4}            // C++ master
	phaseDuration  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
)

// instruments are the metrics that are not read at a scrape: the parts of a node report them
// when something happens.
type instruments struct {
	calls, takeovers                                    *prometheus.HistogramVec
	commit, commitMicros, apply, bytes, changes, values prometheus.Observer
	snapshot                                            prometheus.Observer
	refused, slowed                                     *prometheus.CounterVec
	writeFailures, cleaned, cleanedBytes                prometheus.Counter
}

// newInstruments registers the instruments, and declares each under the title of
// its group.
func newInstruments(registry *prometheus.Registry, declare func(title string, f Family)) instruments {
	histogram := func(title, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		declare(title, Family{name, Histogram, help, labels})
		return promauto.With(registry).NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	counter := func(title, name, help string, labels ...string) *prometheus.CounterVec {
		declare(title, Family{name, Counter, help, labels})
		return promauto.With(registry).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	i := instruments{
		calls: histogram(titleCalls, "understudy_rpc_duration_seconds",
			"How long gRPC calls took, by method and status; streams as long as they were open.", seconds, "method", "code"),
		slowed: counter(titleCalls, "understudy_connections_slowed_total",
			"Connections of gRPC that sent more besides calls than these need: not read for a while (slowed), or closed in the end (closed).", "outcome"),
		values: histogram(titleCalls, "master_value_size_bytes",
			"Sizes of the objects that memory was reserved for.", objectBytes).WithLabelValues(),
		commit: histogram(titleCommits, "understudy_commit_duration_seconds",
			"How long the journal took to write a commit, beats included.", seconds).WithLabelValues(),
		commitMicros: histogram(titleCommits, "ha_oplog_etcd_write_latency_us",
			"How long the journal took to write a commit, in microseconds.", micros).WithLabelValues(),
		apply: histogram(titleCommits, "understudy_apply_duration_seconds",
			"How long the primary took to apply a commit.", seconds).WithLabelValues(),
		bytes: histogram(titleCommits, "understudy_commit_bytes",
			"Bytes of a commit's records as they stand in the journal; commits without changes do not count.", recordBytes).WithLabelValues(),
		changes: histogram(titleCommits, "understudy_commit_changes",
			"Changes in a commit; commits without changes do not count.", changeCounts).WithLabelValues(),
		refused: counter(titleCommits, "understudy_commits_refused_total",
			"Commits that etcd refused, by reason; their callers got UNAVAILABLE_IN_CURRENT_STATUS.", "reason"),
		writeFailures: counter(titleCommits, "ha_oplog_etcd_write_failures_total", "Commits that etcd refused.").WithLabelValues(),
		takeovers: histogram(titleTakeover, "understudy_takeover_duration_seconds",
			"How long the steps of this node's takeovers took.", phaseDuration, "phase"),
		snapshot: histogram(titleTakeover, "master_snapshot_duration_ms",
			"How long this node took to write state files, in milliseconds.", snapshotMillis).WithLabelValues(),
		cleaned: counter(titleTakeover, "understudy_cleanup_objects_total",
			"Objects that this node removed when it took over, because their lease had run out.").WithLabelValues(),
		cleanedBytes: counter(titleTakeover, "understudy_cleanup_bytes_total",
			"Bytes of memory that the objects of understudy_cleanup_objects_total held.").WithLabelValues(),
	}
	// Rare series exist from the start. Otherwise their first event would not look like an
	// increase.
	for _, reason := range refusals {
		i.refused.WithLabelValues(reason)
	}
	for _, outcome := range []string{"slowed", "closed"} {
		i.slowed.WithLabelValues(outcome)
	}
	for phase := range phases(promote.Takeover{}) {
		i.takeovers.WithLabelValues(phase)
	}
	return i
}
