package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/understudy-store/understudy/promote"
)

// Families of what is not read at a scrape, but told as it happens.
var (
	callSeconds = Family{"understudy_rpc_duration_seconds", Histogram,
		"How long gRPC calls took, by method and status; streams as long as they were open.", []string{"method", "code"}}
	commitSeconds = Family{"understudy_commit_duration_seconds", Histogram,
		"How long the journal took to write a commit, heartbeats included.", nil}
	commitMicros = Family{"ha_oplog_etcd_write_latency_us", Histogram,
		"How long the journal took to write a commit, in microseconds.", nil}
	applySeconds = Family{"understudy_apply_duration_seconds", Histogram,
		"How long the primary took to apply a commit.", nil}
	commitBytes = Family{"understudy_commit_bytes", Histogram,
		"Bytes of a commit's records as they stand in the journal; commits without changes do not count.", nil}
	commitChanges = Family{"understudy_commit_changes", Histogram,
		"Changes in a commit; commits without changes do not count.", nil}
	refusedCommits = Family{"understudy_commits_refused_total", Counter,
		"Commits that etcd refused, by reason; their callers were told to try again.", []string{"reason"}}
	writeFailures = Family{"ha_oplog_etcd_write_failures_total", Counter,
		"Commits that etcd refused.", nil}
	valueBytes = Family{"master_value_size_bytes", Histogram,
		"Sizes of the objects that memory was reserved for.", nil}
	takeoverSeconds = Family{"understudy_takeover_duration_seconds", Histogram,
		"How long the steps of this node's takeovers took.", []string{"phase"}}
	cleanupObjects = Family{"understudy_cleanup_objects_total", Counter,
		"Objects that this node removed when it took over, because their lease had run out.", nil}
	cleanupBytes = Family{"understudy_cleanup_bytes_total", Counter,
		"Bytes of memory that the objects of understudy_cleanup_objects_total held.", nil}
)

// instrumentFamilies returns the families by the title of their group.
func instrumentFamilies() map[string][]Family {
	return map[string][]Family{
		titleCalls:    {callSeconds, valueBytes},
		titleCommits:  {commitSeconds, commitMicros, applySeconds, commitBytes, commitChanges, refusedCommits, writeFailures},
		titleTakeover: {takeoverSeconds, cleanupObjects, cleanupBytes},
	}
}

// Buckets of histograms.
var (
	seconds       = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	micros        = []float64{100, 500, 1e3, 5e3, 1e4, 5e4, 1e5, 5e5, 1e6, 5e6} // C++ master
	recordBytes   = []float64{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
	changeCounts  = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}
	objectBytes   = []float64{4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20} // C++ master
	phaseDuration = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
)

// instruments are the metrics that are told as things happen.
type instruments struct {
	calls         *prometheus.HistogramVec
	commit        prometheus.Histogram
	commitMicros  prometheus.Histogram
	apply         prometheus.Histogram
	bytes         prometheus.Histogram
	changes       prometheus.Histogram
	refused       *prometheus.CounterVec
	writeFailures prometheus.Counter
	values        prometheus.Histogram
	takeovers     *prometheus.HistogramVec
	cleaned       prometheus.Counter
	cleanedBytes  prometheus.Counter
}

func newInstruments() instruments {
	i := instruments{
		calls:         histograms(callSeconds, seconds),
		commit:        histogram(commitSeconds, seconds),
		commitMicros:  histogram(commitMicros, micros),
		apply:         histogram(applySeconds, seconds),
		bytes:         histogram(commitBytes, recordBytes),
		changes:       histogram(commitChanges, changeCounts),
		refused:       prometheus.NewCounterVec(counterOpts(refusedCommits), refusedCommits.Labels),
		writeFailures: prometheus.NewCounter(counterOpts(writeFailures)),
		values:        histogram(valueBytes, objectBytes),
		takeovers:     histograms(takeoverSeconds, phaseDuration),
		cleaned:       prometheus.NewCounter(counterOpts(cleanupObjects)),
		cleanedBytes:  prometheus.NewCounter(counterOpts(cleanupBytes)),
	}
	// What is rare is shown from the start, or its first time would not look like
	// an increase.
	for _, reason := range refusals {
		i.refused.WithLabelValues(reason)
	}
	for phase := range phases(promote.Takeover{}) {
		i.takeovers.WithLabelValues(phase)
	}
	return i
}

func histogram(f Family, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: buckets})
}

func histograms(f Family, buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: buckets}, f.Labels)
}

func counterOpts(f Family) prometheus.CounterOpts {
	return prometheus.CounterOpts{Name: f.Name, Help: f.Help}
}

func (i instruments) all() []prometheus.Collector {
	return []prometheus.Collector{
		i.calls, i.commit, i.commitMicros, i.apply, i.bytes, i.changes, i.refused, i.writeFailures,
		i.values, i.takeovers, i.cleaned, i.cleanedBytes,
	}
}
