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

// A Group is metrics about one thing.
type Group struct {
	Title    string
	Families []Family // by name
}

// Groups returns the metrics that a node may export, except those of the Go runtime
// and the process. It is for documentation and tests. A scrape leaves out metrics
// without a value, such as the lag without a journal.
func Groups() []Group {
	var groups []Group
	add := func(title string, f Family) {
		i := slices.IndexFunc(groups, func(g Group) bool { return g.Title == title })
		if i < 0 {
			i, groups = len(groups), append(groups, Group{Title: title})
		}
		groups[i].Families = append(groups[i].Families, f)
	}
	everything().figures(func(title string) sink {
		return func(f Family, _ func(*prometheus.Desc) prometheus.Metric) { add(title, f) }
	})
	newInstruments(prometheus.NewRegistry(), add)
	for i, g := range groups {
		slices.SortFunc(g.Families, byName)
		groups[i].Families = slices.CompactFunc(g.Families, func(a, b Family) bool { return a.Name == b.Name })
	}
	return groups
}

// Families returns the metrics of all Groups, by name.
func Families() (list []Family) {
	for _, g := range Groups() {
		list = append(list, g.Families...)
	}
	slices.SortFunc(list, byName)
	return list
}

func byName(a, b Family) int { return cmp.Compare(a.Name, b.Name) }
