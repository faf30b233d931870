package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const clusterID = "mooncake_cluster"

var params = metadata.Params{LeaseTTL: 10 * time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}

// A cluster is a few nodes with real servers that share one real state, so that a
// failover between them loses nothing and takes no time. The tests are about the client.
type cluster struct {
	t     testing.TB
	store *metadata.Store
	queue *journal.Queue
	log   *faultyLog
	now   func() metadata.Time
	nodes []*node

	mu   sync.Mutex
	term uint64
}

// A node is one server.
type node struct {
	cluster *cluster
	id      string
	gate    *service.Gate
	master  *service.Master // of its last term
	server  *rpc.Server
	address string
	hint    string       // where others say that it is reached
	asked   atomic.Int64 // handshakes that it was asked for
}

// newCluster starts nodes, none of which serves yet.
func newCluster(t testing.TB, nodes int) *cluster {
	t.Helper()
	c := &cluster{t: t, store: metadata.New(metadata.Options{}), log: new(faultyLog)}
	boot := clock.Boot()
	c.now = metadata.NewClock(boot, 0)
	c.queue = journal.NewQueue(c.store, 16<<20)
	c.store.StartIDs(1)
	writer := journal.NewWriter(journal.WriterConfig{
		Store: c.store, Queue: c.queue, Log: c.log, Term: 1, Hold: params.HoldTime(), Now: c.now, Elapsed: boot,
	})
	if err := writer.Commit(context.Background(), &metadata.TermStart{Term: 1, Params: params}, &metadata.UseRules{Version: metadata.NewestRules}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- writer.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the writer ended: got %v, want context.Canceled", err)
		}
	})
	for i := range nodes {
		c.nodes = append(c.nodes, newNode(c, fmt.Sprintf("node-%d", i), clusterID))
	}
	return c
}

func newNode(c *cluster, id, cluster string) *node {
	c.t.Helper()
	n := &node{cluster: c, id: id, gate: service.NewGate()}
	n.server = rpc.NewServer(rpc.Config{ClusterID: cluster, NodeID: id, Gate: n.gate, Observer: n})
	n.address = n.listen("127.0.0.1:0")
	n.hint = n.address
	return n
}

// Call counts the handshakes with a node.
func (n *node) Call(_ context.Context, method string, _ codes.Code, _ time.Duration) {
	if method == pb.ClientService_ServiceReady_FullMethodName {
		n.asked.Add(1)
	}
}

// Slowed does nothing.
func (n *node) Slowed(bool) {}

// listen serves at an address until the test ends, and returns it.
func (n *node) listen(address string) string {
	t := n.cluster.t
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- n.server.Serve(l) }()
	t.Cleanup(func() {
		n.stop()
		if err := <-served; err != nil {
			t.Errorf("serve: got %v, want no error", err)
		}
	})
	return l.Addr().String()
}

// stop cuts all connections, and refuses new ones.
func (n *node) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.server.Stop(ctx)
}

// lead makes one node serve, in a new term. The others name it as the leader.
func (c *cluster) lead(i int) *node {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term++
	term, n := c.term, c.nodes[i]
	for _, other := range c.nodes {
		other.gate.Close(service.Hint{Term: term, NodeID: n.id, RPC: n.hint})
	}
	n.master = c.newMaster(term)
	n.gate.Open(n.master)
	return n
}

func (c *cluster) newMaster(term uint64) *service.Master {
	return service.NewMaster(service.Master{
		Settings: service.Settings{ClusterID: clusterID, DiskEviction: true, DiskQuota: 1 << 30, SoftPinTTL: 30 * time.Minute, MaxSoftPin: 24 * time.Hour, Version: "1.2.3", Offload: true, OffloadQueue: 100},
		Term:     metadata.Term(term), Store: c.store, Leases: lonetest.Leases(c.store), Queue: c.queue, Now: c.now, Fence: func(context.Context) error { return nil }, Answers: func() bool { return true },
		Liveness: service.NewLiveness(10*time.Second, 0, clock.Boot(), c.store), Counters: service.NewCounters(),
		AllocationFailed: func(uint64, metadata.Time) {},
	})
}

// rest makes all nodes refuse calls without naming a leader.
func (c *cluster) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		n.gate.Close(service.Hint{Term: c.term})
	}
}

// addresses returns those of all nodes.
func (c *cluster) addresses() (list []string) {
	for _, n := range c.nodes {
		list = append(list, n.address)
	}
	return list
}

// objects returns how many objects and reservations there are.
func (c *cluster) objects() int64 { return c.store.Stats().Objects }

// connect returns a client of some addresses, closed with the test.
func connect(t testing.TB, config client.Config) *client.Client {
	t.Helper()
	c, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// connectAll returns a client of all nodes.
func (c *cluster) connectAll() *client.Client {
	c.t.Helper()
	return connect(c.t, client.Config{Addresses: c.addresses()})
}

// mountMemory lends a client's memory.
func mountMemory(t testing.TB, c *client.Client) client.Segment {
	t.Helper()
	s := memory(1 << 32)
	if err := c.MountSegment(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func memory(base uint64) client.Segment {
	return client.Segment{ID: uuid.New(), Name: "host-a", Base: base, Size: 1 << 30, Endpoint: "10.0.0.1:7000", Protocol: "tcp", HostID: "a"}
}

// put puts whole objects of 100 bytes.
func put(t testing.TB, c *client.Client, keys ...string) {
	t.Helper()
	for _, key := range keys {
		r, err := c.PutStart(t.Context(), client.PutItem{Key: key, Size: 100}, client.PutConfig{})
		if err == nil {
			err = c.PutEnd(t.Context(), r.Ref(), client.SelectAll)
		}
		if err != nil {
			t.Fatalf("put %s: got %v, want no error", key, err)
		}
	}
}

// wantKind demands that an error is of a kind, OK for none.
func wantKind(t testing.TB, what string, err error, want errs.Kind) {
	t.Helper()
	if errs.KindOf(err) != want {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// within waits a limited time until happened returns true.
func within(t testing.TB, what string, happened func() bool) {
	t.Helper()
	waittest.Until(t, 30*time.Second, what, happened)
}

// faultyLog is a journal that keeps nothing, and refuses some commits.
type faultyLog struct {
	journal.NoLog
	refuse atomic.Pointer[func() error] // asked before each commit of changes
}

func (l *faultyLog) Append(ctx context.Context, s *journal.Sealed) error {
	heartbeat := !slices.ContainsFunc(s.Records[:], func(r []byte) bool { return len(r) > 0 })
	if f := l.refuse.Load(); f != nil && !heartbeat {
		if err := (*f)(); err != nil {
			return err
		}
	}
	return l.NoLog.Append(ctx, s)
}

// refusing makes commits fail with the errors that f returns, without ending the writer; a nil
// f refuses none.
func (l *faultyLog) refusing(f func() error) {
	if f == nil {
		l.refuse.Store(nil)
		return
	}
	refused := func() error {
		if err := f(); err != nil {
			return &journal.RefusedError{Err: err}
		}
		return nil
	}
	l.refuse.Store(&refused)
}

// expire makes the server forget a client and its segments.
func (c *cluster) expire(n *node, id uuid.UUID) {
	c.t.Helper()
	if _, err := n.master.ExpireClient(c.t.Context(), segment.ClientID(id), func() bool { return false }); err != nil {
		c.t.Fatal(err)
	}
}
