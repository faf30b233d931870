package metrics

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// Alerts and dashboards are checked against these lists, so they must be what is
// shown: of a status all that there are, of the rest each from the start.
func TestLabelValuesAreWhatIsShown(t *testing.T) {
	r := newRig(t)
	r.Call(t.Context(), "/a.B/C", codes.OK, time.Millisecond)
	shown := make(map[string][]string)
	for _, f := range r.gather() {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				label := f.GetName() + " " + l.GetName()
				shown[label] = append(shown[label], l.GetValue())
			}
		}
	}
	fixed := 0
	for _, f := range Families() {
		for _, label := range f.Labels {
			values := f.LabelValues(label)
			if values == nil {
				continue
			}
			fixed++
			all := values
			if label == "code" {
				all = []string{"OK"}
			}
			got := shown[f.Name+" "+label]
			if slices.Sort(got); !slices.Equal(slices.Compact(got), slices.Sorted(slices.Values(all))) {
				t.Errorf("the label %s of %s: got %s shown, want those of LabelValues: %s", label, f.Name, got, values)
			}
		}
	}
	if fixed != 7 {
		t.Errorf("%d labels have known values, want 7", fixed)
	}
	if codes := (Family{Name: "understudy_rpc_duration_seconds"}).LabelValues("code"); len(codes) != 17 || strings.Contains(strings.Join(codes, " "), "Code(") {
		t.Errorf("statuses: %s; want 17, each with a name", codes)
	}
}
