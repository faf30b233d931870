package promote_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/promote"
)

func completeNodes(t *testing.T, etcd *etcdtest.Cluster) (ids []string) {
	t.Helper()
	resp, err := etcd.Client(t).Get(t.Context(), layout.Complete(), clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		ids = append(ids, strings.TrimPrefix(string(kv.Key), layout.Complete()))
	}
	return ids
}

func (w *cluster) listedComplete(ids ...string) {
	w.t.Helper()
	waitFor(w.t, fmt.Sprint(ids, " to be listed"), func() bool { return fmt.Sprint(completeNodes(w.t, w.etcd)) == fmt.Sprint(ids) })
}

// awaits waits until a node reports that it waits for exactly these complete nodes.
func (n *node) awaits(ids ...string) {
	n.net.t.Helper()
	waitFor(n.net.t, n.id+" to say for whom it waits", func() bool {
		o := n.Status().Obstacle
		if o == nil || o.Cause != promote.AwaitsComplete || o.Awaited != len(ids) {
			return false
		}
		for _, id := range ids {
			if !strings.Contains(o.Reason, id+" (everything up to sequence") || !strings.Contains(o.Help, id) {
				return false
			}
		}
		return true
	})
}

// forget waits until a node has struck others off the list of complete ones.
func (n *node) forget(ids ...string) {
	n.net.t.Helper()
	for _, id := range ids {
		n.net.unregistered(id)
		if err := n.Forget(n.net.t.Context(), id); err != nil {
			n.net.t.Fatal(err)
		}
	}
}

// vanish ends a node as if its machine had gone.
func (n *node) vanish() {
	n.wire.cut()
	n.ended.Store(true)
	n.end()
}

// unregistered waits until etcd does not know a node any more.
func (w *cluster) unregistered(id string) {
	w.t.Helper()
	client := w.etcd.Client(w.t)
	waitFor(w.t, "the end of "+id, func() bool {
		resp, err := client.Get(w.t.Context(), layout.Node(id))
		return err == nil && len(resp.Kvs) == 0
	})
}

// cutOff starts a cluster whose primary a is gone for good. Its standby b holds everything
// but cannot reach etcd.
func cutOff(t *testing.T, change ...func(*promote.Config)) (w *cluster, b *node) {
	w = newCluster(t, etcdtest.Start(t))
	a := w.start("a")
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	b = w.start("b", change...)
	w.promotable(b)
	w.equal(a, b)
	w.listedComplete("a", "b")
	b.wire.cut()
	a.vanish()
	w.unregistered("a")
	w.unregistered("b")
	return w, b
}

// A master without the state, on its own etcd, does not start empty while a node that holds
// the state is only away. That node serves when it is back.
func TestACompleteNodeIsAwaited(t *testing.T) {
	t.Parallel()
	w, b := cutOff(t)
	m := w.start("m", func(c *promote.Config) { c.OwnsEtcd, c.WaitForState = true, time.Minute })
	m.awaits("a", "b")
	m.serveNot(4 * time.Second)
	if o := b.Status().Obstacle; o == nil || o.Cause != promote.EtcdAway {
		t.Errorf("b gives the reason %+v, want %s", o, promote.EtcdAway)
	}
	b.wire.heal()
	if w.serving(m, b) != b {
		t.Fatal("D: m serves empty, want b, which holds the state and came back")
	}
	b.has(keys("k", 5)...)
}

// The wait has an end where the etcd is embedded.
func TestTheWaitForCompleteNodesEnds(t *testing.T) {
	t.Parallel()
	w, _ := cutOff(t)
	begun := time.Now()
	m := w.start("m", func(c *promote.Config) { c.OwnsEtcd, c.WaitForState = true, 8*time.Second })
	m.awaits("a", "b")
	w.serving(m)
	if took := time.Since(begun); took < 8*time.Second || !m.Status().Empty {
		t.Errorf("m serves after %v, empty: %v; want 8s or more, and empty", took, m.Status().Empty)
	}
}

// An operator can forget nodes that do not come back, but not while they run. Until then an
// order to start empty is refused.
func TestForget(t *testing.T) {
	t.Parallel()
	w, b := cutOff(t)
	m := w.start("m")
	refused := func(what string, err error, kind errs.Kind, says ...string) {
		t.Helper()
		if errs.KindOf(err) != kind {
			t.Errorf("%s: got %v, want %v", what, err, kind)
			return
		}
		for _, say := range says {
			if !strings.Contains(err.Error(), say) {
				t.Errorf("%s: got %v, want it to say %q", what, err, say)
			}
		}
	}
	refused("starting empty", m.AllowEmpty(t.Context(), 1, true), errs.Unavailable, "b (everything up to sequence", "masterctl forget --yes a b")
	refused("giving up a node that runs", m.Forget(t.Context(), "b"), errs.Unavailable, "node b runs")
	refused("giving up a stranger", m.Forget(t.Context(), "x"), errs.InvalidParams, "a (everything up to sequence")
	waitFor(t, "m to be registered", func() bool { list, err := m.Nodes(t.Context()); return err == nil && len(list) == 1 })
	b.vanish()
	m.forget("a", "b")
	if err := m.AllowEmpty(t.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	w.serving(m)
	w.listedComplete("m")
	refused("giving up the primary", m.Forget(t.Context(), "m"), errs.Unavailable, "m is registered")
}

// Where etcd has lost the head, no term that a node remembers is the last one: an order to start
// empty is judged by who holds the state.
func TestStartEmptyWithoutAHead(t *testing.T) {
	t.Parallel()
	w, _ := cutOff(t)
	m := w.start("m")
	do(t, w.etcd, clientv3.OpDelete(layout.Head()))
	if err := m.AllowEmpty(t.Context(), 7, true); errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "masterctl forget --yes a b") {
		t.Errorf("got %v, want that a and b may hold the state", err)
	}
}

// deaf is a network on which packets to other machines are lost, as if these had gone.
type deaf struct{ *cluster }

func (deaf) Standing(ctx context.Context, _ string) (promote.Standing, error) {
	<-ctx.Done()
	return promote.Standing{}, ctx.Err()
}

// A node can be forgotten within the time limit of the order although its machine drops the
// request that asks whether it runs.
func TestForgetWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	w, b := cutOff(t)
	m := w.start("m", func(c *promote.Config) { c.Peers = deaf{w} })
	b.vanish()
	w.unregistered("b")
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	for _, id := range []string{"a", "b"} {
		if err := m.Forget(ctx, id); err != nil {
			t.Errorf("forgetting %s, whose machine drops the question: got %v, want no error", id, err)
		}
	}
}

// starting is a network in which b has just been started.
type starting struct{ *cluster }

func (starting) Standing(context.Context, string) (promote.Standing, error) {
	return promote.Standing{}, fmt.Errorf("peer b: %w", &promote.StartingError{NodeID: "b", Why: "this node waits for etcd"})
}

// A node that runs and cannot say yet what it holds is not forgotten.
func TestForgetANodeThatStarts(t *testing.T) {
	t.Parallel()
	w, b := cutOff(t)
	m := w.start("m", func(c *promote.Config) { c.Peers = starting{w} })
	b.vanish()
	w.unregistered("b")
	if err := m.Forget(t.Context(), "b"); errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "node b runs") || !strings.Contains(err.Error(), "waits for etcd") {
		t.Errorf("b: got %v, want that it runs and waits for etcd", err)
	}
	if err := m.Forget(t.Context(), "a"); err != nil { // b answers at its address
		t.Errorf("a: %v, want no error", err)
	}
}

// A node that moves to another address within a term is listed with that address.
func TestListedAtItsAddress(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a", steady)
	w.serving(a)
	b := w.start("b", steady)
	w.promotable(b)
	w.listedComplete("a", "b")
	b.end()
	w.promotable(w.start("b", steady, func(c *promote.Config) { c.RPC = "elsewhere" }))
	client := w.etcd.Client(t)
	waitFor(t, "b to be listed elsewhere", func() bool {
		resp, err := client.Get(t.Context(), layout.CompleteNode("b"))
		return err == nil && len(resp.Kvs) == 1 && strings.Contains(string(resp.Kvs[0].Value), `"elsewhere"`)
	})
}

// A node never waits for itself, since it knows that it holds nothing any more. Nor does it
// wait for registered nodes: these report what they hold.
func TestNobodyWaitsForNodesThatRun(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a")
	w.serving(a).mount()
	b := w.start("b")
	w.promotable(b)
	w.listedComplete("a", "b")
	b.vanish()
	a.vanish()
	b = w.start("b", func(c *promote.Config) { c.MayStartEmpty = false })
	a = w.start("a", func(c *promote.Config) { c.OwnsEtcd, c.WaitForState = true, time.Hour })
	if w.serving(a); !a.Status().Empty {
		t.Error("a came back without its state: got a term that is not empty, want an empty one")
	}
	w.promotable(b)
}

// If etcd lost the head, and all nodes that hold the state are away, a fresh master waits for
// them as well.
func TestAFreshMasterAwaitsCompleteNodes(t *testing.T) {
	t.Parallel()
	w, b := cutOff(t)
	do(t, w.etcd, clientv3.OpDelete(layout.Head()))
	m := w.start("m", func(c *promote.Config) {
		c.Alone, c.RefoundWait, c.WaitForState = false, 100*time.Millisecond, time.Minute
	})
	m.awaits("a", "b")
	b.wire.heal()
	if w.serving(m, b) != b {
		t.Fatal("D: m serves empty, want b, which holds the state and came back")
	}
	b.has(keys("k", 5)...)
}

// When the list is full, it drops nodes that held less, and keeps the others.
func TestTheListOfCompleteNodesIsBounded(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a")
	w.serving(a)
	waitFor(t, "a history", func() bool { return a.Status().Head.History != "" })
	history := a.Status().Head.History
	for i := range 99 {
		c := promote.CompleteNode{History: "another"}
		if i == 42 {
			c.History = history // in term 0
		}
		value, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		do(t, etcd, clientv3.OpPut(layout.CompleteNode(fmt.Sprintf("old%02d", i)), string(value)))
	}
	b := w.start("b")
	w.promotable(b)
	waitFor(t, "b to be listed", func() bool { return strings.Contains(fmt.Sprint(completeNodes(t, etcd)), " b ") })
	c := w.start("c")
	w.promotable(c)
	w.know(a, b, c)
	if ids := completeNodes(t, etcd); len(ids) != 100 || strings.Contains(fmt.Sprint(ids), "old42") || strings.Contains(fmt.Sprint(ids), " c ") {
		t.Errorf("%d are listed, want 100 without old42 and c: %v", len(ids), ids)
	}
}

// A cluster started empty while a standby with everything was cut off. When the standby comes
// back, it does not take that journal for its own, and keeps its state in a file.
func TestAnEmptyStartFoundsAHistory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, b := cutOff(t, stateIn(dir, time.Hour))
	before, _ := readHead(t, w.etcd)
	m := w.start("m", func(c *promote.Config) { c.OwnsEtcd, c.WaitForState = true, 3*time.Second })
	w.serving(m).mount()
	head, _ := readHead(t, w.etcd)
	if head.History == before.History || head.Parent != before.History || head.Fork != 0 || head.Seq <= before.Seq || head.Term <= before.Term {
		t.Errorf("got head %+v behind %+v, want a new history with fork 0, and a later term and sequence", head, before)
	}
	c := w.start("c") // follows the new history
	w.promotable(c)
	w.equal(m, c)
	if b.Store().Stats().Objects != 5 {
		t.Errorf("b holds %d objects while it is cut off, want 5", b.Store().Stats().Objects)
	}
	b.wire.heal()
	waitFor(t, "b to learn of the new journal", func() bool { return b.Status().Loads[journal.ReasonFounded] == 1 })
	w.promotable(b)
	w.equal(m, b)
	if files, err := filepath.Glob(filepath.Join(dir, "diverged-*")); err != nil || len(files) != 1 {
		t.Errorf("got the files %v, %v; want one with what b held", files, err)
	}
}

// Nodes that hold the state treat a journal that was founded without them as foreign. They
// keep their state, even when no node serves, until an operator decides.
func TestAForeignJournalIsLeftAlone(t *testing.T) {
	t.Parallel()
	w, b := cutOff(t)
	do(t, w.etcd, clientv3.OpDelete(layout.Root, clientv3.WithPrefix()))
	m := w.start("m")
	w.serving(m).mount()
	m.put("new")
	b.wire.heal()
	waitFor(t, "b to see it", func() bool { loss := b.Status().Loss.Err; return loss != nil && loss.Foreign })
	if why := b.Status().Self.Why; !strings.Contains(why, "masterctl refound --from b") { // while m serves, too
		t.Errorf("b says %q, want it to name masterctl refound --from b", why)
	}
	m.vanish()
	w.unregistered("m")
	b.serveNot(4 * time.Second)
	if objects := b.Store().Stats().Objects; objects != 5 {
		t.Errorf("b holds %d objects, want 5", objects)
	}
	m = w.start("n", func(c *promote.Config) { c.OwnsEtcd, c.WaitForState = true, time.Second })
	m.serveNot(3 * time.Second) // b may be needed
}

// Such nodes do not block a failover of the nodes that follow that journal, however high their
// own terms are.
func TestAForeignJournalStopsNoFailover(t *testing.T) {
	t.Parallel()
	w, away, now, other := foreigner(t, t.TempDir())
	w.promotable(other)
	away.wire.heal()
	w.foreign(away)
	now.vanish()
	w.serving(other).has("new")
}

// Such nodes do not block a restart of the nodes that follow that journal.
func TestAForeignJournalStopsNoRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, away, now, other := foreigner(t, dir)
	other.vanish()
	w.saved(now)
	away.wire.heal()
	w.foreign(away)
	now.vanish()
	w.unregistered("m")
	w.unregistered("s")
	w.serving(w.start(now.id, stateIn(filepath.Join(dir, now.id), 100*time.Millisecond))).has("new")
}

// foreigner returns a node, away, that cannot reach etcd. It holds the state of a journal with
// terms far above those of the current one, which now and other have founded since in an etcd
// that had lost everything. These two keep state files below dir.
func foreigner(t *testing.T, dir string) (w *cluster, away, now, other *node) {
	etcd := etcdtest.Start(t)
	w = newCluster(t, etcd)
	a, b := w.pair(5)
	do(t, etcd, clientv3.OpDelete(layout.Head()))
	old := w.founder(a, b) // in a term far above
	away = a
	if old == a {
		away = b
	}
	w.promotable(away)
	away.wire.cut()
	old.vanish()
	w.unregistered("a")
	w.unregistered("b")
	do(t, etcd, clientv3.OpDelete(layout.Root, clientv3.WithPrefix()))
	m := w.start("m", stateIn(filepath.Join(dir, "m"), 100*time.Millisecond))
	s := w.start("s", stateIn(filepath.Join(dir, "s"), 100*time.Millisecond))
	now = w.serving(m, s)
	now.mount()
	now.put("new")
	other = s
	if now == s {
		other = m
	}
	return w, away, now, other
}

// foreign waits until a node is listed as one that holds another journal.
func (w *cluster) foreign(away *node) {
	w.t.Helper()
	waitFor(w.t, away.id+" to be listed with its journal", func() bool {
		nodes, err := away.Nodes(w.t.Context())
		return err == nil && slices.ContainsFunc(nodes, func(n promote.NodeInfo) bool { return n.ID == away.id && n.Foreign })
	})
}

// A node logs when it begins and stops answering, why, and how long the previous state lasted.
// Another node logs why no node serves.
func TestTheServingStateIsLogged(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	var log, other, third waittest.Buffer
	a := w.start("a", func(c *promote.Config) { c.Log = zerolog.New(&log) })
	w.serving(a).mount()
	b := w.start("b", func(c *promote.Config) { c.Log = zerolog.New(&other) })
	w.promotable(b)
	w.listed(a, "b")
	waitFor(t, "a handover", func() bool { _, _, err := a.Handover(t.Context(), 0, "b"); return err == nil })
	w.serving(b)
	for _, want := range []string{`"idle_for":`, `"cause":"an order to hand over","served_for":`} {
		waitFor(t, "a to log "+want, func() bool { return strings.Contains(log.String(), want) })
	}
	c, _ := w.incomplete("c", func(c *promote.Config) { c.Log = zerolog.New(&third) })
	b.wire.cut()
	waitFor(t, "b to log that it lapsed", func() bool { return strings.Contains(other.String(), `"help":"see that etcd `) })
	w.serving(a)
	a.wire.cut()
	a.end()
	waitFor(t, "c to log why nobody serves", func() bool { return strings.Contains(third.String(), `no node serves: no node can take over: `) })
	c.wire.cut()
	waitFor(t, "c to log that it sees nothing", func() bool { return strings.Contains(third.String(), `no node serves: etcd does not answer`) })
	for node, lines := range map[string]string{"a": log.String(), "b": other.String(), "c": third.String()} {
		if strings.Contains(lines, `"before":""`) || strings.Contains(lines, `"help":""`) {
			t.Errorf("%s: got a log with empty fields, want none:\n%s", node, lines)
		}
	}
}
