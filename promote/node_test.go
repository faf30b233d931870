package promote_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/promote/follower"
	"github.com/understudy-store/understudy/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var params = metadata.Params{LeaseTTL: time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}

var layout = journal.NewLayout("/understudy", "test")

var codec = service.Codec()

// A cluster is some nodes in this process on a real etcd. Snapshots go from store
// to store; everything else goes through etcd.
type cluster struct {
	t    *testing.T
	etcd *etcdtest.Cluster

	requests atomic.Uint64 // the last request id

	mu    sync.Mutex
	nodes map[string]*node // by address
}

type node struct {
	*promote.Node
	net    *cluster
	id     string
	master atomic.Pointer[service.Master] // while it serves
	stop   context.CancelFunc
	done   chan error
	wire   wire
	ended  atomic.Bool
	misses atomic.Int64 // how many questions of others it does not answer
}

func newCluster(t *testing.T, etcd *etcdtest.Cluster) *cluster {
	return &cluster{t: t, etcd: etcd, nodes: make(map[string]*node)}
}

// start runs a node. Each has etcd connections of its own.
func (w *cluster) start(id string, change ...func(*promote.Config)) *node {
	w.t.Helper()
	n := &node{net: w, id: id, done: make(chan error, 1)}
	log := zerolog.New(os.Stderr).Level(zerolog.Disabled)
	if testing.Verbose() {
		log = zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, NoColor: true, TimeFormat: "05.000"}).With().Timestamp().Str("node", id).Logger()
	}
	c := promote.Config{
		ID: id, RPC: id, ClusterID: "test", Layout: layout, Codec: codec,
		Client: n.wire.client(w.t, w.etcd.Endpoints()), Sessions: n.wire.client(w.t, w.etcd.Endpoints()), Clock: clock.Boot(), Log: log,
		SessionTTL: 2 * time.Second, FailoverAfter: time.Second, RefoundWait: 3 * time.Second, Alone: true, EventsTTL: 10 * time.Second, Params: params, Cleanup: promote.CleanupAuto,
		SyncInterval: 100 * time.Millisecond, QueueBytes: 1 << 20, MaxJournalBytes: 1 << 28, Compact: true,
		HandoverTimeout: 16 * time.Second, MayStartEmpty: true,
		Follower: follower.Config{FullSyncInterval: time.Second, Counters: new(leasesync.Counters)},
		Journal:  nothing{}, Peers: w, Server: n,
	}
	for _, f := range change {
		f(&c)
	}
	n.Node = promote.New(c)
	w.mu.Lock()
	w.nodes[id] = n
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	go func() { n.done <- n.Run(ctx) }()
	w.t.Cleanup(func() { n.end() })
	return n
}

// end stops a node as SIGTERM would.
func (n *node) end() {
	n.stop()
	defer n.ended.Store(true)
	select {
	case err := <-n.done:
		n.done <- err
	case <-time.After(30 * time.Second):
		n.net.t.Errorf("%s still runs 30s after it was stopped, want it ended", n.id)
	}
}

type nothing struct{}

func (nothing) Committed(context.Context, int, int, time.Duration, time.Duration) {}
func (nothing) Refused(int, error)                                                {}

func (w *cluster) at(address string) (*node, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes[address]; n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("nobody at %q", address)
}

func (w *cluster) Fetch(ctx context.Context, address string, add func([]byte) error) (journal.Cursor, error) {
	n, err := w.at(address)
	if err != nil {
		return journal.Cursor{}, err
	}
	t, first, at, err := n.SnapshotStart(ctx)
	if err != nil {
		return journal.Cursor{}, err
	}
	if err := add(first); err != nil {
		return journal.Cursor{}, err
	}
	for i := 1; i < metadata.SnapshotParts; i++ {
		part, _ := t.Store.AppendSnapshotPart(nil, i)
		if err := add(part); err != nil {
			return journal.Cursor{}, err
		}
	}
	return at, nil
}

func (w *cluster) WaitApplied(ctx context.Context, node promote.NodeInfo, seq metadata.Seq) error {
	n, err := w.at(node.RPC)
	if err != nil {
		return err
	}
	_, _, err = n.Digest(ctx, seq)
	return err
}

func (w *cluster) Standing(_ context.Context, address string) (promote.Standing, error) {
	n, err := w.at(address)
	if err != nil || n.ended.Load() || n.misses.Add(-1) >= 0 {
		return promote.Standing{}, errors.New("nobody answers")
	}
	s := n.Status()
	return promote.Standing{ID: s.Self.ID, Role: s.Self.Role, History: s.Head.History, Position: s.Position, Complete: s.Complete, Restored: s.Restored, Forked: s.Forked, Lapsed: s.Lapsed, Unread: s.Unread}, nil
}

// Serve is a primary with its scanner.
func (n *node) Serve(ctx context.Context, t *promote.Term) error {
	boot := clock.Boot()
	leases := leasesync.New(leasesync.Leases{
		Store: t.Store, Journal: t.Queue, Interval: 100 * time.Millisecond, CriticalDelay: 10 * time.Millisecond,
		Counters: new(leasesync.Counters), Log: zerolog.Nop(),
	})
	n.master.Store(service.NewMaster(service.Master{
		Settings: service.Settings{MaxSoftPin: time.Hour}, Term: t.Number, Store: t.Store, Leases: leases, Queue: t.Queue, Now: t.Now, Fence: t.Fence, Answers: t.Answers,
		Liveness: service.NewLiveness(time.Minute, 0, boot, t.Store), Counters: service.NewCounters(), AllocationFailed: func(uint64, metadata.Time) {},
	}))
	defer n.master.Store(nil)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return leases.Run(ctx) })
	return g.Wait()
}

// primary returns the master that answers clients on this node; Unavailable between two terms.
func (n *node) primary() (*service.Master, error) {
	if m := n.master.Load(); m != nil {
		return m, nil
	}
	return nil, errs.New(errs.Unavailable, "primary", "%s does not lead", n.id)
}

func (n *node) serves() bool { m := n.master.Load(); return m != nil && m.Answers() }

// serving waits until one of the nodes serves.
func (w *cluster) serving(nodes ...*node) *node {
	w.t.Helper()
	var found *node
	waitFor(w.t, "a serving node", func() bool {
		for _, n := range nodes {
			if n.serves() {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	waittest.Until(t, time.Minute, what, cond)
}

func (w *cluster) promotable(n *node) {
	w.t.Helper()
	waitFor(w.t, n.id+" to be promotable", func() bool { return n.Status().Self.Promotable })
}

// steady is for tests in which no node may be deposed, not even on a slow machine.
func steady(c *promote.Config) { c.SessionTTL, c.FailoverAfter = 12*time.Second, 6*time.Second }

// slack is steady for tests in which a session must end, which takes that much longer.
func slack(c *promote.Config) { c.SessionTTL, c.FailoverAfter = 6*time.Second, 3*time.Second }

// trio is pair with two standbys, b and c.
func (w *cluster) trio(objects int) (a, b, c *node) {
	w.t.Helper()
	a = w.start("a")
	w.serving(a).mount()
	a.put(keys("k", objects)...)
	b, c = w.start("b"), w.start("c")
	w.promotable(b)
	w.promotable(c)
	w.know(a, b, c)
	return a, b, c
}

// pair starts a primary a, puts keys k0, k1 and so on, and starts a standby b that is
// complete. Each knows of the other.
func (w *cluster) pair(objects int, change ...func(*promote.Config)) (a, b *node) {
	w.t.Helper()
	a = w.start("a", change...)
	w.serving(a).mount()
	a.put(keys("k", objects)...)
	b = w.start("b", change...)
	w.promotable(b)
	w.know(a, b)
	return a, b
}

// answered repeats a call while this node is fenced, and one whose outcome is open, since on a
// slow machine commits may take longer than the serve window. A repeat has the same request id.
func (n *node) answered(call func(*service.Master) error) (err error) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		m, err := n.primary()
		if err == nil {
			err = call(m)
		}
		switch errs.KindOf(err) {
		case errs.NotLeader, errs.Unavailable, errs.Unresolved:
		default:
			return err
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

func (n *node) mount() {
	n.net.t.Helper()
	err := n.answered(func(m *service.Master) error {
		return m.MountSegment(n.net.t.Context(), segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 30, Endpoint: "a:1", Client: segment.ClientID{1}})
	})
	if err != nil {
		n.net.t.Fatal(err)
	}
}

func (n *node) put(keys ...string) {
	n.net.t.Helper()
	ctx, end := n.net.t.Context(), service.UpdateRequest{Tenant: "default", Client: segment.ClientID{1}, Selector: metadata.SelectMemory}
	for _, key := range keys {
		n.reserve(key)
		end.Request = n.net.requests.Add(1)
		if err := n.answered(func(m *service.Master) error { return m.PutEnd(ctx, end, service.UpdateItem{Key: key}) }); err != nil {
			n.net.t.Fatalf("put end of %s: got %v, want no error", key, err)
		}
	}
}

// reserve begins a put.
func (n *node) reserve(key string) {
	n.net.t.Helper()
	request := n.net.requests.Add(1)
	if err := n.answered(func(*service.Master) error { return n.putStart(n.net.t.Context(), key, request) }); err != nil {
		n.net.t.Fatalf("put start of %s: got %v, want no error", key, err)
	}
}

func (n *node) putStart(ctx context.Context, key string, request uint64) error {
	p := service.PutRequest{Tenant: "default", Client: segment.ClientID{1}, Request: request, Config: service.PutConfig{Replicas: 1}}
	item := service.PutItem{Key: key, Size: 100}
	if strings.HasPrefix(key, "grouped") {
		item.Group = "g"
	}
	m, err := n.primary()
	if err == nil {
		_, err = m.PutStart(ctx, p, item)
	}
	return err
}

func (n *node) get(key string) error {
	return n.answered(func(m *service.Master) error {
		_, err := m.GetReplicaList(n.net.t.Context(), "default", key)
		return err
	})
}

// equal waits until a follower has caught up with the primary, and compares digests.
func (w *cluster) equal(primary, follower *node) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	seq, want, err := primary.Digest(ctx, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	_, got, err := follower.Digest(ctx, seq)
	for errs.KindOf(err) == errs.Unavailable && ctx.Err() == nil { // its term ended meanwhile: ask again
		_, got, err = follower.Digest(ctx, seq)
	}
	if err != nil {
		w.t.Fatalf("the digest of %s at %d: got %v, want no error", follower.id, seq, err)
	}
	if got != want {
		w.t.Errorf("S: at %d %s has digest %v, want %v as %s has", seq, follower.id, got, want, primary.id)
	}
}

func keys(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint(prefix, i))
	}
	return list
}

func TestTakeoverKeepsTheCache(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a", slack)
	w.serving(a).mount()
	a.put(keys("k", 50)...)
	b := w.start("b", slack) // late: loads a snapshot
	w.promotable(b)
	a.put(keys("l", 50)...)
	w.equal(a, b)
	if loads := b.Status().Loads; loads[journal.ReasonStart] != 1 {
		t.Errorf("snapshot loads %v, want one at the start", loads)
	}
	granted := leaseEnd(a.Store(), "l0")
	waitFor(t, "leases that have run out", func() bool { return b.Status().Head.Time > granted.Add(params.LeaseTTL) })
	a.wire.cut()
	started := time.Now()
	w.serving(b)
	t.Logf("b serves %v after a was cut off: %+v", time.Since(started).Round(time.Millisecond), b.Status().Takeover)
	b.has(append(keys("k", 50), keys("l", 50)...)...)
	b.put("after")
	if term := b.Status().Leader.Term; term != 2 {
		t.Errorf("got term %d after a takeover, want 2", term)
	}
}

func TestHandover(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a", steady)
	w.serving(a).mount()
	if _, _, err := a.Handover(t.Context(), 0, ""); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("a handover to nobody: got %v, want Unavailable", err)
	}
	b := w.start("b", steady)
	w.promotable(b)
	a.put(keys("k", 50)...)
	for _, key := range keys("k", 10) {
		if err := a.get(key); err != nil { // leases that only the flush journals
			t.Fatal(err)
		}
	}
	if _, _, err := b.Handover(t.Context(), 0, ""); errs.KindOf(err) != errs.NotLeader {
		t.Errorf("a handover by a standby: got %v, want NotLeader", err)
	}
	if _, _, err := a.Handover(t.Context(), 7, ""); errs.KindOf(err) != errs.InvalidParams {
		t.Errorf("a handover of another term: got %v, want InvalidParams", err)
	}
	waitFor(t, "b in the list of nodes", func() bool {
		_, _, err := a.Handover(t.Context(), 0, "nobody")
		nodes, _ := a.Nodes(t.Context())
		return errs.KindOf(err) == errs.InvalidParams && len(nodes) == 2 && nodes[1].Promotable
	})
	leader, took, err := a.Handover(t.Context(), 1, "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("handed over in %v: %+v", took, b.Status().Takeover)
	if leader.NodeID != "b" || leader.Term != 2 || leader.State != promote.Serving || a.serves() {
		t.Errorf("got leader %+v, and a serves: %t; want b, serving in term 2, and a not", leader, a.serves())
	}
	w.serving(b).put("after")
	w.promotable(a)
	w.equal(b, a)
	if len(a.Status().Loads) != 0 {
		t.Errorf("the old primary loaded snapshots %v, want none after a handover", a.Status().Loads)
	}
	// After a clean handover nothing is quarantined for unknown leases.
	if st := b.Store().Stats(); st.Quarantined != 0 {
		t.Errorf("got %d bytes in quarantine after a handover, want none: every lease is journaled", st.Quarantined)
	}
	// And back, by stopping.
	waitFor(t, "a in the list of nodes", func() bool {
		nodes, _ := b.Nodes(t.Context())
		return len(nodes) == 2 && nodes[0].Promotable
	})
	b.end()
	if l, _ := leaderKey(t, etcd.Client(t), layout); l.NodeID != "a" || l.State != promote.Serving {
		t.Errorf("b has ended: got leader %+v, want a, serving", l)
	}
	w.serving(a)
	if err := a.get("after"); err != nil {
		t.Error(err)
	}
}

// The value of the leader key begins with the election, because writers compare that.
func TestTheLeadersValueBeginsWithItsElection(t *testing.T) {
	t.Parallel()
	l := promote.Leader{Election: journal.NewElection(), NodeID: "a", Term: 1, State: promote.Serving}
	value, err := json.Marshal(l)
	if err != nil || !strings.HasPrefix(string(value), l.Election.LeaderPrefix()) {
		t.Errorf("got %s, %v, want a value that begins with %s", value, err, l.Election.LeaderPrefix())
	}
}

// An elected node that takes longer to read a commit than the time between two beats still
// catches up: its own beats do not keep it behind (conformance line 77).
func TestCatchingUpSlowly(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a")
	w.serving(a).mount()
	a.put("k")
	b := w.start("b")
	w.promotable(b)
	b.wire.slow.Store(int64(250 * time.Millisecond))
	waitFor(t, "b to be behind", func() bool { return a.Status().Position.Seq > b.Status().Position.Seq+12 })
	a.wire.cut()
	w.serving(b).has("k")
	t.Logf("caught up in %v", b.Status().Takeover.CatchUp)
}
