package rpc_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/metadata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	cluster = "test"
	me      = "node-1"
	term    = 3
	alice   = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	bob     = "6ba7b811-9dad-11d1-80b4-00c04fd430c8"
	seg1    = "00000000-0000-0000-0000-000000000001"
)

var params = metadata.Params{LeaseTTL: 10 * time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}

// A node is a lone primary behind a real server on a real listener.
type node struct {
	t       testing.TB
	store   *metadata.Store
	gate    *service.Gate
	master  *service.Master
	log     *stallingLog
	fenced  atomic.Bool
	onFence atomic.Pointer[func()] // called whenever a call asks the fence
	calls   *calls
	logged  *waittest.Buffer
	admin   *adminNode
	server  *rpc.Server
	address string
	conn    *grpc.ClientConn
	objects pb.ObjectServiceClient
	clients pb.ClientServiceClient
	ops     pb.AdminServiceClient
}

// newNode starts a node that serves in term 3. options change its server.
func newNode(t testing.TB, options ...func(*rpc.Config)) *node {
	t.Helper()
	n := &node{
		t: t, store: metadata.New(metadata.Options{}), gate: service.NewGate(), log: newStallingLog(),
		calls: &calls{}, logged: new(waittest.Buffer),
	}
	n.admin = &adminNode{store: n.store}
	n.serveStore()
	n.gate.Open(n.master)
	config := rpc.Config{
		ClusterID: cluster, NodeID: me, Gate: n.gate, Node: n.admin, Snapshots: n,
		Log: zerolog.New(n.logged).Level(zerolog.InfoLevel), Observer: n.calls,
	}
	for _, o := range options {
		o(&config)
	}
	n.server = rpc.NewServer(config)
	n.listen()
	n.callOver(n.dial())
	return n
}

func (n *node) callOver(conn *grpc.ClientConn) {
	n.conn = conn
	n.objects, n.clients, n.ops = pb.NewObjectServiceClient(conn), pb.NewClientServiceClient(conn), pb.NewAdminServiceClient(conn)
}

// serveStore begins a term and runs its writer.
func (n *node) serveStore() {
	boot := clock.Boot()
	now := metadata.NewClock(boot, 0)
	queue := journal.NewQueue(n.store, 1<<20)
	n.store.StartIDs(term)
	writer := journal.NewWriter(journal.WriterConfig{
		Store: n.store, Queue: queue, Log: n.log, Term: term, Hold: params.HoldTime(), Now: now, Elapsed: boot,
	})
	if err := writer.Commit(context.Background(), &metadata.TermStart{Term: term, Params: params}); err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = writer.Run(ctx) // some tests make it fail
	}()
	n.t.Cleanup(func() {
		cancel()
		<-done
	})
	n.master = service.NewMaster(service.Master{
		Settings: service.Settings{
			ClusterID: cluster, SoftPinTTL: 30 * time.Minute, MaxSoftPin: 24 * time.Hour, Version: "1.2.3", Offload: true, OffloadQueue: 1000,
		},
		Term: term, Store: n.store, Leases: lonetest.Leases(n.store), Queue: queue, Now: now, Fence: n.fence, Answers: func() bool { return !n.fenced.Load() },
		Liveness: service.NewLiveness(10*time.Second, 0, boot, n.store), Counters: service.NewCounters(), AllocationFailed: func(uint64, metadata.Time) {},
	})
}

func (n *node) fence(context.Context) error {
	if n.fenced.Load() {
		return errs.NotLeader
	}
	if f := n.onFence.Load(); f != nil {
		(*f)()
	}
	return nil
}

func (n *node) listen() {
	n.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	n.address = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- n.server.Serve(l) }()
	n.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := n.server.Stop(ctx); err != nil {
			n.t.Errorf("stop: got %v, want no error", err)
		}
		if err := <-served; err != nil {
			n.t.Errorf("serve: got %v, want no error", err)
		}
	})
}

func (n *node) dial(options ...grpc.DialOption) *grpc.ClientConn {
	n.t.Helper()
	conn, err := grpc.NewClient(n.address, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(pb.DefaultMaxMessageBytes))}, options...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// dialElsewhere is dial from another host.
func (n *node) dialElsewhere() *grpc.ClientConn {
	return n.dial(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(ctx, "tcp", address)
	}))
}

// BeginSnapshot makes a node the source of its snapshots.
func (n *node) BeginSnapshot(context.Context) (rpc.SnapshotBegin, error) {
	m, err := n.gate.Master()
	if err != nil {
		return rpc.SnapshotBegin{}, err
	}
	part, at := m.Store.AppendSnapshotPart(nil, 0)
	return rpc.SnapshotBegin{Term: m.Term, Store: m.Store, Fence: m.Fence, First: part, Seq: at.Seq, Revision: 4711, Head: "{}"}, nil
}

// mount lends alice's memory to the node.
func (n *node) mount() *node {
	n.t.Helper()
	if _, err := n.clients.MountSegment(n.t.Context(), &pb.MountSegmentRequest{ClientId: alice, Segment: memory(seg1)}); err != nil {
		n.t.Fatal(err)
	}
	return n
}

func memory(id string) *pb.Segment {
	return &pb.Segment{Id: id, Name: "host-a", Base: 1 << 32, Size: 1 << 30, Endpoint: "10.0.0.1:7000", Protocol: "tcp", HostId: "a"}
}

// put puts whole objects of 100 bytes.
func (n *node) put(keys ...string) {
	n.t.Helper()
	for _, key := range keys {
		_, err := n.objects.PutStart(n.t.Context(), &pb.PutStartRequest{ClientId: alice, Key: key, Size: 100})
		if err == nil {
			_, err = n.objects.PutEnd(n.t.Context(), &pb.PutEndRequest{ClientId: alice, Key: key})
		}
		if err != nil {
			n.t.Fatalf("put %s: got %v, want no error", key, err)
		}
	}
}

// wantKind demands an error of a kind, as a client gets it, and returns where
// it comes from.
func wantKind(t testing.TB, what string, err error, want errs.Kind) rpcerr.Source {
	t.Helper()
	e, from := rpcerr.Parse(err)
	if e == nil || e.Kind != want {
		t.Errorf("%s: got %v, want %v", what, err, want)
		return from
	}
	if from.ClusterID != cluster || from.NodeID != me {
		t.Errorf("%s: the error comes from %+v; want node %s of %s", what, from, me, cluster)
	}
	return from
}

// stallingLog is a journal whose commits of changes can be made to wait, and to fail.
type stallingLog struct {
	journal.NoLog
	mu      sync.Mutex
	stalled chan struct{} // closed to go on; nil: does not stall
	left    int           // commits before it fails
	fail    error
	entered chan struct{} // receives when a commit begins to wait
}

func newStallingLog() *stallingLog { return &stallingLog{entered: make(chan struct{}, 1)} }

// stall makes commits wait until the function it returns is called.
func (l *stallingLog) stall(t testing.TB) (release func()) {
	stalled := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = stalled
	release = sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stalled = nil
		close(stalled)
	})
	t.Cleanup(release)
	return release
}

// failAfter makes all commits fail but the next few.
func (l *stallingLog) failAfter(commits int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.fail = commits, err
}

func (l *stallingLog) Append(ctx context.Context, s *journal.Sealed) error {
	if !slices.ContainsFunc(s.Records[:], func(r []byte) bool { return len(r) > 0 }) {
		return l.NoLog.Append(ctx, s) // a heartbeat, which no test waits for
	}
	l.mu.Lock()
	stalled := l.stalled
	l.mu.Unlock()
	if stalled != nil {
		select {
		case l.entered <- struct{}{}:
		default:
		}
		select {
		case <-stalled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left--; l.fail != nil && l.left < 0 {
		return l.fail
	}
	return l.NoLog.Append(ctx, s)
}

// calls remembers what the server reported.
type calls struct {
	mu   sync.Mutex
	list []call
}

type call struct {
	method string
	code   codes.Code
}

func (c *calls) Call(_ context.Context, method string, code codes.Code, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if took < 0 {
		method = "a negative duration of " + method
	}
	c.list = append(c.list, call{method, code})
}

func (c *calls) has(method string, code codes.Code) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, got := range c.list {
		if got == (call{method, code}) {
			return true
		}
	}
	return false
}

// adminNode is what the server gets to know of its node. The real one is the
// wiring's.
type adminNode struct {
	store   *metadata.Store
	status  func() (*pb.StatusResponse, error)
	digest  func(context.Context, metadata.Seq) (metadata.Seq, metadata.Digest, error)
	history func(context.Context)
	backup  [][]byte
	uploads chan struct{}          // gets one for each file that comes; may be nil
	sent    atomic.Pointer[[]byte] // by Refound
	events  func(ctx context.Context, from metadata.Seq, follow bool, yield func(*pb.EventsResponse, error) bool)
	paused  time.Duration
}

var errUnknownNode = errs.New(errs.InvalidParams, "Handover", "no node x")

func (a *adminNode) Store() *metadata.Store { return a.store }

func (a *adminNode) Status(context.Context) (*pb.StatusResponse, error) { return a.status() }

func (a *adminNode) Digest(ctx context.Context, seq metadata.Seq) (metadata.Seq, metadata.Digest, error) {
	return a.digest(ctx, seq)
}

func (a *adminNode) Handover(_ context.Context, t metadata.Term, target string) (*pb.HandoverResponse, error) {
	if t != term || target == "x" {
		return nil, errUnknownNode
	}
	return &pb.HandoverResponse{LeaderNodeId: "node-2", LeaderAddress: "b:2", DurationMs: 42}, nil
}

func (a *adminNode) StartEmpty(_ context.Context, t metadata.Term, _ bool) (metadata.Term, error) {
	if t != term {
		return 0, errs.New(errs.InvalidParams, "StartEmpty", "the last term is %d", term)
	}
	return t + 1, nil
}

func (a *adminNode) AddMember(_ context.Context, token, name, peerURL string) (string, error) {
	if name == "" {
		return "", errs.New(errs.InvalidParams, "AddMember", "no name")
	}
	return name + "=" + peerURL + token, nil
}

func (a *adminNode) RemoveMember(_ context.Context, name string, _ bool) error {
	if name != "gone" {
		return errs.New(errs.Unavailable, "RemoveMember", "node %s runs", name)
	}
	return nil
}

func (a *adminNode) Refound(_ context.Context, giveUp []string, file *rpc.Upload) (metadata.Term, metadata.Seq, error) {
	if len(giveUp) != 1 || giveUp[0] != "node-2" {
		return 0, 0, errs.New(errs.Unavailable, "Refound", "node-2 would lose something")
	}
	if file != nil {
		if a.uploads != nil {
			a.uploads <- struct{}{}
		}
		sent, err := io.ReadAll(file)
		if err != nil {
			return 0, 0, err
		}
		a.sent.Store(&sent)
	}
	return term + 1024, 7, nil
}

func (a *adminNode) Backup(_ context.Context, to io.Writer) error {
	for _, part := range a.backup {
		if _, err := to.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func (a *adminNode) History(ctx context.Context) (*pb.HistoryResponse, error) {
	if a.history != nil {
		a.history(ctx)
	}
	return &pb.HistoryResponse{Terms: []*pb.TermRecord{{Term: term, NodeId: me}}}, nil
}

func (a *adminNode) PauseTakeover(_ context.Context, d time.Duration) error {
	if a.paused = d; d > 24*time.Hour {
		return errs.New(errs.InvalidParams, "PauseTakeover", "a pause of %v", d)
	}
	return nil
}

func (a *adminNode) Forget(_ context.Context, id string) error {
	if id != "gone" {
		return errs.New(errs.Unavailable, "Forget", "node %s runs", id)
	}
	return nil
}

func (a *adminNode) Events(ctx context.Context, from metadata.Seq, follow bool) iter.Seq2[*pb.EventsResponse, error] {
	return func(yield func(*pb.EventsResponse, error) bool) { a.events(ctx, from, follow, yield) }
}

// within waits for something for a while.
func within(t testing.TB, what string, happened func() bool) {
	t.Helper()
	waittest.Until(t, 30*time.Second, what, happened)
}

var errSecret = errors.New("the secret cause")

func (c *calls) Slowed(bool) {}
