package metrics

import (
	"context"
	"net/http"
	"regexp"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// Sources are what a node's figures are read from. The functions are called
// from any goroutine; those without a context must not block.
type Sources struct {
	Clock clock.Clock
	// Status returns the node's status. A node without HA is always the primary.
	Status func() promote.Status
	// Store returns the node's state, nil while it has none.
	Store func() *metadata.Store
	// Gate leads to the term in which this node serves, if it does.
	Gate *service.Gate

	Calls     *service.Counters
	Renewals  *leasesync.Counters
	Evictions *eviction.Counters

	// FileCapacity is how many bytes the files of Disk replicas may have; 0 if that is
	// not bounded.
	FileCapacity uint64

	// Head reads the journal's end; nil without a journal.
	Head func(ctx context.Context) (journal.Cursor, error)
	// EtcdSize returns the size of etcd's database and its quota in bytes, 0 for
	// what is not known; nil without etcd.
	EtcdSize func(ctx context.Context) (used, quota uint64)
	// SettingsDiffer returns how many settings that should be alike on all nodes are
	// not those of the primary; nil without a journal.
	SettingsDiffer func() int
}

// Metrics are the metrics of one node.
type Metrics struct {
	instruments
	src      Sources
	registry *prometheus.Registry
	polls    polls
	counted  metadata.Term // whose takeover was counted last, of Run only
	saves    int64         // of state files that were counted, of Run only
	window   window        // of the rates in MooncakeSummary
	failures atomic.Int64  // writes of commits that failed, for MooncakeSummary
}

// New returns the metrics of a node. Run must run for those that need etcd or
// the passing of time.
func New(src Sources) *Metrics {
	registry := prometheus.NewRegistry()
	m := &Metrics{instruments: newInstruments(registry, func(string, Family) {}), src: src, registry: registry}
	m.polls.moved = src.Clock()
	m.window.base.at, m.window.next.at = m.polls.moved, m.polls.moved
	m.registry.MustRegister(newCollector(m.take), collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectorFigures())),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// collectorFigures are of what Go's collector says of itself, besides what is always
// there: pauses as a histogram, the live heap, and what callers spend on helping it.
func collectorFigures() collectors.GoRuntimeMetricsRule {
	return collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(
		`^/(sched/pauses/total/gc:seconds|gc/heap/live:bytes|gc/cycles/total:gc-cycles|cpu/classes/gc/mark/assist:cpu-seconds)$`)}
}

// Handler answers scrapes. Who serves it bounds how many there are at once.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry:      m.registry,
		ErrorHandling: promhttp.ContinueOnError,
		// Never OpenMetrics: it adds _total to counters, and several names of the
		// C++ master do not end in it. Scrapers that want exemplars ask for protobuf.
		EnableOpenMetrics: false,
	})
}
