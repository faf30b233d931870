package cluster

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/journal"
)

// A node's snapshots are counted over its lives, and a life that cannot be asked
// adds nothing.
func TestSnapshotLoads(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `# TYPE understudy_snapshot_loads_total counter
understudy_snapshot_loads_total{reason="start"} 1
understudy_snapshot_loads_total{reason="digest"} 2
understudy_digest_mismatches_total 2
`)
	}))
	defer server.Close()
	n := &Node{Name: "n", Process: &Process{Ready: app.Ready{HTTP: strings.TrimPrefix(server.URL, "http://")}, ended: make(chan struct{})}}
	n.keepLoads() // the end of a life
	want := map[journal.Reason]int{journal.ReasonStart: 2, journal.ReasonDigest: 4}
	if got := n.SnapshotLoads(); !maps.Equal(got, want) {
		t.Errorf("of two lives: got %v, want %v", got, want)
	}
	n.paused = true
	want = map[journal.Reason]int{journal.ReasonStart: 1, journal.ReasonDigest: 2}
	if got := n.SnapshotLoads(); !maps.Equal(got, want) {
		t.Errorf("while it is paused: got %v, want %v", got, want)
	}
}
