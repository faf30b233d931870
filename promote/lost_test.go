package promote_test

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/promote"
)

// A leader key without a lease, or one that cannot be read, does not block elections for ever.
func TestALeaderKeyWithoutALease(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"garbage": "garbage", "another node": `{"node_id":"x","rpc_address":"x","term":1,"state":"serving"}`,
		"another node in the last term": `{"node_id":"x","rpc_address":"x","term":1048575,"state":"serving"}`,
	} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t)
			w := newCluster(t, etcd)
			a := w.start("a", func(c *promote.Config) { c.FailoverAfter = 0 }) // nobody deposes
			w.serving(a).mount()
			a.put("k")
			if _, err := etcd.Client(t).Put(t.Context(), layout.Leader(), value); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "a to say why nobody serves", func() bool {
				o := a.Status().Obstacle
				return o != nil && o.Cause == promote.Squatted
			})
			waitFor(t, "the next term", func() bool { return a.serves() && a.Status().Leader.Term == 2 })
			if err := a.get("k"); err != nil {
				t.Error(err)
			}
		})
	}
}

// Nodes refuse a head in a newer format: none serves, and none founds a journal in its place.
// When the old head is back, the cluster goes on with its whole state.
func TestANewerHeadIsRefused(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	w := newCluster(t, etcd)
	a, b := w.pair(5)
	const newer = `{"format":99,"term":1,"sequence":1}`
	before, err := client.Put(t.Context(), layout.Head(), newer, clientv3.WithPrevKV())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{a, b} {
		waitFor(t, n.id+" to see it", func() bool {
			loss := n.Status().Loss.Err
			return !n.serves() && loss != nil && loss.Newer
		})
		if o := n.Status().Obstacle; o == nil || o.Cause != promote.JournalLost || !strings.Contains(o.Help, "upgrade") {
			t.Errorf("%s gives the reason %+v, want that the journal is lost, and that an upgrade helps", n.id, o)
		}
		if n.Status().Self.Promotable {
			t.Errorf("%s is promotable beside a newer head, want not", n.id)
		}
	}
	a.serveNot(time.Second)
	if head, err := client.Get(t.Context(), layout.Head()); err != nil || string(head.Kvs[0].Value) != newer {
		t.Errorf("the head is %v, %v; want it as it was: %s", head, err, newer)
	}
	if _, err := client.Put(t.Context(), layout.Head(), string(before.PrevKv.Value)); err != nil {
		t.Fatal(err)
	}
	now := w.serving(a, b)
	now.has(keys("k", 5)...)
}
