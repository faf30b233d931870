// Package deploy_test checks that what operators load into other programs
// speaks of metrics that a node shows, and that what they install with is of the
// types of its programs, with settings that a node takes.
package deploy_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/understudy-store/understudy/internal/metrics"
)

// ofTarget are labels that Prometheus adds to everything it scrapes.
var ofTarget = []string{"job", "instance"}

// ofOthers are metrics of the Go runtime and the process that are used here.
var ofOthers = map[string]metrics.Family{
	"go_goroutines":                 {Kind: metrics.Gauge},
	"process_resident_memory_bytes": {Kind: metrics.Gauge},
}

// shown returns the series that a node shows, by name, with their kind and
// labels: for a histogram those that it is made of.
func shown() map[string]metrics.Family {
	series := make(map[string]metrics.Family)
	for name, f := range ofOthers {
		series[name] = f
	}
	for _, f := range metrics.Families() {
		if f.Kind != metrics.Histogram {
			series[f.Name] = f
			continue
		}
		part := metrics.Family{Name: f.Name, Kind: metrics.Counter, Labels: f.Labels}
		series[f.Name+"_sum"], series[f.Name+"_count"] = part, part
		part.Labels = append(slices.Clone(f.Labels), "le")
		series[f.Name+"_bucket"] = part
	}
	return series
}

// faults returns what is wrong with a PromQL expression.
func faults(expr string) (list []string) {
	root, err := parser.ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	series := shown()
	parser.Inspect(root, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			list = append(list, selectorFaults(n, path, series)...)
		case *parser.AggregateExpr:
			list = append(list, groupingFaults(n, series)...)
		}
		return nil
	})
	return list
}

// selectorFaults checks the name and the labels of one selector, and that a
// counter is looked at by its increase.
func selectorFaults(n *parser.VectorSelector, path []parser.Node, series map[string]metrics.Family) (list []string) {
	f, ok := series[n.Name]
	if !ok {
		return []string{"no node shows " + n.Name}
	}
	for _, m := range n.LabelMatchers {
		if m.Name != labels.MetricName && !slices.Contains(slices.Concat(f.Labels, ofTarget), m.Name) {
			list = append(list, n.Name+" has no label "+m.Name)
		}
		list = append(list, valueFaults(n.Name, m, f.LabelValues(m.Name))...)
	}
	increases := slices.ContainsFunc(path, func(p parser.Node) bool {
		c, ok := p.(*parser.Call)
		return ok && (c.Func.Name == "rate" || c.Func.Name == "increase")
	})
	if increases != (f.Kind == metrics.Counter) {
		list = append(list, n.Name+" is a "+string(f.Kind)+": rate and increase are for counters, and only for them")
	}
	return list
}

// valueFaults checks that each value that a matcher names is one that the label
// can have, and that a pattern which names none finds some and not all. Nothing
// is known if there are no values.
func valueFaults(name string, m *labels.Matcher, values []string) (list []string) {
	named := m.SetMatches()
	switch {
	case values == nil:
		return nil
	case m.Type == labels.MatchEqual, m.Type == labels.MatchNotEqual:
		named = []string{m.Value}
	case len(named) == 0:
		found := slices.DeleteFunc(slices.Clone(values), func(v string) bool { return !m.Matches(v) })
		if len(found) == 0 || len(found) == len(values) {
			return []string{name + ": " + m.String() + " finds all values or none"}
		}
	}
	for _, v := range named {
		if !slices.Contains(values, v) {
			list = append(list, name+" has no "+m.Name+" "+v+", only "+strings.Join(values, ", "))
		}
	}
	return list
}

// groupingFaults checks that the labels of an aggregation are on every series
// below it.
func groupingFaults(n *parser.AggregateExpr, series map[string]metrics.Family) (list []string) {
	parser.Inspect(n.Expr, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok {
			for _, label := range n.Grouping {
				if !slices.Contains(slices.Concat(series[v.Name].Labels, ofTarget), label) {
					list = append(list, v.Name+" has no label "+label)
				}
			}
		}
		return nil
	})
	return list
}

func TestFaultsAreSeen(t *testing.T) {
	for expr, want := range map[string]string{
		`understudy_term{job="a"}`:                                        "",
		`sum by (reason) (rate(understudy_snapshot_loads_total[5m]))`:     "",
		`understudy_term{`:                                                "parse error",
		`understudy_terms`:                                                "no node shows understudy_terms",
		`understudy_commit_bytes`:                                         "no node shows understudy_commit_bytes",
		`understudy_role{rolle="primary"}`:                                "has no label rolle",
		`understudy_role{role="leader"}`:                                  "has no role leader, only standby, ",
		`understudy_role{role!="handing over"}`:                           "has no role handing over",
		`understudy_role{role=~"primary|handing_over"}`:                   "",
		`understudy_role{role=~"primary|leader"}`:                         "has no role leader",
		`understudy_role{role!~"primary|leader"}`:                         "has no role leader",
		`understudy_role{role=~"p.*"}`:                                    "",
		`understudy_role{role=~"q.*"}`:                                    "finds all values or none",
		`understudy_role{role!~"q.*"}`:                                    "finds all values or none",
		`rate(understudy_commits_refused_total{reason="full"}[5m])`:       "has no reason full",
		`rate(understudy_snapshot_loads_total{reason="gap"}[5m])`:         "",
		`rate(understudy_snapshot_loads_total{reason="no_space"}[5m])`:    "has no reason no_space",
		`rate(understudy_delete_events_total{type="DELETE"}[5m])`:         "has no type DELETE",
		`rate(understudy_takeover_duration_seconds_sum{phase="x"}[5m])`:   "has no phase x",
		`rate(understudy_rpc_duration_seconds_count{code="ok"}[5m])`:      "has no code ok",
		`segment_allocated_bytes{segment="any"}`:                          "",
		`sum by (phase) (rate(understudy_commit_bytes_bucket[5m]))`:       "has no label phase",
		`understudy_cutoffs_total`:                                        "is a counter",
		`rate(understudy_term[5m])`:                                       "is a gauge",
		`histogram_quantile(.9, rate(understudy_commit_bytes_count[5m]))`: "",
	} {
		got := strings.Join(faults(expr), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}

func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	manual, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if names[r.Alert] || r.Alert == "" {
				t.Errorf("alert %q: got its name twice or empty, want one of its own", r.Alert)
			}
			names[r.Alert] = true
			for _, fault := range faults(r.Expr) {
				t.Errorf("%s: got %s, want only what nodes show", r.Alert, fault)
			}
			if d, err := time.ParseDuration(r.For); r.For != "" && (err != nil || d > 5*time.Minute) {
				t.Errorf("%s: got for %q, error %v, want at most 5 minutes", r.Alert, r.For, err)
			}
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["action"] == "" {
				t.Errorf("%s: got severity %q and %v, want a severity, a summary and an action", r.Alert, r.Labels["severity"], r.Annotations)
			}
			if !strings.Contains(string(manual), "### "+r.Alert+"\n") {
				t.Errorf("%s: got no chapter in docs/operations.md, want one", r.Alert)
			}
		}
	}
	const want = 16
	if len(names) != want {
		t.Errorf("got %d alerts, want %d", len(names), want)
	}
}

// A dashboard as far as it is checked here, in the names of Grafana's schema.
type dashboard struct {
	UID           string
	Title         string
	SchemaVersion int
	Panels        []panel
	Templating    struct{ List []variable }
	Annotations   struct{ List []struct{ Expr string } }
}

type variable struct {
	Name string
	Type string
}

type panel struct {
	ID          int
	Type        string
	Title       string
	Description string
	GridPos     struct{ X, Y, W, H int }
	Datasource  struct{ Type, UID string }
	Targets     []struct{ RefID, Expr string }
}

func readDashboard(t *testing.T) (d dashboard, text string) {
	t.Helper()
	b, err := os.ReadFile("grafana/understudy.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return d, string(b)
}

// grafanas replaces what Grafana puts in before it asks Prometheus.
var grafanas = strings.NewReplacer("$__rate_interval", "1m")

func TestDashboardAsksForWhatIsShown(t *testing.T) {
	d, text := readDashboard(t)
	asked := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			asked++
			for _, fault := range faults(grafanas.Replace(target.Expr)) {
				t.Errorf("%s %s: got %s, want only what nodes show", p.Title, target.RefID, fault)
			}
			for _, variable := range []string{`job=~"$job"`, `instance=~"$instance"`} {
				if !strings.Contains(target.Expr, variable) {
					t.Errorf("%s %s: got %s, want %s in it", p.Title, target.RefID, target.Expr, variable)
				}
			}
		}
	}
	if asked < 50 {
		t.Errorf("expressions of the dashboard: got %d, want at least 50", asked)
	}
	for _, a := range d.Annotations.List {
		for _, fault := range faults(a.Expr) {
			t.Errorf("annotation %s: got %s, want only what nodes show", a.Expr, fault)
		}
	}
	for _, name := range []string{"datasource", "job", "instance"} {
		if !slices.ContainsFunc(d.Templating.List, func(v variable) bool { return v.Name == name }) || !strings.Contains(text, "$"+name) && !strings.Contains(text, "${"+name+"}") {
			t.Errorf("variable %s: got it missing or unused, want it there and in use", name)
		}
	}
}

func TestDashboardIsWellFormed(t *testing.T) {
	d, _ := readDashboard(t)
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 36 {
		t.Errorf("the dashboard: got uid %q, title %q, schema %d, want both, and at least 36", d.UID, d.Title, d.SchemaVersion)
	}
	ids := make(map[int]bool)
	taken := make(map[[2]int]string) // which panel has a cell of the grid
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %d %q: got no title, or an id that is taken or 0, want a title and an id of its own", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && (p.Description == "" || p.Datasource.Type != "prometheus" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0) {
			t.Errorf("panel %s: got no description, data source or target, want all three", p.Title)
		}
		refs := make(map[string]bool)
		for _, target := range p.Targets {
			if refs[target.RefID] || target.RefID == "" {
				t.Errorf("panel %s: got the target %q twice or empty, want one of its own", p.Title, target.RefID)
			}
			refs[target.RefID] = true
		}
		g := p.GridPos
		if g.X < 0 || g.W <= 0 || g.H <= 0 || g.X+g.W > 24 {
			t.Errorf("panel %s: got %+v, want it in the grid, 24 wide", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("panel %s: got a place on %s, want one of its own", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
