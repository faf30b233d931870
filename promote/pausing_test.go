package promote_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/etcdtest/faultinject"
	"github.com/understudy-store/understudy/promote"
)

// While automatic takeover is paused, no node takes over from a primary that is gone, and the
// status says why. When the pause ends, a node takes over.
func TestPauseHoldsTakeoversBack(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a")
	w.serving(a).mount()
	a.put("k")
	b := w.start("b")
	w.promotable(b)
	w.know(a, b)
	if err := b.PauseTakeover(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if left, err := a.Paused(t.Context()); err != nil || left <= 0 || left > time.Minute {
		t.Errorf("paused for another %v, %v; want up to a minute", left, err)
	}
	a.wire.cut() // it is fenced, and its session ends
	waitFor(t, "b to say why nobody serves", func() bool {
		o := b.Status().Obstacle
		return o != nil && o.Cause == promote.TakeoverPaused && strings.Contains(o.Help, "masterctl resume")
	})
	if n := b.Status().Deposals; n != 0 {
		t.Errorf("b deposed %d primaries, want none", n)
	}
	if a.serves() || b.serves() {
		t.Errorf("a serves: %v, b serves: %v; want neither (promise F for a, the pause for b)", a.serves(), b.serves())
	}
	if err := b.PauseTakeover(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	w.serving(b).has("k")
	a.wire.heal()
	waitFor(t, "a to follow", func() bool { return a.Status().Self.Promotable && !a.serves() })
}

// A pause allows handovers, and a takeover by the primary that served last. It ends by itself.
func TestWhatAPauseLetsPass(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a")
	w.serving(a).mount()
	b := w.start("b")
	w.promotable(b)
	for d, kind := range map[time.Duration]errs.Kind{-time.Second: errs.InvalidParams, time.Millisecond: errs.InvalidParams, 25 * time.Hour: errs.InvalidParams} {
		if err := a.PauseTakeover(t.Context(), d); errs.KindOf(err) != kind {
			t.Errorf("a pause of %v: %v, want %v", d, err, kind)
		}
	}
	if err := a.PauseTakeover(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a to hand over to b", func() bool {
		_, _, err := a.Handover(t.Context(), 0, "b")
		return err == nil
	})
	w.serving(b)
	w.promotable(a)
	b.wire.cut()
	waitFor(t, "a to say why nobody serves", func() bool {
		o := a.Status().Obstacle
		return o != nil && o.Cause == promote.TakeoverPaused
	})
	b.wire.heal()
	w.serving(b) // it served last

	if err := a.PauseTakeover(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	b.wire.cut()
	w.serving(a)
	b.wire.heal()
}

// etcd restarts the TTL of a lease when it elects another leader, or restarts. A pause still
// ends in time.
func TestAPauseEndsThoughItsLeaseGoesOn(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a")
	w.serving(a).mount()
	a.put("k")
	b := w.start("b")
	w.promotable(b)
	w.know(a, b)
	value, err := json.Marshal(promote.Pause{NodeID: "a", For: "6s"})
	if err != nil {
		t.Fatal(err)
	}
	client := etcd.Client(t)
	lease, err := client.Grant(t.Context(), 3600)
	if err == nil {
		_, err = client.Put(t.Context(), layout.Pause(), string(value), clientv3.WithLease(lease.ID))
	}
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "b to see the pause", func() bool { return b.Status().Paused })
	if left, err := b.Paused(t.Context()); err != nil || left > 6*time.Second {
		t.Errorf("paused for another %v, %v; want up to 6 s", left, err)
	}
	a.wire.cut()
	w.serving(b).has("k")
	if b.Status().Paused {
		t.Error("b has taken over: got the pause of 6s not ended, want it ended")
	}
	a.wire.heal()
}

// While automatic takeover is paused, no node founds a lost journal anew, even if the pause
// itself was lost with the journal.
func TestPauseHoldsFoundingsBack(t *testing.T) {
	t.Parallel()
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.Start(t)
			w := newCluster(t, etcd)
			a := w.start("a")
			w.serving(a).mount()
			_, old := readHead(t, etcd)
			a.put(keys("k", 5)...)
			b := w.start("b")
			w.promotable(b)
			w.know(a, b)
			w.equal(a, b)
			if err := b.PauseTakeover(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "b to see the pause", func() bool { return b.Status().Paused })
			a.ended.Store(true) // it answers nobody
			a.wire.cut()
			lose(t, etcd, old)
			waitFor(t, "b to say why nobody serves", func() bool {
				if b.serves() {
					t.Fatal("b has founded the journal anew while takeover is paused, want it to wait")
				}
				o := b.Status().Obstacle
				return o != nil && o.Cause == promote.TakeoverPaused && strings.Contains(o.Reason, "the journal is lost") && strings.Contains(o.Help, "masterctl resume")
			})
			if left, err := b.Paused(t.Context()); err != nil || left <= 0 || left > time.Minute {
				t.Errorf("paused for another %v, %v; want up to a minute", left, err)
			}
			if err := b.PauseTakeover(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			w.serving(b).has(keys("k", 5)...)
		})
	}
}

// A node finds another journal than its own, with a serving primary. It does not resume a pause
// that it saw in its own journal, since an operator may have ended it.
func TestAPauseThatWasEndedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a, b := w.pair(5)
	w.know(a, b)
	w.equal(a, b)
	if err := b.PauseTakeover(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "b to see the pause", func() bool { return b.Status().Paused })
	b.wire.cut()
	a.vanish()
	w.unregistered("a")
	w.unregistered("b")
	do(t, w.etcd, clientv3.OpDelete(layout.Root, clientv3.WithPrefix()))
	m := w.start("m", func(c *promote.Config) { c.Peers = deaf{w} })
	w.serving(m)
	b.wire.heal()
	waitFor(t, "b to say that it has another journal", func() bool {
		nodes, err := m.Nodes(t.Context())
		return err == nil && slices.ContainsFunc(nodes, func(n promote.NodeInfo) bool { return n.ID == "b" && n.Foreign })
	})
	if left, err := m.Paused(t.Context()); err != nil || left != 0 {
		t.Errorf("paused for another %v, %v; want that the pause has ended", left, err)
	}
}

// The primary that served last founds a lost journal anew despite a pause, although another
// node holds the same state.
func TestThePrimaryFoundsInSpiteOfAPause(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	b := w.start("b")
	w.serving(b).mount()
	b.put("k")
	a := w.start("a")
	w.promotable(a)
	w.know(a, b)
	if err := a.PauseTakeover(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a to see the pause", func() bool { return a.Status().Paused })
	w.equal(b, a)
	do(t, etcd, clientv3.OpDelete(layout.Head()))
	if now := w.founder(a, b); now != b {
		t.Errorf("%s founded the journal anew, want b, which served last", now.id)
	}
	b.has("k")
	w.promotable(a)
}

// An order whose answer is lost may have been executed, so it does not count as refused.
func TestOrdersWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	writes := ""
	run := &faultinject.Run{Kind: faultinject.AnswerLost, I: 1, Row: 1 << 20}
	var all sync.Mutex // of writes
	run.Skip = func(method string, _ int) bool {
		all.Lock()
		defer all.Unlock()
		return !strings.HasSuffix(method, writes)
	}
	a := w.start("a")
	w.serving(a).mount()
	b := w.start("b", func(c *promote.Config) { c.Client = etcd.Client(t, run.DialOptions()...) })
	w.promotable(b)
	w.listedComplete("a", "b")
	c := w.start("c")
	w.promotable(c)
	w.listedComplete("a", "b", "c")
	c.vanish()
	lost := func(what, method string, order func() error) {
		t.Helper()
		all.Lock()
		writes = method
		all.Unlock()
		run.Arm()
		err := order()
		run.Disarm()
		if errs.KindOf(err) != errs.Unresolved {
			t.Errorf("%s: got %v, want %v", what, err, errs.Unresolved)
		}
	}
	lost("pausing", "KV/Put", func() error { return b.PauseTakeover(t.Context(), time.Hour) })
	if left, err := a.Paused(t.Context()); err != nil || left == 0 {
		t.Errorf("the pause lasts %v, %v; want that it stands", left, err)
	}
	lost("ending the pause", "KV/DeleteRange", func() error { return b.PauseTakeover(t.Context(), 0) })
	w.unregistered("c")
	lost("giving up a node", "KV/Txn", func() error { return b.Forget(t.Context(), "c") })
	w.listedComplete("a", "b")
}

// The write that completes a term's record fails. The node that served last may still serve
// again during a pause.
func TestAPauseKnowsWhoServedLast(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	var failed atomic.Int64
	hiccup := func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if failed.Load() < 0 {
			return rpctypes.ErrGRPCTimeout // killed
		}
		if r, ok := req.(*etcdserverpb.PutRequest); ok && strings.HasPrefix(string(r.Key), layout.Terms()) && failed.Add(1) == 1 {
			return rpctypes.ErrGRPCTimeout
		}
		return invoke(ctx, method, req, reply, conn, options...)
	}
	dir := t.TempDir()
	a := w.start("a", stateIn(dir, 100*time.Millisecond), func(c *promote.Config) { c.Client = etcd.Client(t, grpc.WithChainUnaryInterceptor(hiccup)) })
	w.serving(a).mount()
	a.put("k")
	w.saved(a)
	waitFor(t, "the record", func() bool { return failed.Load() > 0 })
	if err := a.PauseTakeover(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	dir = copied(t, dir)
	// SIGKILL: its keys go with the sessions
	c := etcd.Client(t)
	leader, _ := c.Get(t.Context(), layout.Leader())
	self, _ := c.Get(t.Context(), layout.Node("a"))
	a.wire.cut()
	for _, kv := range append(leader.Kvs, self.Kvs...) {
		_, _ = c.Revoke(t.Context(), clientv3.LeaseID(kv.Lease))
	}
	failed.Store(-1000) // a killed process writes no end of its term either
	w.serving(w.start("a", stateIn(dir, 100*time.Millisecond))).has("k")
}

// The node that served last serves again during a pause, even if somebody writes garbage over
// its leader key and over all records of terms.
func TestAPauseAmongGarbage(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a")
	w.serving(a).mount()
	a.put("k")
	w.promotable(w.start("b"))
	c := etcd.Client(t)
	for _, key := range []string{layout.Pause(), layout.Term(1), layout.Term(2), layout.Leader()} {
		if _, err := c.Put(t.Context(), key, "nonsense"); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "the next term", func() bool { return a.Status().Takeover.Term > 1 })
	w.serving(a).has("k")
}

// A pause that somebody wrote without a lease lasts for the longest possible time, and the
// status says so.
func TestPausesWithoutALease(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a")
	w.serving(a)
	if _, err := etcd.Client(t).Put(t.Context(), layout.Pause(), "nonsense"); err != nil {
		t.Fatal(err)
	}
	if left, err := a.Paused(t.Context()); err != nil || left < promote.MaxPause-time.Minute {
		t.Errorf("paused for another %v, %v; want nearly %v", left, err, promote.MaxPause)
	}
	b := w.start("b")
	w.promotable(b)
	a.vanish()
	waitFor(t, "the pause to hold b back", func() bool {
		o := b.Status().Obstacle
		return o != nil && strings.Contains(o.Reason, "paused (masterctl pause --for 24h0m0s)")
	})
}
