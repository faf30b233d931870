package promote_test

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
)

// A node that was away while an operator forgot another one still remembers that one as
// complete. It does not list it again; the forgotten node lists itself when it comes back.
func TestForgottenWhileANodeWasAway(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	dirB, dirC := t.TempDir(), t.TempDir()
	a := w.start("a")
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	b, c := w.start("b", stateIn(dirB, time.Hour)), w.start("c", stateIn(dirC, time.Hour))
	w.promotable(b)
	w.promotable(c)
	w.know(a, b, c)
	c.end()
	b.end()
	a.forget("b")
	c = w.start("c", stateIn(dirC, time.Hour))
	w.promotable(c)
	waitFor(t, "c to know of a alone", func() bool { return c.Known() == 1 })
	w.listedComplete("a", "c")

	b = w.start("b", stateIn(dirB, time.Hour))
	w.promotable(b)
	w.listedComplete("a", "b", "c")
	client := w.etcd.Client(t)
	waitFor(t, "nobody to stand under forgotten/", func() bool {
		resp, err := client.Get(t.Context(), layout.Forgotten(), clientv3.WithPrefix())
		return err == nil && len(resp.Kvs) == 0
	})
}

// A forgotten node came back within the term, and is away again, when etcd goes back to before
// it came back. A node that remembers it as complete since then lists it again.
func TestForgottenAndBackWithinTheTerm(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	dirB, dirC := t.TempDir(), t.TempDir()
	a := w.start("a")
	w.serving(a).mount()
	b, c := w.start("b", stateIn(dirB, time.Hour)), w.start("c", stateIn(dirC, time.Hour))
	w.promotable(b)
	w.promotable(c)
	w.know(a, b, c)
	b.end()
	a.forget("b")
	client := w.etcd.Client(t)
	order, err := client.Get(t.Context(), layout.ForgottenNode("b"))
	if err != nil || len(order.Kvs) != 1 {
		t.Fatalf("the order is %v (%v), want one", order, err)
	}
	waitFor(t, "c to know of a alone", func() bool { return c.Known() == 1 })
	b = w.start("b", stateIn(dirB, time.Hour))
	w.promotable(b)
	w.know(a, b, c)
	c.end()
	b.end()
	w.unregistered("b")
	_, err = client.Txn(t.Context()).Then(
		clientv3.OpDelete(layout.CompleteNode("b")), clientv3.OpPut(layout.ForgottenNode("b"), string(order.Kvs[0].Value)),
	).Commit()
	if err != nil {
		t.Fatal(err)
	}
	c = w.start("c", stateIn(dirC, time.Hour))
	w.promotable(c)
	w.listedComplete("a", "b", "c")
}

// A key under nodes/ without a lease is no registration, since nodes write theirs on a lease.
// Forgetting the node deletes such a key, but not one on a lease.
func TestForgetBesideAStrayKey(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a")
	w.serving(a).mount()
	b := w.start("b", stateIn(t.TempDir(), time.Hour))
	w.promotable(b)
	w.listedComplete("a", "b")
	b.end()
	w.unregistered("b")
	client := w.etcd.Client(t)
	lease, err := client.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	put := func(options ...clientv3.OpOption) {
		t.Helper()
		if _, err := client.Put(t.Context(), layout.Node("b"), "nobody can read this", options...); err != nil {
			t.Fatal(err)
		}
	}
	put(clientv3.WithLease(lease.ID))
	if err := a.Forget(t.Context(), "b"); errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "is registered") {
		t.Errorf("a key on a lease: got %v, want that b is registered", err)
	}
	put()
	if err := a.Forget(t.Context(), "b"); err != nil {
		t.Errorf("a key without a lease: got %v, want no error", err)
	}
	w.listedComplete("a")
	if resp, err := client.Get(t.Context(), layout.Node("b")); err != nil || len(resp.Kvs) != 0 {
		t.Errorf("under nodes/b: got %v (%v), want nothing", resp, err)
	}
}
