package metrics

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// A Kind is a metric's type, in Prometheus' words.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// A Family describes one metric.
type Family struct {
	Name   string
	Kind   Kind
	Help   string
	Labels []string
}

// Families returns the metrics that a node may show, by name, but for those of
// the Go runtime and the process: for documentation and tests. A metric that
// has nothing to say is left out of a scrape, such as the lag without a journal.
func Families() []Family {
	list := instrumentFamilies()
	for _, s := range sections() {
		for _, f := range s.figures {
			list = append(list, f.Family)
		}
	}
	slices.SortFunc(list, func(a, b Family) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (f Family) desc() *prometheus.Desc {
	return prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
}
