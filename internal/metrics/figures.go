package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// An emit function shows one value, with one value for each label.
type emit func(v float64, labels ...string)

// A figure is a metric that is read at a scrape.
type figure struct {
	Family
	read func(*scrape, emit)
}

// A section is the figures of one source, under the title of their group. They
// are left out while the source has none.
type section struct {
	title   string
	there   func(*scrape) bool
	figures []figure
}

// Titles of groups.
const (
	titleNode     = "Role, term and lag"
	titleCommits  = "Commits"
	titleTakeover = "Takeovers and snapshots"
	titleState    = "Memory and objects"
	titleLeases   = "Leases and renewals"
	titleEviction = "Eviction"
	titleEtcd     = "etcd"
	titleCalls    = "Clients and calls"
	titleEachCall = "Each call"
)

// sections returns all figures, in the order of their groups.
func sections() []section {
	always := func(*scrape) bool { return true }
	state := func(s *scrape) bool { return s.store != nil }
	return []section{
		{titleNode, always, nodeFigures()},
		{titleNode, func(s *scrape) bool { return s.lagKnown }, lagFigures()},
		{titleCommits, always, queueFigures()},
		{titleTakeover, always, takeoverFigures()},
		{titleState, state, stateFigures()},
		{titleLeases, state, leaseFigures()},
		{titleLeases, always, renewalFigures()},
		{titleEviction, always, evictionFigures()},
		{titleEtcd, func(s *scrape) bool { return s.etcdBytes > 0 }, etcdFigures()},
		{titleCalls, always, callFigures()},
		{titleEachCall, always, eachCallFigures()},
	}
}

func gauge(name, help string, of func(*scrape) float64) figure {
	return figure{Family{name, Gauge, help, nil}, func(s *scrape, e emit) { e(of(s)) }}
}

func counter(name, help string, of func(*scrape) float64) figure {
	return figure{Family{name, Counter, help, nil}, func(s *scrape, e emit) { e(of(s)) }}
}

func gaugeBy(label, name, help string, read func(*scrape, emit)) figure {
	return figure{Family{name, Gauge, help, []string{label}}, read}
}

func counterBy(label, name, help string, read func(*scrape, emit)) figure {
	return figure{Family{name, Counter, help, []string{label}}, read}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// A collector reads figures at a scrape.
type collector struct {
	take     func() *scrape
	sections []section
	descs    map[string]*prometheus.Desc // by name of the metric
}

func newCollector(take func() *scrape) *collector {
	c := &collector{take: take, sections: sections(), descs: make(map[string]*prometheus.Desc)}
	for _, s := range c.sections {
		for _, f := range s.figures {
			c.descs[f.Name] = f.desc()
		}
	}
	for _, d := range distributions() {
		c.descs[d.Name] = d.desc()
	}
	return c
}

// Describe sends the description of every figure.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect reads and sends the figures.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	now := c.take()
	for _, s := range c.sections {
		if !s.there(now) {
			continue
		}
		for _, f := range s.figures {
			desc := c.descs[f.Name]
			kind := prometheus.GaugeValue
			if f.Kind == Counter {
				kind = prometheus.CounterValue
			}
			f.read(now, func(v float64, labels ...string) {
				ch <- prometheus.MustNewConstMetric(desc, kind, v, labels...)
			})
		}
	}
	if now.store == nil {
		return
	}
	for _, d := range distributions() {
		count, sum, buckets := d.read(now)
		ch <- prometheus.MustNewConstHistogram(c.descs[d.Name], count, sum, buckets)
	}
}
