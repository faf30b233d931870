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

// A section is the figures of one source. They are left out while the source
// has none.
type section struct {
	there   func(*scrape) bool
	figures []figure
}

// sections returns all figures.
func sections() []section {
	always := func(*scrape) bool { return true }
	return []section{
		{always, callFigures()},
		{always, evictionFigures()},
		{always, renewalFigures()},
		{always, nodeFigures()},
		{func(s *scrape) bool { return s.store != nil }, stateFigures()},
		{func(s *scrape) bool { return s.lagKnown }, lagFigures()},
		{func(s *scrape) bool { return s.etcdBytes > 0 }, etcdFigures()},
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
	ttls     *prometheus.Desc
}

func newCollector(take func() *scrape) *collector {
	c := &collector{take: take, sections: sections(), descs: make(map[string]*prometheus.Desc), ttls: leaseTTLSeconds.desc()}
	for _, s := range c.sections {
		for _, f := range s.figures {
			c.descs[f.Name] = f.desc()
		}
	}
	return c
}

// Describe sends the description of every figure.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
	ch <- c.ttls
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
	if now.store != nil {
		ch <- leaseTTLs(c.ttls, now)
	}
}
