package promote_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/etcdtest/faultinject"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// listed waits until a node is registered as one that can take over.
func (w *cluster) listed(by *node, id string) {
	w.t.Helper()
	waitFor(w.t, id+" in the list of nodes", func() bool {
		nodes, _ := by.Nodes(w.t.Context())
		for _, n := range nodes {
			if n.ID == id && n.Promotable && n.Role == promote.Standby {
				return true
			}
		}
		return false
	})
}

// etcd refuses a write of the handover, or a beat before it. The order gets an answer, no node
// answers calls, and no node is deposed. When there is space, a node serves within a moment.
func TestHandoverWhileEtcdIsFull(t *testing.T) {
	t.Parallel()
	for name, lapsed := range map[string]bool{"at once": false, "when the right to answer has lapsed": true} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
			w := newCluster(t, etcd)
			foreign := func(c *promote.Config) { c.Compact = false }
			a := w.start("a", foreign)
			w.serving(a).mount()
			a.put("k")
			b := w.start("b", foreign)
			w.promotable(b)
			w.listed(a, "b")
			revision := etcd.FillQuota(t)
			if lapsed {
				waitFor(t, "the end of reads", func() bool { return !a.serves() })
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			_, _, err := a.Handover(ctx, 1, "")
			cancel()
			if errs.KindOf(err) != errs.Unavailable {
				t.Errorf("a handover while etcd is full: got %v, want Unavailable", err)
			}
			a.serveNot(1500 * time.Millisecond)
			if n := b.Status().Deposals; n > 0 || b.serves() {
				t.Errorf("etcd is full: got %d primaries deposed by b, and b serves: %v; want none deposed, and b not serving",
					n, b.serves())
			}
			etcd.Compact(t, revision)
			etcd.Defrag(t)
			if _, err := etcd.Client(t).AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil { // all there are
				t.Fatal(err)
			}
			freed := time.Now()
			if err := w.serving(a, b).get("k"); err != nil {
				t.Error(err)
			}
			if took := time.Since(freed); took > 8*time.Second {
				t.Errorf("a node served %v after there was space, want 8s at most", took)
			}
		})
	}
}

// etcd is full until the right to answer has lapsed, and has space again. The standby then deposes
// the primary, and the record of its term names what was the cause: that etcd was full.
func TestARecordedEndNamesAFullEtcd(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
	w := newCluster(t, etcd)
	foreign := func(c *promote.Config) { c.Compact = false }
	a := w.start("a", foreign)
	w.serving(a).mount()
	b := w.start("b", foreign)
	w.promotable(b)
	w.listed(a, "b")
	revision := etcd.FillQuota(t)
	waitFor(t, "the end of reads", func() bool { return !a.serves() })
	do(t, etcd, clientv3.OpDelete(layout.Leader())) // a full etcd still deletes; so a commits nothing more
	etcd.Compact(t, revision)
	etcd.Defrag(t)
	if _, err := etcd.Client(t).AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil { // all there are
		t.Fatal(err)
	}
	w.serving(a, b)
	waitFor(t, "a's record of the end of its term", func() bool {
		list, _ := b.Terms(t.Context())
		return len(list) == 2 && list[0].Ended != ""
	})
	if list, _ := b.Terms(t.Context()); !strings.Contains(list[0].End, "NOSPACE") || !strings.Contains(list[0].End, "no longer elected") {
		t.Errorf("how a's term ended: got %q; want that etcd was full, and that another node was elected", list[0].End)
	}
}

// Of two orders at the same time one is executed. The other gets an answer when the term ends,
// and does not end a later term.
func TestTwoOrdersAtOnce(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a", steady)
	w.serving(a).mount()
	b := w.start("b", steady)
	w.promotable(b)
	w.listed(a, "b")
	answers := make(chan error, 2)
	for range 2 {
		go func() { _, _, err := a.Handover(t.Context(), 1, ""); answers <- err }()
	}
	obeyed := 0
	for range 2 {
		select {
		case err := <-answers:
			switch errs.KindOf(err) {
			case errs.OK:
				obeyed++
			case errs.NotLeader:
			default:
				t.Errorf("an order: got %v, want that it is obeyed, or NotLeader", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("an order for a term that has ended: got no answer in 20s, want one when the term ends")
		}
	}
	if obeyed != 1 {
		t.Errorf("%d orders were obeyed, want 1", obeyed)
	}
	w.serving(b)
	w.promotable(a)
	w.listed(b, "a")
	b.handsOverTo(a)
	w.serving(a).put("after")
	if term := a.Status().Leader.Term; term != 3 {
		t.Errorf("a leads term %d, want 3", term)
	}
}

// doubtful starts a primary, with a standby b, that has a commit whose outcome stays open: its
// answer is lost, and etcd is full as of the revision.
func doubtful(t *testing.T, handoverTimeout time.Duration) (etcd *etcdtest.Cluster, client *clientv3.Client, w *cluster, a, b *node, revision int64) {
	t.Helper()
	etcd = etcdtest.Start(t, etcdtest.WithQuota(16<<20))
	w = newCluster(t, etcd)
	lost, full := make(chan struct{}), make(chan struct{})
	var once sync.Once
	run := &faultinject.Run{
		Kind: faultinject.QuestionLost, I: 1, Row: 16, // also those that are sent beside the first
		OnFault: func() { once.Do(func() { close(lost) }); <-full },
		Skip:    func(method string, _ int) bool { return !strings.HasSuffix(method, "/Txn") },
	}
	client = etcd.Client(t, run.DialOptions()...)
	a = w.start("a", func(c *promote.Config) {
		c.Client, c.HandoverTimeout, c.Compact = client, handoverTimeout, false
		// Filling the rest takes a while, and b is not to depose a meanwhile, nor a's session to end.
		c.SessionTTL, c.FailoverAfter = 20*time.Second, 5*time.Second
	})
	w.serving(a).mount()
	a.put("k")
	b = w.start("b", func(c *promote.Config) { c.SessionTTL, c.Compact = 20*time.Second, false })
	w.promotable(b)
	w.listed(a, "b")

	etcd.FillTo(t, 12e6) // the rest is filled while a cannot beat
	run.Arm()
	<-lost // a heartbeat is enough
	revision = etcd.FillQuota(t)
	close(full)
	return etcd, client, w, a, b, revision
}

// While the outcome of a commit is open, the journal has no known head to hand over. So the
// order fails, and this node stays the primary.
func TestHandoverWhileACommitIsInDoubt(t *testing.T) {
	t.Parallel()
	etcd, client, w, a, b, revision := doubtful(t, 2*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, _, err := a.Handover(ctx, 1, ""); errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "primary still") {
		t.Errorf("the order: got %v, want Unavailable, and that this node is the primary still", err)
	}

	etcd.Compact(t, revision)
	etcd.Defrag(t)
	if _, err := client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil { // all there are
		t.Fatal(err)
	}
	waitFor(t, "the handover", func() bool { _, _, err := a.Handover(t.Context(), 1, "b"); return err == nil })
	w.serving(b)
}

// endings of a term.
var endings = map[string]func(*testing.T, *etcdtest.Cluster, *node){
	"SIGTERM": func(_ *testing.T, _ *etcdtest.Cluster, a *node) { a.stop() },
	"the session is lost": func(t *testing.T, etcd *etcdtest.Cluster, _ *node) {
		admin := etcd.Client(t)
		resp, err := admin.Get(t.Context(), layout.Leader())
		if err != nil || len(resp.Kvs) != 1 {
			t.Fatal(resp, err)
		}
		if _, err := admin.Revoke(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease)); err != nil {
			t.Fatal(err)
		}
	},
}

// If the term ends while an order waits for a successor, its answer does not say that this node
// is still the primary.
func TestTheTermEndsWhileASuccessorIsAwaited(t *testing.T) {
	t.Parallel()
	for how, end := range endings {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.Start(t)
			w := newCluster(t, etcd)
			awaited := make(chan struct{}, 1)
			a := w.start("a", steady, func(c *promote.Config) { c.Peers = deafPeers{c.Peers, awaited} })
			w.serving(a).mount()
			b := w.start("b", steady)
			w.promotable(b)
			w.listed(a, "b")
			answer := make(chan error, 1)
			go func() { _, _, err := a.Handover(t.Context(), 1, ""); answer <- err }()
			<-awaited
			end(t, etcd, a)
			if err := <-answer; errs.KindOf(err) != errs.NotLeader || strings.Contains(err.Error(), "primary still") {
				t.Errorf("the order: got %v, want NotLeader, and not that this node is the primary still", err)
			}
		})
	}
}

// If the term ends while an order waits for a commit in doubt, its answer does not say that
// this node is still the primary.
func TestTheTermEndsWhileAnOrderWaits(t *testing.T) {
	t.Parallel()
	for how, end := range endings {
		t.Run(how, func(t *testing.T) {
			etcd, _, w, a, _, _ := doubtful(t, 12*time.Second) // so that the term ends first
			answer := make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			go func() { _, _, err := a.Handover(ctx, 1, ""); answer <- err }()
			w.listed(a, "b") // as long as it takes to give the order
			end(t, etcd, a)
			if err := <-answer; err == nil || strings.Contains(err.Error(), "primary still") {
				t.Errorf("the order: got %v, want an error that does not say that this node is the primary still", err)
			}
		})
	}
}

// A stopping node gives up the leader key after the failover time, although etcd is full and
// the outcome of a commit is open.
func TestStopWhileACommitIsInDoubt(t *testing.T) {
	t.Parallel()
	const handoverTimeout = 40 * time.Second // the node looks for a successor for a quarter of it
	etcd, client, w, a, b, revision := doubtful(t, handoverTimeout)
	a.stop()
	stopped := time.Now()
	waitFor(t, "the end of the leader key", func() bool {
		resp, err := client.Get(t.Context(), layout.Leader())
		return err == nil && len(resp.Kvs) == 0
	})
	if took := time.Since(stopped); took > handoverTimeout*3/4 {
		t.Errorf("the leader key went %v after the order to stop, want 3/4 of the handover timeout at most", took)
	}
	etcd.Compact(t, revision)
	etcd.Defrag(t)
	if _, err := client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil { // all there are
		t.Fatal(err)
	}
	w.serving(b).has("k")
}

// A deafPeers never sees that a successor follows.
type deafPeers struct {
	promote.Peers
	awaited chan<- struct{} // gets an element when one is awaited, if there is room
}

func (p deafPeers) WaitApplied(ctx context.Context, _ promote.NodeInfo, _ metadata.Seq) error {
	select {
	case p.awaited <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}

// slowCommits returns a client whose transactions with a head take that long.
func slowCommits(t *testing.T, etcd *etcdtest.Cluster, by *atomic.Int64) *clientv3.Client {
	t.Helper()
	slow := func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if txn, ok := req.(*etcdserverpb.TxnRequest); ok && strings.Contains(txn.String(), layout.Head()) && len(txn.Compare) > 0 {
			if err := clock.Sleep(ctx, time.Duration(by.Load())); err != nil {
				return err
			}
		}
		return call(ctx, method, req, reply, conn, options...)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: etcd.Endpoints(), Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(slow)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A stopping node, with slow commits and a standby that does not follow, gives up the leader
// key after one failover time in total, not after one for each step.
func TestStopHasOneDeadline(t *testing.T) {
	t.Parallel()
	const failover = 6 * time.Second
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	var delay atomic.Int64
	longSessions := func(c *promote.Config) { c.SessionTTL, c.FailoverAfter = 40*time.Second, failover }
	a := w.start("a", longSessions, func(c *promote.Config) {
		c.Client, c.Peers, c.HandoverTimeout = slowCommits(t, etcd, &delay), deafPeers{c.Peers, nil}, 16*time.Second
	})
	w.serving(a).mount()
	b := w.start("b", longSessions)
	w.promotable(b)
	w.listed(a, "b")
	b.wire.cut() // it stays registered, and deposes nobody
	defer b.wire.heal()
	client := etcd.Client(t)
	delay.Store(int64(failover * 7 / 10))
	a.stop() // it looks for a successor for a quarter of the timeout, and answers meanwhile
	waitFor(t, "the end of calls", func() bool { return a.Status().Self.Role == promote.HandingOver })
	ended := time.Now()
	waitFor(t, "the end of the leader key", func() bool { _, there := leaderKey(t, client, layout); return !there })
	took := time.Since(ended)
	t.Logf("the leader key went %v after the last answer", took)
	if took > failover*3/2 {
		t.Errorf("the leader key went %v after the last answer, want about %v at most", took, failover)
	}
}
