package promote_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

// A primary that cannot reach etcd stops answering, reads included, before its session can
// have ended. It joins as a standby when it reaches etcd again.
func TestCutOffPrimaryIsFenced(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	const session = 10 * time.Second
	a, b := w.pair(20, func(c *promote.Config) { c.SessionTTL = session })
	old := a.master.Load()
	cut := time.Now()
	a.wire.cut()
	waitFor(t, "the fence", func() bool {
		other := b.serves() // looked at first: it may serve as soon as a does not answer
		if old.Answers() && other {
			t.Error("F: b serves while a answers, want a to have stopped before")
		}
		return !old.Answers()
	})
	if silent := time.Since(cut); silent > session {
		t.Errorf("F: a answered for %v after it was cut off, want at most its session TTL, %v", silent, session)
	}
	if _, err := old.GetReplicaList(t.Context(), "default", "k1"); errs.KindOf(err) != errs.NotLeader {
		t.Errorf("F: a read on the fenced node: got %v, want NotLeader", err)
	}
	p := service.PutRequest{Tenant: "default", Config: service.PutConfig{Replicas: 1}}
	if _, err := old.PutStart(t.Context(), p, service.PutItem{Key: "x", Size: 1}); errs.KindOf(err) != errs.NotLeader {
		t.Errorf("F: a put on the fenced node: got %v, want NotLeader", err)
	}
	w.serving(b)
	if role := a.Status().Self.Role; role != promote.Fenced && role != promote.HandingOver {
		t.Errorf("got role %s of the fenced node, want %s or %s", role, promote.Fenced, promote.HandingOver)
	}
	b.put(keys("l", 20)...)
	a.wire.heal()
	waitFor(t, "a to follow", func() bool { s := a.Status().Self; return s.Role == promote.Standby && s.Promotable })
	w.equal(b, a)
	if _, err := b.Store().Inspect("default", "x"); err == nil {
		t.Error("F: the put of the fenced node is in the state, want none of its writes there")
	}
}

// An outage of etcd that the leases survive causes no failover. Nothing is reserved during the
// outage (conformance line 83).
func TestEtcdOutage(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a, b := w.pair(20)
	old := a.master.Load()
	reserve := func(key string, within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := old.PutStart(ctx, service.PutRequest{Tenant: "default", Config: service.PutConfig{Replicas: 1}}, service.PutItem{Key: key, Size: 1})
		return err
	}
	etcd.Stop(0)
	if err := reserve("early", 200*time.Millisecond); err == nil { // it may have been sent: nobody knows its outcome
		t.Error("a reservation while etcd is away: got no error, want one")
	}
	waitFor(t, "the fence", func() bool { return !a.serves() })
	if err := reserve("late", 10*time.Second); errs.KindOf(err) != errs.NotLeader {
		t.Errorf("a reservation behind the fence: got %v, want that this node does not serve", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, _, err := a.Digest(ctx, 0); err != nil {
		t.Errorf("the digest of a fenced node: got %v, want no error", err)
	}
	etcd.Start(0)
	primary := w.serving(a, b)
	for _, key := range keys("k", 20) {
		if err := primary.get(key); err != nil {
			t.Errorf("D: %s after the outage: got %v, want it there", key, err)
		}
	}
	if _, err := primary.Store().Inspect("default", "late"); err == nil {
		t.Error("F: the reservation of the fenced node is in the state, want none of its writes there")
	}
	primary.put("after")
	other := a
	if primary == a {
		other = b
	}
	w.promotable(other)
	w.equal(primary, other)
}

// Two takeovers within one lease TTL, with readers whose leases are not in the journal. Nobody
// else gets the memory that they read.
func TestDoubleFailover(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	long := func(c *promote.Config) {
		c.Params.LeaseTTL, c.SyncInterval = time.Minute, time.Hour
		c.SessionTTL, c.FailoverAfter = 8*time.Second, 3*time.Second // so that there are just two takeovers
	}
	a := w.start("a", long)
	w.serving(a).mount()
	a.put(keys("k", 20)...)
	b, c := w.start("b", long), w.start("c", long)
	w.promotable(b)
	w.promotable(c)
	a.wire.cut()
	first := w.serving(b, c)
	first.put("first")
	second := b
	if first == b {
		second = c
	}
	first.wire.cut()
	w.serving(second)
	a.wire.heal()
	first.wire.heal()
	if err := second.get("first"); err != nil {
		t.Error(err)
	}
	m := second.master.Load()
	if err := m.Remove(t.Context(), service.RemoveRequest{Tenant: "default"}, "k1"); err != nil {
		t.Fatal(err)
	}
	if st := second.Store().Stats(); st.Quarantined != 104 {
		t.Errorf("L: got %d bytes in quarantine after a removal in the first TTL of a term, want 104", st.Quarantined)
	}
	for _, n := range []*node{a, first} {
		waitFor(t, n.id+" to follow", func() bool { s := n.Status().Self; return s.Role == promote.Standby && s.Promotable })
		w.equal(second, n)
	}
	if term := second.Status().Leader.Term; term != 3 {
		t.Errorf("got term %d after two takeovers, want 3", term)
	}
}

// A standby that missed commits gets the primary's state: through its watch if etcd still has
// the history, and else by a snapshot.
func TestLateStandbys(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a", steady, func(c *promote.Config) { c.Compact = false })
	w.serving(a).mount()
	b := w.start("b", steady)
	w.promotable(b)
	w.equal(a, b)

	b.wire.cut()
	a.put(keys("missed", 30)...)
	b.wire.heal()
	w.equal(a, b)
	if n := b.Status().Loads; n[journal.ReasonStart] > 1 || len(n) > 1 {
		t.Errorf("got snapshots %v after a cut of the watch, want that of the start only", n)
	}

	b.wire.cut()
	a.put(keys("gone", 30)...)
	resp, err := etcd.Client(t).Delete(t.Context(), layout.Records(metadata.ObjectEvents), clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	etcd.Compact(t, resp.Header.Revision)
	b.wire.heal()
	waitFor(t, "the snapshot", func() bool { return b.Status().Loads[journal.ReasonCompacted] == 1 })
	w.promotable(b)
	w.equal(a, b)

	// One that joins under load.
	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				a.put(fmt.Sprint("load", i))
			}
		}
	})
	c := w.start("c", steady)
	w.promotable(c)
	close(stop)
	load.Wait()
	w.equal(a, c)
	w.equal(a, b)
}

// A record in etcd that cannot be read makes a standby load a snapshot, and report why.
func TestDivergedStandbyIsRepaired(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a")
	w.serving(a).mount()
	a.put("k")
	b := w.start("b")
	w.promotable(b)
	w.equal(a, b)
	// Make b's state differ behind its back: a commit that the journal does not
	// have would be noticed, so change what is there.
	store := b.Store()
	p := store.Position()
	if _, err := store.Apply(&metadata.Commit{Seq: p.Seq + 1, Term: p.Term, Time: p.Time}, nil); err != nil {
		t.Fatal(err)
	}
	a.put("l")
	waitFor(t, "the repair", func() bool {
		n := b.Status().Loads
		return n[journal.ReasonCorrupt]+n[journal.ReasonDigest] > 0 && b.Status().Self.Promotable
	})
	w.equal(a, b)
}

func TestStandbyNeverBegins(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	s := w.start("s", func(c *promote.Config) { c.MayStartEmpty = false })
	waitFor(t, "the standby to say why", func() bool {
		self := s.Status().Self
		return !self.Promotable && strings.Contains(self.Why, "start a master")
	})
	if err := s.AllowEmpty(t.Context(), 0, true); errs.KindOf(err) != errs.InvalidParams {
		t.Errorf("an order to a standby to start empty: got %v, want InvalidParams", err)
	}
	m := w.start("m")
	w.serving(m).mount()
	m.put("k")
	w.promotable(s)
	w.equal(m, s)
}

// No node has the state any more. A master with an embedded etcd starts empty after one
// session TTL; with an external etcd an operator must order it.
func TestStartEmpty(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a")
	w.serving(a).mount()
	a.put("k")
	a.end()

	b := w.start("b")
	waitFor(t, "b to say why", func() bool { return strings.Contains(b.Status().Self.Why, "not complete") })
	waitFor(t, "b to say what helps", func() bool {
		o := b.Status().Obstacle
		return o != nil && o.Cause == promote.NoneCan && strings.Contains(o.Reason, "b: its state is not complete") && strings.Contains(o.Help, "masterctl forget --yes a")
	})
	if err := b.AllowEmpty(t.Context(), 9, true); errs.KindOf(err) != errs.InvalidParams {
		t.Errorf("an order for another term: got %v, want InvalidParams", err)
	}
	if b.serves() {
		t.Fatal("b serves empty, want it to wait for an operator's order")
	}
	b.forget("a")
	waitFor(t, "b to say what helps then", func() bool {
		o := b.Status().Obstacle
		return o != nil && strings.HasPrefix(o.Help, "start a node that holds the state; if there is none: masterctl start-empty")
	})
	if err := b.AllowEmpty(t.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	w.serving(b)
	st := b.Status()
	if !st.Empty || st.Leader.Term < 100 || st.Position.Seq < 4 || b.Store().Stats().Objects != 0 {
		t.Errorf("got %+v with %d objects, want an empty term behind the old journal, above those that others may have been elected in", st, b.Store().Stats().Objects)
	}
	if err := b.get("k"); errs.KindOf(err) != errs.ObjectNotFound {
		t.Errorf("the old object: got %v, want ObjectNotFound", err)
	}
	if known, _ := b.master.Load().Ping(t.Context(), segment.ClientID{1}); known {
		t.Error("a ping of a client that had mounted a segment before: got that it is known, want it unknown, so that it remounts")
	}
	b.mount()
	p := service.PutRequest{Tenant: "default", Config: service.PutConfig{Replicas: 1}}
	_, err := b.master.Load().PutStart(t.Context(), p, service.PutItem{Key: "x", Size: 1})
	if errs.KindOf(err) != errs.NoAvailableHandle {
		t.Errorf("L: a put into remounted memory: got %v, want NoAvailableHandle", err)
	}
	waitFor(t, "the end of old leases", func() bool {
		_, err := b.master.Load().PutStart(t.Context(), p, service.PutItem{Key: "x", Size: 1})
		return err == nil
	})
	if err := b.AllowEmpty(t.Context(), 0, true); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("an order to start empty while somebody serves: got %v, want Unavailable", err)
	}
	b.end()

	c := w.start("c", func(c *promote.Config) { c.OwnsEtcd, c.WaitForState = true, time.Second })
	w.serving(c)
	if !c.Status().Empty {
		t.Errorf("c, which runs etcd itself, is empty: got %v, want true", c.Status().Empty)
	}
	// Nobody said that no writer is left.
	if held := c.Status().MountsHeldFor; held < params.ReleaseTimeout-10*time.Second {
		t.Errorf("mounted memory is held for %v, want about %v", held, params.ReleaseTimeout)
	}
	c.mount()
	if s := c.Store().Stats(); s.Quarantined != s.Capacity {
		t.Errorf("%d bytes in quarantine, want all %d", s.Quarantined, s.Capacity)
	}
}

func TestTwoNodesWithOneID(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	w.serving(w.start("a"))
	second := &cluster{t: t, etcd: etcd, nodes: map[string]*node{}}
	n := second.start("a")
	select {
	case err := <-n.done:
		n.done <- nil
		if err == nil || !strings.Contains(err.Error(), "--node-id") {
			t.Errorf("a second node with the id: got %v, want an error that names --node-id", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("a second node with the same id still runs after 20s, want it to end")
	}
}

// With cleanup expired, a new primary removes the objects whose leases had expired at the end
// of the old term. It keeps a group while a member is leased.
func TestCleanupOfExpiredObjects(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	cleanup := func(c *promote.Config) { c.Cleanup = promote.CleanupExpired; c.Params.LeaseTTL = 10 * time.Minute }
	a := w.start("a", cleanup)
	w.serving(a).mount()
	a.put(keys("cold", 30)...)
	a.put(keys("grouped", 5)...)
	a.put(keys("warm", 30)...)
	for _, key := range append(keys("warm", 30), keys("grouped", 5)[2]) {
		if err := a.get(key); err != nil {
			t.Fatal(err)
		}
	}
	b := w.start("b", cleanup)
	w.promotable(b)
	at := a.Store().Position().Time
	waitFor(t, "the cold ones to be old", func() bool { return a.Store().Position().Time > at+2000 })
	w.equal(a, b)
	a.wire.cut()
	w.serving(b)
	if got := b.Status().Takeover; got.Objects != 30 || got.Bytes != 30*104 {
		t.Errorf("cleaned up at the takeover: got %+v, want 30 objects of 104 bytes, those with expired leases", got)
	}
	b.has(keys("warm", 30)...)
	b.has(keys("grouped", 5)...) // one of them was read
	a.wire.heal()
	waitFor(t, "a to follow", func() bool { s := a.Status().Self; return s.Role == promote.Standby && s.Promotable })
	w.equal(b, a)
}

// If the successor does not follow, the handover fails, and the primary goes on serving.
func TestFailedHandover(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a", steady, func(c *promote.Config) { c.HandoverTimeout = 300 * time.Millisecond })
	w.serving(a).mount()
	b := w.start("b", steady)
	w.promotable(b)
	waitFor(t, "b in the list of nodes", func() bool {
		nodes, _ := a.Nodes(t.Context())
		return len(nodes) == 2 && nodes[1].Promotable
	})
	b.wire.cut() // its registration outlives that for a while
	if _, _, err := a.Handover(t.Context(), 0, ""); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("a handover to a node that does not follow: got %v, want Unavailable", err)
	}
	if term := w.serving(a).Status().Leader.Term; term != 1 {
		t.Errorf("a serves in term %d, want 1 still", term)
	}
	a.put("after")
	b.wire.heal()
	w.equal(a, b)
}

// A slowPeers takes long to see that a successor follows.
type slowPeers struct{ promote.Peers }

const slowness = 5 * time.Second // far more than a handover takes, also on a slow machine

func (p slowPeers) WaitApplied(ctx context.Context, node promote.NodeInfo, seq metadata.Seq) error {
	if err := clock.Sleep(ctx, slowness); err != nil {
		return err
	}
	return p.Peers.WaitApplied(ctx, node, seq)
}

// The duration of a handover excludes the time in which calls were still answered.
func TestHandoverDuration(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a", steady, func(c *promote.Config) { c.Peers, c.HandoverTimeout = slowPeers{c.Peers}, 10*slowness })
	w.serving(a)
	b := w.start("b", steady)
	w.promotable(b)
	waitFor(t, "b in the list of nodes", func() bool {
		nodes, _ := a.Nodes(t.Context())
		return len(nodes) == 2 && nodes[1].Promotable
	})
	if l, took, err := a.Handover(t.Context(), 0, ""); err != nil || l.NodeID != "b" || took >= slowness {
		t.Errorf("got %v after %v, %v; want b after less than the %v in which a served on", l, took, err, slowness)
	}
}

func TestWrongClock(t *testing.T) {
	t.Parallel()
	// The session's deadline is a matter of this node's own clock: one that
	// jumps ahead, as after a pause of the machine, fences at once.
	w := newCluster(t, etcdtest.Start(t))
	boot := clock.Boot()
	var jump time.Duration
	var mu sync.Mutex
	a := w.start("a", func(c *promote.Config) {
		c.Clock = func() time.Duration { mu.Lock(); defer mu.Unlock(); return boot() + jump }
	})
	w.serving(a).mount()
	m := a.master.Load()
	mu.Lock()
	jump = time.Hour
	mu.Unlock()
	if err := m.Fence(t.Context()); !errors.Is(err, errs.NotLeader) {
		t.Errorf("F: the fence an hour later: got %v, want NotLeader", err)
	}
	waitFor(t, "the next keepalive", func() bool { return a.serves() })
}
