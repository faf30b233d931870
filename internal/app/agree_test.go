package app

import (
	"net/http"
	"strings"
	"testing"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
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
		t.Errorf("the log lacks %s: %s", want, b.log)
	}
	shown.want("/metrics", http.StatusOK, "\nunderstudy_settings_differ 1\n")
	b.promotable()
	a.knows(1)
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
		t.Errorf("the primary compares its settings with its own: %s", a.log)
	}
}
