package app

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/promote"
)

// One line says that settings differ, and one that they do no more: here since the
// node itself becomes the primary.
func TestDifferingSettingsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	a := run(t, settings(config.Primary, "a", etcd))
	a.serves()
	other := settings(config.Standby, "b", etcd)
	other.Lease.TTL *= 2
	b := run(t, other)
	says := func(line string) {
		t.Helper()
		b.until("says that settings "+line, func(*pb.StatusResponse) bool { return strings.Contains(b.log.String(), line) })
	}
	shown := &httpNode{App: b.App, t: t, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	const differ, agree = "are not those of the primary", "are those of the primary again"
	says(differ)
	if want := `"level":"warn","node":"b","primary":"a","settings":["default_kv_lease_ttl is 2s here, 1s there"]`; !strings.Contains(b.log.String(), want) {
		t.Errorf("the log of b, whose settings differ: got %s, want %s", b.log, want)
	}
	shown.want("/metrics", http.StatusOK, "\nunderstudy_settings_differ 1\n")
	b.promotable()
	a.knows(1)
	const change = "default_kv_lease_ttl would change from 1s to 2s"
	for _, n := range []*member{a, b} { // the primary above all, where a handover is ordered
		at := &httpNode{App: n.App, t: t, http: shown.http}
		at.becomes("/console/cluster", http.StatusOK, `<span class="good">yes</span>; <b>`+change+`</b>`)
	}
	(&httpNode{App: a.App, t: t, http: shown.http}).becomes("/console/cluster", http.StatusOK, "and make b the primary? b can take over, ")
	a.end()
	b.serves()
	says(agree)
	shown.want("/metrics", http.StatusOK, "\nunderstudy_settings_differ 0\n")
	for _, line := range []string{differ, agree} {
		if got := strings.Count(b.log.String(), line); got != 1 {
			t.Errorf("%d lines say that settings %s, want 1: %s", got, line, b.log)
		}
	}
	if strings.Contains(a.log.String(), "settings of this node") {
		t.Errorf("the log of the primary: got %s, want no line about settings: it has nobody to compare with", a.log)
	}
}

// A status says of each node, on every node, what would change if it became the primary. It
// bounds how much.
func TestTakeoverChanges(t *testing.T) {
	many := `{"x":"` + strings.Repeat("é", 100) + `"`
	for i := range 20 {
		many += fmt.Sprintf(`,"y%02d":"1"`, i)
	}
	for name, row := range map[string]struct {
		own, primary string
		want         []string
	}{
		"alike":  {`{"x":"1"}`, `{"x":"1"}`, nil},
		"differ": {`{"x":"1","y":"2"}`, `{"x":"3","z":""}`, []string{"x would change from 3 to 1", "y would change from the default to 2", "z would change from empty to the default"}},
		"defaults": {`{"default_kv_lease_ttl":"7s"}`, `{"allocation_strategy":"free_ratio_first","enable_multi_tenants":"true"}`, []string{
			"allocation_strategy would change from free_ratio_first to random (the default)", "default_kv_lease_ttl would change from 10s (the default) to 7s",
			"enable_multi_tenants would change from true to false (the default)",
		}},
		"not known":   {"", `{}`, []string{"whether settings would change is not known"}},
		"older nodes": {`{}`, "", []string{"whether settings would change is not known"}},
		"many": {many + "}", `{}`, []string{
			"x would change from the default to " + strings.Repeat("é", 32) + "…", "y00 would change from the default to 1", "y01 would change from the default to 1",
			"y02 would change from the default to 1", "y03 would change from the default to 1", "y04 would change from the default to 1", "y05 would change from the default to 1",
			"y06 would change from the default to 1", "13 more settings would change",
		}},
	} {
		a, b, c := promote.NodeInfo{ID: "a", Settings: row.primary}, promote.NodeInfo{ID: "b", Settings: row.own}, promote.NodeInfo{ID: "c"}
		for _, self := range []promote.NodeInfo{a, b, c} {
			s := promote.Status{Self: self, Leader: promote.Leader{NodeID: "a"}}
			if got := takeoverChanges(b, s, []promote.NodeInfo{a, b, c}); !slices.Equal(got, row.want) {
				t.Errorf("%s: %s says of b %q, want %q", name, self.ID, got, row.want)
			}
			if got := takeoverChanges(a, s, []promote.NodeInfo{a, b, c}); got != nil {
				t.Errorf("%s: %s says of the primary %q, want nothing", name, self.ID, got)
			}
		}
		if got := takeoverChanges(b, promote.Status{Self: b}, []promote.NodeInfo{b}); got != nil {
			t.Errorf("%s: without a primary: got %q, want nothing", name, got)
		}
	}
}
