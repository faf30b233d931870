package metrics

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// Families is what documentation is made of, so it must be what is shown.
func TestFamiliesAreWhatIsShown(t *testing.T) {
	r := newRig(t)
	r.poll(t.Context(), true)
	r.Call("/a.B/C", codes.OK, time.Millisecond)
	shown := make(map[string]bool)
	families := make(map[string]Family)
	for _, f := range Families() {
		if _, twice := families[f.Name]; twice {
			t.Errorf("%s is there twice", f.Name)
		}
		if f.Help == "" || !strings.HasSuffix(f.Help, ".") {
			t.Errorf("%s: the help is no sentence: %q", f.Name, f.Help)
		}
		families[f.Name] = f
	}
	for _, f := range r.gather() {
		name := f.GetName()
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "promhttp_") {
			continue
		}
		shown[name] = true
		family, ok := families[name]
		if !ok {
			t.Errorf("%s is shown and not in Families", name)
			continue
		}
		if kind := strings.ToLower(f.GetType().String()); kind != string(family.Kind) || f.GetHelp() != family.Help {
			t.Errorf("%s is shown as a %s with the help %q, Families has %+v", name, kind, f.GetHelp(), family)
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if slices.Sort(labels); !slices.Equal(labels, slices.Sorted(slices.Values(family.Labels))) {
			t.Errorf("%s is shown with the labels %v, Families has %v", name, labels, family.Labels)
		}
	}
	for name := range families {
		if !shown[name] {
			t.Errorf("%s is in Families and not shown", name)
		}
	}
}

// Whoever comes with the dashboard of Mooncake finds each metric, or the reason
// why it is not there.
func TestEveryUpstreamMetricIsShownOrExplained(t *testing.T) {
	shown := make(map[string]bool)
	for _, f := range Families() {
		shown[f.Name] = true
	}
	absent := func(name string) (n int) {
		for _, a := range NotOffered() {
			for _, pattern := range a.Names {
				if ok, err := path.Match(pattern, name); err != nil {
					t.Fatal(err)
				} else if ok {
					n++
				}
			}
		}
		return n
	}
	names := upstreamNames(t)
	if len(names) < 130 {
		t.Fatalf("only %d names: the lists are not whole", len(names))
	}
	for _, name := range names {
		switch n := absent(name); {
		case shown[name] && n > 0:
			t.Errorf("%s is shown, and explained as absent", name)
		case !shown[name] && n != 1:
			t.Errorf("%s is not shown, and explained %d times, want once", name, n)
		}
	}
	for name := range shown {
		if absent(name) > 0 {
			t.Errorf("%s is shown, and explained as absent", name)
		}
	}
	for _, a := range NotOffered() {
		for instead := range strings.SplitSeq(a.Instead, ", ") {
			if name, _, _ := strings.Cut(instead, "{"); name != "" && !shown[name] {
				t.Errorf("%v: %s is named instead, and does not exist", a.Names, name)
			}
		}
	}
}

// upstreamNames returns names of metrics of Mooncake's master; a histogram's is
// that of its family.
func upstreamNames(t *testing.T) (names []string) {
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
