package promote_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/promote"
)

// A state directory of another cluster says nothing about this one, so none of its nodes is
// listed here.
func TestMemoryOfAnotherCluster(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	dir := t.TempDir()
	a := w.start("a")
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	old := `{"complete":{"stranger":"10.0.0.9:50051"},"primary":"stranger","term":77,"sequence":99,"last_term":77,"etcd_cluster":1234,"history":"11111111111111111111111111111111","cluster_id":"other"}`
	if err := os.WriteFile(filepath.Join(dir, "cluster"), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	b := w.start("b", stateIn(dir, time.Hour))
	w.promotable(b)
	w.know(a, b)
	w.listedComplete("a", "b")
}

// What a node remembers of its cluster may be damaged: it says so, and starts all the same.
func TestDamagedMemoryIsSaid(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cluster"), []byte(`{"complete":{"b":`), 0o600); err != nil {
		t.Fatal(err)
	}
	var log waittest.Buffer
	a := w.start("a", stateIn(dir, time.Hour), func(c *promote.Config) { c.Log = zerolog.New(&log) })
	w.serving(a)
	if !strings.Contains(log.String(), "what this node remembers of its cluster cannot be read") {
		t.Errorf("a damaged memory of the cluster: got this log, want it to say that the memory cannot be read:\n%s", log.String())
	}
}
