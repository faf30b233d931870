package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// A scrape is everything that is read at one moment.
type scrape struct {
	status    promote.Status
	calls     *service.Counters
	renewals  *leasesync.Counters
	evictions *eviction.Counters

	// Of the state; zero while there is none.
	hasState bool
	stats    metadata.Stats
	leases   metadata.LeaseCounts
	cutoffs  metadata.CutoffCounts
	leaseTTL time.Duration
	segments map[string]use // by name
	keyBytes int64

	fileCapacity uint64

	tenants       map[string]tenant // by name; none without quotas
	quotaCapacity uint64
	tenantCounts  map[string]service.TenantCounts

	// Of the term; zero on a node that does not serve.
	clients     int
	held        int // of these clients, silent for too long and kept
	queueBytes  int
	submissions int

	polled
	commitAge      time.Duration
	recent         tally // of the last minutes
	settingsDiffer int

	refusedPeers, refusedIdentities uint64               // connections
	certificates                    map[string]time.Time // when they expire, by kind
}

// use is how much of the memory behind a segment's name is taken, in bytes.
type use struct{ busy, capacity uint64 }

func (u use) plus(v use) use { return use{u.busy + v.busy, u.capacity + v.capacity} }

// take reads everything except the counters, which figures reads one by one.
func (m *Metrics) take() *scrape {
	s := &scrape{
		status: m.src.Status(), calls: m.src.Calls, renewals: m.src.Renewals, evictions: m.src.Evictions,
		tenantCounts: countsByLabel(m.src.Calls.Tenants.All()),
		segments:     make(map[string]use), fileCapacity: m.src.FileCapacity,
	}
	s.polled, s.commitAge = m.polls.look(s.status, m.src.Clock())
	s.recent = m.tally(s.status.Lapses).since(m.tallies.oldest())
	if m.src.SettingsDiffer != nil {
		s.settingsDiffer = m.src.SettingsDiffer()
	}
	if m.src.RefusedConnections != nil {
		s.refusedPeers, s.refusedIdentities = m.src.RefusedConnections()
	}
	if m.src.Certificates != nil {
		s.certificates = m.src.Certificates()
	}
	if store := m.src.Store(); store != nil {
		s.hasState, s.stats, s.leases, s.cutoffs = true, store.Stats(), store.LeaseCounts(), store.CutoffCounts()
		s.leaseTTL = store.Params().LeaseTTL
		if store.HasQuotas() {
			s.tenants, s.quotaCapacity = tenantsOf(store.Quotas()), store.QuotaCapacity()
		}
		for seg := range store.EachSegment() {
			// Several segments may share a name, at the latest once it is valid for a label.
			name := strings.ToValidUTF8(seg.Name, "\uFFFD")
			s.segments[name] = s.segments[name].plus(use{seg.Busy, seg.Capacity})
		}
		s.segments = largest(s.segments, func(u use) uint64 { return u.capacity }, use.plus)
		all, _ := store.Use("")
		s.keyBytes = all.KeyBytes
	}
	if master, err := m.src.Gate.Master(); err == nil {
		s.clients, s.held = master.Liveness.Active(), master.Liveness.Held()
		s.queueBytes, s.submissions = master.Queue.Len()
	}
	return s
}

// committed returns the newest sequence that this node knows of.
func (s *scrape) committed() metadata.Seq {
	return max(s.status.Head.Seq, s.status.Position.Seq, s.head.Seq)
}

// term returns the newest term that this node knows of.
func (s *scrape) term() metadata.Term {
	return max(s.status.Leader.Term, s.status.Position.Term, s.status.Head.Term, s.head.Term)
}

func everything() *scrape {
	return &scrape{
		tenants: map[string]tenant{"": {}}, tenantCounts: map[string]service.TenantCounts{"": {}},
		calls: service.NewCounters(), renewals: new(leasesync.Counters), evictions: new(eviction.Counters),
		hasState: true, segments: map[string]use{"": {}}, polled: polled{lagKnown: true, etcdBytes: 1, etcdQuota: 1},
		certificates: map[string]time.Time{"": {}},
	}
}

// A collector reads figures at a scrape.
type collector struct {
	take  func() *scrape
	descs map[string]*prometheus.Desc // by name of the metric
}

func newCollector(take func() *scrape) *collector {
	c := &collector{take, make(map[string]*prometheus.Desc)}
	everything().figures(func(string) sink {
		return func(f Family, _ func(*prometheus.Desc) prometheus.Metric) {
			c.descs[f.Name] = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
		}
	})
	return c
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.take().figures(func(string) sink {
		return func(f Family, metric func(*prometheus.Desc) prometheus.Metric) { ch <- metric(c.descs[f.Name]) }
	})
}
