package promote_test

import (
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/promote"
)

// version returns how often a node's key was written.
func (w *cluster) version(c *clientv3.Client, id string) int64 {
	w.t.Helper()
	resp, err := c.Get(w.t.Context(), layout.Node(id))
	if err != nil || len(resp.Kvs) != 1 {
		w.t.Fatalf("the key of %s: got %v, %v, want it", id, resp, err)
	}
	return resp.Kvs[0].Version
}

// A primary registers its counts when they change, once a second at most, and a standby reads
// them. While they stay as they are, nothing is written for
// them.
func TestCounts(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	var gets atomic.Int64
	var changing atomic.Bool
	a := w.start("a", steady, func(c *promote.Config) {
		c.Counts = func() promote.Counts {
			if changing.Load() {
				gets.Add(1)
			}
			return promote.Counts{Since: 1, Gets: gets.Load()}
		}
	})
	w.serving(a)
	b := w.start("b", steady, func(c *promote.Config) {
		c.Counts = func() promote.Counts { return promote.Counts{Since: 2} }
	})
	w.promotable(b)
	waitFor(t, "a's counts", func() bool { return b.Status().Counts.Since == 1 })
	c := w.etcd.Client(t)
	before, seq, read := w.version(c, "a"), a.Status().Position.Seq, b.Status().Counts.Read
	waitFor(t, "b's later looks", func() bool { return b.Status().Counts.Read > read+3*time.Second })
	now, moved := w.version(c, "a"), a.Status().Position.Seq-seq
	if now-before > int64(moved)+1 {
		t.Errorf("an idle primary wrote its key %d times while its sequence moved by %d, want no more", now-before, moved)
	}

	before = w.version(c, "a")
	begun := time.Now()
	changing.Store(true)
	waitFor(t, "newer counts", func() bool { return b.Status().Counts.Gets >= 4 })
	if now = w.version(c, "a"); time.Duration(now-before-1)*time.Second > time.Since(begun)+100*time.Millisecond {
		t.Errorf("the key was written %d times in %v, want once a second", now-before, time.Since(begun))
	}
	if got := b.Status().Counts; got.NodeID != "a" || got.Read == 0 {
		t.Errorf("b read %+v, want those of a", got)
	}
	nodes, err := b.Nodes(t.Context())
	if err != nil || len(nodes) != 2 || nodes[1].Counts != (promote.Counts{}) {
		t.Errorf("the nodes are %+v (%v), want b without counts: it does not serve", nodes, err)
	}
}
