package promote_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/understudy-store/understudy/etcdtest"
)

// A node restarts with a file that fits the journal in etcd, and the primary, which may have
// gone on from there, does not answer. If etcd has another id, it is a restored backup. Then
// memory that is free in the node's state stays in quarantine, since the primary may have
// given it out.
func TestRestartOnARestoredEtcd(t *testing.T) {
	t.Parallel()
	for name, restored := range map[string]bool{"the same etcd": false, "another etcd": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, dir := aloneWithItsFile(t)
			if restored {
				otherEtcd(t, dir)
			}
			b := w.start("b", stateIn(dir, time.Hour))
			w.serving(b).has(keys("k", 5)...)
			if s := b.Store().Stats(); s.Quarantined+s.Busy >= s.Capacity != restored {
				t.Errorf("%d bytes are in quarantine and %d in use, of %d; want all of them %v", s.Quarantined, s.Busy, s.Capacity, restored)
			}
		})
	}
}

// As TestRestartOnARestoredEtcd, but the node is restarted once more before it serves.
func TestRestartTwiceOnARestoredEtcd(t *testing.T) {
	t.Parallel()
	w, dir := aloneWithItsFile(t)
	otherEtcd(t, dir)
	b := w.start("b", stateIn(dir, time.Hour))
	waitFor(t, "b to remember the new etcd", func() bool {
		var m map[string]any
		kept, _ := os.ReadFile(filepath.Join(dir, "cluster"))
		_ = json.Unmarshal(kept, &m)
		return m["etcd_cluster"] != float64(1)
	})
	if b.serves() {
		t.Fatal("b serves on the new etcd, want it still to wait, as this test restarts it before")
	}
	b.end()
	b = w.start("b", stateIn(dir, time.Hour))
	w.serving(b).has(keys("k", 5)...)
	if s := b.Store().Stats(); s.Quarantined+s.Busy < s.Capacity {
		t.Errorf("A: %d bytes are in quarantine and %d in use, of %d; want all of them", s.Quarantined, s.Busy, s.Capacity)
	}
}

// aloneWithItsFile stops a standby b, whose state file in dir has everything, and lets the
// primary a die.
func aloneWithItsFile(t *testing.T) (w *cluster, dir string) {
	t.Helper()
	w, dir = newCluster(t, etcdtest.Start(t)), t.TempDir()
	a := w.start("a")
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	b := w.start("b", stateIn(dir, time.Hour))
	w.promotable(b)
	w.know(a, b)
	w.equal(a, b)
	b.end()
	a.vanish()
	return w, dir
}

// otherEtcd makes a node remember another etcd than the one that it will find.
func otherEtcd(t *testing.T, dir string) {
	t.Helper()
	file := filepath.Join(dir, "cluster")
	var memory map[string]any
	kept, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(kept, &memory)
	}
	if err != nil || memory["etcd_cluster"] == nil {
		t.Fatalf("the node remembers %s (%v), want etcd's id", kept, err)
	}
	memory["etcd_cluster"] = 1
	if kept, err = json.Marshal(memory); err == nil {
		err = os.WriteFile(file, kept, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
