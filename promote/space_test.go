package promote_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/promote"
)

func owner(c *promote.Config) { c.OwnsEtcd = true }

// A node whose own etcd is full makes space before it can register, and serves.
func TestStartOnAFullEtcd(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
	etcd.FillQuota(t)
	w := newCluster(t, etcd)
	a := w.start("a", owner)
	w.serving(a).mount()
	a.put("k")
}

// A primary dies while etcd is full: a standby makes space and takes over, with
// everything.
func TestTakeoverOnAFullEtcd(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
	w := newCluster(t, etcd)
	// a must not make space itself.
	a := w.start("a", func(c *promote.Config) { c.Compact = false })
	w.serving(a).mount()
	a.put(keys("k", 20)...)
	b, c := w.start("b", owner), w.start("c", owner) // one of them takes over
	w.promotable(b)
	w.promotable(c)
	w.equal(a, b)
	w.equal(a, c)
	etcd.FillQuota(t)
	a.wire.cut()
	primary := w.serving(b, c)
	for _, key := range keys("k", 20) {
		if err := primary.get(key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	primary.put("after")
	a.wire.heal()
}

// Nobody makes space in an etcd that is not ours: the node says so and ends.
func TestStartOnAFullExternalEtcd(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
	etcd.FillQuota(t)
	w := newCluster(t, etcd)
	a := w.start("a", func(c *promote.Config) { c.EventsTTL = 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case err := <-a.done:
		a.done <- err
		if err == nil || !strings.Contains(err.Error(), "disarm") {
			t.Errorf("it ended with %v", err)
		}
	case <-ctx.Done():
		t.Error("it goes on for ever")
	}
}
