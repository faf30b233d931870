package promote_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/etcdtest/faultinject"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote"
)

// A noSnapshot is a network on which no snapshot ever ends.
type noSnapshot struct{ promote.Peers }

func (noSnapshot) Fetch(ctx context.Context, _ string, _ func([]byte) error) (journal.Cursor, error) {
	<-ctx.Done()
	return journal.Cursor{}, ctx.Err()
}

// incomplete starts a master that never gets the state, and returns a function
// that moves its clock by an hour.
func (w *cluster) incomplete(id string, change func(*promote.Config)) (n *node, hour func()) {
	boot := clock.Boot()
	var ahead atomic.Int64
	n = w.start(id, func(c *promote.Config) {
		c.Peers, c.SessionTTL = noSnapshot{w}, 4*time.Second
		c.Clock = func() time.Duration { return boot() + time.Duration(ahead.Load()) }
	}, change)
	return n, func() { ahead.Add(int64(time.Hour)) }
}

// serveNot checks for a while that a node does not serve.
func (n *node) serveNot(while time.Duration) {
	n.net.t.Helper()
	for end := time.Now().Add(while); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if n.serves() {
			n.net.t.Fatalf("%s serves, empty: %v; want it not to serve for %v", n.id, n.Status().Empty, while)
		}
	}
}

// The last primary has a session TTL, from its own end on, to come back, however long a
// master without the state has been running.
func TestTheLastPrimaryMayComeBack(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a")
	w.serving(a).mount()
	a.put("k")
	m, hour := w.incomplete("m", func(c *promote.Config) { c.OwnsEtcd = true })
	waitFor(t, "m to see a", func() bool { return m.Status().Leader.NodeID == "a" })
	hour()
	a.wire.cut()
	client := etcd.Client(t)
	for _, key := range []string{layout.Leader(), layout.Node("a")} {
		waitFor(t, "the end of "+key, func() bool {
			resp, err := client.Get(t.Context(), key)
			return err == nil && len(resp.Kvs) == 0
		})
	}
	m.serveNot(1500 * time.Millisecond)
	a.wire.heal()
	if w.serving(a, m) != a {
		t.Fatal("D: m serves empty, want a, which holds the state and came back")
	}
	if err := a.get("k"); err != nil {
		t.Error(err)
	}
}

// A permission to start empty ends when another node serves.
func TestPermissionToStartEmptyEnds(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a")
	w.serving(a).mount()
	m, hour := w.incomplete("m", func(c *promote.Config) { c.StartEmpty = true })
	waitFor(t, "m to see a", func() bool { return m.Status().Leader.NodeID == "a" })
	if !m.MayStart() {
		t.Error("a's key is there, but a may be dead: got the permission ended, want it kept")
	}
	hour()
	waitFor(t, "the end of the permission", func() bool { return !m.MayStart() })
	a.end()
	waitFor(t, "m to see that a is gone", func() bool { return m.Status().Leader.NodeID == "" })
	hour()
	m.serveNot(time.Second)
	m.forget("a")
	if err := m.PauseTakeover(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, noWriters := range []bool{true, false} { // the second order takes back what the first said
		if err := m.AllowEmpty(t.Context(), 1, noWriters); err != nil {
			t.Fatal(err)
		}
		if got := m.SaysNoWriters(); got != noWriters {
			t.Errorf("an order to start empty, no writers left: %v: got %v, want what the last order says", noWriters, got)
		}
	}
	if err := m.PauseTakeover(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	w.serving(m)
	if m.MayStart() {
		t.Error("m has started empty: got the permission still there, want it used up")
	}
}

// A node that is stopped while the outcome of its election is open leaves no leader key.
func TestStopWhileElecting(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	old := newPredecessor(t, etcd, "test")
	run := &faultinject.Run{Kind: faultinject.AnswerLost, I: 1, Row: 1}
	_, b := heir(t, etcd, old, run)
	run.OnFault = func() { b.stop() }
	run.Arm()
	old.leave(t)
	waitFor(t, "an election", func() bool { return run.Fault() != "" })
	b.end()
	if l, there := old.leader(t); there {
		t.Errorf("b was stopped while it stood for election: got the leader key %+v, want none", l)
	}
}
