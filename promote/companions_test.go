package promote_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/understudy-store/understudy/etcdtest"
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
