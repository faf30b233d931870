package docs_test

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/metrics"
)

// An absence is a row of mooncake.md's table of the metrics of Mooncake's master
// that are not offered. A metric that could only ever be 0 is among them: it would
// say that something is watched that does not exist.
type absence struct {
	names   []string // patterns
	why     string
	instead []string // metrics that answer the same question
}

// absences reads the table.
func absences(t *testing.T) (list []absence) {
	t.Helper()
	_, table, found := strings.Cut(read(t, "mooncake.md"), "| not offered | why | look at |\n|---|---|---|\n")
	if !found {
		t.Fatal("mooncake.md: got no table of the metrics that are not offered, want one")
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			break // the table ends
		}
		var a absence
		for _, name := range quoted.FindAllStringSubmatch(cells[1], -1) {
			a.names = append(a.names, name[1])
		}
		for _, name := range quoted.FindAllStringSubmatch(cells[3], -1) {
			a.instead = append(a.instead, name[1])
		}
		a.why = strings.TrimSpace(cells[2])
		list = append(list, a)
	}
	return list
}

// Whoever comes with the dashboard of Mooncake finds each metric, or the reason
// why it is not there.
func TestEveryUpstreamMetricIsShownOrExplained(t *testing.T) {
	shown := make(map[string]bool)
	for _, f := range metrics.Families() {
		shown[f.Name] = true
	}
	table := absences(t)
	absent := func(name string) (n int) {
		for _, a := range table {
			for _, pattern := range a.names {
				if ok, err := path.Match(pattern, name); err != nil {
					t.Fatal(err)
				} else if ok {
					n++
				}
			}
		}
		return n
	}
	names := upstreamMetrics(t)
	if len(names) < 130 {
		t.Fatalf("got %d names of Mooncake's metrics, want the whole lists", len(names))
	}
	for _, name := range names {
		switch n := absent(name); {
		case shown[name] && n > 0:
			t.Errorf("%s is shown: got it explained as absent, want no such row in mooncake.md", name)
		case !shown[name] && n != 1:
			t.Errorf("%s is not shown, and explained %d times, want once", name, n)
		}
	}
	for name := range shown {
		if absent(name) > 0 {
			t.Errorf("%s is shown: got it explained as absent, want no such row in mooncake.md", name)
		}
	}
	for _, a := range table {
		if len(a.names) == 0 || a.why == "" {
			t.Errorf("a row of absent metrics: got %+v, want names and a reason", a)
		}
		for _, instead := range a.instead {
			if name, _, _ := strings.Cut(instead, "{"); !shown[name] {
				t.Errorf("instead of %v: got %s, want a metric that exists", a.names, name)
			}
		}
	}
}

// upstreamMetrics returns names of metrics of Mooncake's master; a histogram's is
// that of its family.
func upstreamMetrics(t *testing.T) (names []string) {
	t.Helper()
	for _, file := range []string{"testdata/mooncake_dashboard.txt", "testdata/mooncake_ha.txt"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if name := strings.TrimSpace(line); !strings.HasPrefix(name, "#") {
				names = append(names, strings.TrimSuffix(name, "_bucket"))
			}
		}
	}
	return names
}
