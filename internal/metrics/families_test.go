package metrics

import (
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
	r.Call(t.Context(), "/a.B/C", codes.OK, time.Millisecond)
	shown := make(map[string]bool)
	families := make(map[string]Family)
	for _, f := range Families() {
		if _, twice := families[f.Name]; twice {
			t.Errorf("Families: got %s twice, want it once", f.Name)
		}
		if f.Help == "" || !strings.HasSuffix(f.Help, ".") {
			t.Errorf("%s: got the help %q, want a sentence", f.Name, f.Help)
		}
		families[f.Name] = f
	}
	r.breakQuota("red", 100)
	for _, f := range r.gather() {
		name := f.GetName()
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "promhttp_") {
			continue
		}
		shown[name] = true
		family, ok := families[name]
		if !ok {
			t.Errorf("%s: got it shown, want it in Families too", name)
			continue
		}
		if kind := strings.ToLower(f.GetType().String()); kind != string(family.Kind) || f.GetHelp() != family.Help {
			t.Errorf("%s: got a %s with the help %q, want what Families has: %+v", name, kind, f.GetHelp(), family)
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if slices.Sort(labels); !slices.Equal(labels, slices.Sorted(slices.Values(family.Labels))) {
			t.Errorf("%s: got the labels %v, want those of Families: %v", name, labels, family.Labels)
		}
	}
	for name := range families {
		if !shown[name] {
			t.Errorf("%s of Families: got it not shown, want it shown", name)
		}
	}
}
