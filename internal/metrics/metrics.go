package metrics

import (
	"context"
	"net/http"
	"regexp"
	"sync/atomic"
	"time"

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

// Sources are the parts of a node from which its figures are read. The functions
// may be called from any goroutine; those without a context must not block.
type Sources struct {
	Clock clock.Clock
	// Status returns the node's status. A node without HA is always the primary.
	Status func() promote.Status
	// Store returns the node's state, nil while it has none.
	Store func() *metadata.Store
	// Gate has the term in which this node serves, if it does.
	Gate *service.Gate

	Calls     *service.Counters
	Renewals  *leasesync.Counters
	Evictions *eviction.Counters

	// FileCapacity is how many bytes the files of Disk replicas may have in total; 0 means
	// no bound.
	FileCapacity uint64

	// Head reads the journal's end; nil without a journal.
	Head func(ctx context.Context) (journal.Cursor, error)
	// EtcdSize returns the size of etcd's database and its quota in bytes, 0 for
	// what is not known; nil without etcd.
	EtcdSize func(ctx context.Context) (used, quota uint64)
	// SettingsDiffer returns how many settings that should be the same on all nodes differ
	// from those of the primary; nil without a journal.
	SettingsDiffer func() int
	// RefusedConnections returns how many connections this node closed because their address,
	// or the identity of their certificate, had too many, or all had; nil for none.
	RefusedConnections func() (ofPeers, ofIdentities uint64)
	// Certificates returns when each certificate that the node shows to others expires, by its
	// kind; nil without TLS.
	Certificates func() map[string]time.Time
}

// Metrics are the metrics of one node.
type Metrics struct {
	instruments
	src      Sources
	registry *prometheus.Registry
	polls    polls
	counted  metadata.Term // the term whose takeover was counted last; only Run uses it
	saves    int64         // how many saves of state files were counted; only Run uses it
	window   window        // of the rates in MooncakeSummary
	tallies  tallies       // of what the last minutes are counted from
	failures atomic.Int64  // writes of commits that failed, for MooncakeSummary
}

// New returns the metrics of a node. Those that need etcd, or that change with time, are
// current only while Run runs.
func New(src Sources) *Metrics {
	registry := prometheus.NewRegistry()
	m := &Metrics{instruments: newInstruments(registry, func(string, Family) {}), src: src, registry: registry}
	m.polls.moved = src.Clock()
	m.window.base.at, m.window.next.at = m.polls.moved, m.polls.moved
	m.tallies.note(tally{at: m.polls.moved})
	m.registry.MustRegister(newCollector(m.take), collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectorFigures())),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// collectorFigures selects figures of Go's garbage collector that the default set lacks: a
// histogram of pauses, the live heap, cycles, and the CPU time that goroutines spend on
// assisting it.
func collectorFigures() collectors.GoRuntimeMetricsRule {
	return collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(
		`^/(sched/pauses/total/gc:seconds|gc/heap/live:bytes|gc/cycles/total:gc-cycles|cpu/classes/gc/mark/assist:cpu-seconds)$`)}
}

// Handler answers scrapes. Its server must bound how many run at once.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry:      m.registry,
		ErrorHandling: promhttp.ContinueOnError,
		// Never OpenMetrics: it adds _total to counters, and several names of the
		// C++ master do not end in it. Scrapers that want exemplars ask for protobuf.
		EnableOpenMetrics: false,
	})
}
