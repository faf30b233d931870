package promote_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/promote"
)

// besides is a master on its own etcd whose directory, without a state, stands beside those of
// other nodes. It would start empty after 100 ms.
func besides(root, id string) func(*promote.Config) {
	return func(c *promote.Config) {
		ownsEtcd(c)
		c.StateDir, c.StateSaveInterval, c.StateBeside = filepath.Join(root, id), 10*time.Millisecond, true
	}
}

// keepsBeside waits until a node says that it does not start empty beside another's state files.
func (n *node) keepsBeside(dir string, help ...string) {
	n.net.t.Helper()
	waitFor(n.net.t, n.id+" to name "+dir, func() bool {
		if n.serves() {
			n.net.t.Fatalf("%s serves, empty: %v; want it not to start beside another node's state files", n.id, n.Status().Empty)
		}
		o := n.Status().Obstacle
		return o != nil && o.Cause == promote.HoldsFile && strings.Contains(o.Reason, dir)
	})
	o := n.Status().Obstacle
	for _, want := range help {
		if !strings.Contains(o.Help, want) {
			n.net.t.Errorf("%s helps with %q, want %q in it", n.id, o.Help, want)
		}
	}
}

// A lone master comes back under another id: it does not start empty beside the state files
// that it wrote under the former one. Under that id it has everything. By an operator's order
// it starts empty.
func TestALoneMasterUnderAnotherID(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		saved bool // at its end; else there is only the file from before the first commit
		lost  []clientv3.Op
		wiped bool // so only an order founds the journal from a file
	}{
		"with the journal":          {saved: true},
		"before its first save":     {},
		"with no list of nodes":     {saved: true, lost: []clientv3.Op{clientv3.OpDelete(layout.Complete(), clientv3.WithPrefix())}},
		"with nothing left in etcd": {saved: true, wiped: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCluster(t, etcdtest.Start(t))
			root := t.TempDir()
			a := w.start("a", besides(root, "a"), func(c *promote.Config) { c.StateSaveInterval = time.Hour })
			w.serving(a).mount()
			a.put(keys("k", 5)...)
			w.listedComplete("a")
			if tc.saved {
				a.end()
			} else {
				killed := copied(t, filepath.Join(root, "a"))
				a.vanish()
				if err := errors.Join(os.RemoveAll(filepath.Join(root, "a")), os.CopyFS(filepath.Join(root, "a"), os.DirFS(killed))); err != nil {
					t.Fatal(err)
				}
			}
			w.unregistered("a")
			if tc.wiped {
				w.etcd.Wipe()
			}
			for _, op := range tc.lost {
				do(t, w.etcd, op)
			}

			forget := "masterctl forget --yes a, and then masterctl start-empty --yes --node=b"
			if tc.wiped || tc.lost != nil {
				forget = "these files hold: masterctl start-empty --yes --node=b"
			}
			b := w.start("b", besides(root, "b"))
			b.keepsBeside(filepath.Join(root, "a"), "--node-id=a", "--state-dir="+filepath.Join(root, "a"), forget)
			b.serveNot(500 * time.Millisecond) // it saves nothing meanwhile, nor at its end
			b.end()
			b = w.start("b", besides(root, "b"))
			b.keepsBeside(filepath.Join(root, "a"))
			if !tc.wiped {
				b.end()
				a = w.start("a", besides(root, "a"))
				w.serving(a).has(keys("k", 5)...)
				return
			}
			if err := b.AllowEmpty(t.Context(), 0, true); err != nil {
				t.Fatal(err)
			}
			w.serving(b).mount()
			b.put("l")
		})
	}
}

// Nodes on one machine, with one data directory, join, take over and found a journal beside the
// state files of one another.
func TestNodesOfOneMachine(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	root := t.TempDir()
	a, b := w.start("a", besides(root, "a")), w.start("b", besides(root, "b"))
	first := w.serving(a, b)
	first.mount()
	first.put(keys("k", 5)...)
	w.promotable(a)
	w.promotable(b)
	w.saved(a)
	w.saved(b)
	c := w.start("c", besides(root, "c")) // it gets its state beside two that have files
	w.promotable(c)
	w.equal(first, c)
	a.end()
	b.end()
	w.serving(c).has(keys("k", 5)...)
}

// A directory that was moved away from the node itself, as its status advises, is none of another
// node.
func TestADirectoryThatWasMovedAway(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	root := t.TempDir()
	a := w.start("a", besides(root, "a"))
	w.serving(a).mount()
	a.put("k")
	a.end()
	if err := os.Rename(filepath.Join(root, "a"), filepath.Join(root, "a.old")); err != nil {
		t.Fatal(err)
	}
	a = w.start("a", besides(root, "a"))
	w.serving(a)
	if s := a.Status(); !s.Empty {
		t.Errorf("a serves with %d objects, want an empty term", a.Store().Stats().Objects)
	}
}
