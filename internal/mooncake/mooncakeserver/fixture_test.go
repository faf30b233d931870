package mooncakeserver_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeserver"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// loops is how connections are served: by a goroutine each, or over an event loop.
var loops int

// twice runs all tests for both.
type twice struct{ *testing.M }

func (m twice) Run() int {
	for _, loops = range []int{-1, 1} {
		if code := m.M.Run(); code != 0 {
			return code
		}
	}
	return 0
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(twice{m}) }

var params = metadata.Params{LeaseTTL: 10 * time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}

// A node is a front with ports, which serves or not.
type node struct {
	gate    *service.Gate
	front   *mooncakeserver.Front
	log     *waittest.Buffer
	fsdir   string            // gives each put a replica on disk, unless empty
	primary *lonetest.Primary // nil on a node without a state
	fenced  atomic.Bool
	clock   atomic.Int64           // of the front, in nanoseconds
	pause   atomic.Pointer[func()] // called in the middle of each call that asks for the time
	address map[string]string      // of each generation's port
	servers []*coro.Server
}

// standby starts a node that does not serve.
func standby(t testing.TB, relay bool) *node {
	t.Helper()
	n := &node{gate: service.NewGate(), log: new(waittest.Buffer), address: make(map[string]string)}
	n.front = mooncakeserver.New(&mooncakeserver.Front{
		Gate: n.gate, Version: "2.0.0", View: func() int64 { return 17 }, Relay: relay,
		Clock: func() time.Duration { return time.Duration(n.clock.Load()) }, Log: zerolog.New(n.log), Audit: zerolog.New(n.log).With().Str("part", "audit").Logger(),
	})
	for _, name := range mooncake.Names() {
		s, err := n.front.Server(name, coro.Limits{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Loops = loops
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n.address[name] = l.Addr().String()
		n.servers = append(n.servers, s)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_ = s.Stop(ctx)
			if err := <-served; err != nil && !errors.Is(err, coro.ErrStopped) { // the test may end before this port was used
				t.Error(err)
			}
		})
	}
	return n
}

// primary starts a node that serves, with a segment of 1 MiB.
func primary(t testing.TB) *node {
	t.Helper()
	n := standby(t, false)
	n.serve(t)
	return n
}

// serve makes a node the primary.
func (n *node) serve(t testing.TB) {
	t.Helper()
	n.primary = lonetest.Start(t, metadata.Options{}, params, 1<<20)
	n.gate.Open(service.NewMaster(service.Master{
		Settings: service.Settings{ClusterID: "c", RootFSDir: n.fsdir, DiskEviction: true, DiskQuota: 1 << 30, Offload: true, OffloadQueue: 100, Promotion: service.Promotion{On: true, Threshold: 2, Limit: 2, PerHeartbeat: 1, Watermark: 0.9}, SoftPinTTL: 30 * time.Minute, MaxSoftPin: 24 * time.Hour, Version: "test"},
		Term:     1, Store: n.primary.Store, Leases: n.primary.Leases, Queue: n.primary.Queue,
		Now: func() metadata.Time {
			if f := n.pause.Load(); f != nil {
				(*f)()
			}
			return n.primary.Now()
		},
		Answers: func() bool { return !n.fenced.Load() },
		Fence: func(context.Context) error {
			if n.fenced.Load() {
				return errs.NotLeader
			}
			return nil
		},
		Liveness: service.NewLiveness(10*time.Second, 0, func() time.Duration { return 0 }, n.primary.Store),
		Counters: service.NewCounters(), AllocationFailed: func(uint64, metadata.Time) {},
	}))
}

// dial connects to a node's port of a generation.
func (n *node) dial(t testing.TB, generation string) *mooncakeclient.Conn {
	t.Helper()
	g, ok := mooncake.NewGeneration(generation)
	if !ok {
		t.Fatalf("got no generation %s of Mooncake's protocol, want one", generation)
	}
	c, err := mooncakeclient.Dial(t.Context(), n.address[generation], g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask makes a call that must get an answer.
func ask[R any](t testing.TB, c *mooncakeclient.Conn, call mooncake.Call[R], args mooncake.Args) R {
	t.Helper()
	var result R
	if _, err := mooncakeclient.Do(t.Context(), c, call, &args, &result); err != nil {
		t.Fatalf("%s: got %v, want no error", call.Name, err)
	}
	return result
}

// fails reports that a call got no answer.
func fails[R any](t testing.TB, c *mooncakeclient.Conn, call mooncake.Call[R], args mooncake.Args) error {
	t.Helper()
	var result R
	_, err := mooncakeclient.Do(t.Context(), c, call, &args, &result)
	if err == nil {
		t.Fatalf("%s got an answer: got %v, want an error", call.Name, result)
	}
	return err
}

func expect[T any](t testing.TB, what string, r mooncake.Result[T], kind errs.Kind) {
	t.Helper()
	if r.Failure != kind.Number() {
		t.Errorf("%s: %d, want %d (%v)", what, r.Failure, kind.Number(), kind)
	}
}

func client(n byte) segment.ClientID { return segment.ClientID{n} }

func config() mooncake.ReplicateConfig { return mooncake.ReplicateConfig{Replicas: 1} }

func put(t testing.TB, c *mooncakeclient.Conn, who byte, keys ...string) {
	t.Helper()
	for _, key := range keys {
		expect(t, "PutStart", ask(t, c, c.Generation.PutStart, mooncake.Args{Client: client(who), Key: key, Size: 100, Config: config()}), errs.OK)
		expect(t, "PutEnd", ask(t, c, c.Generation.PutEnd, mooncake.Args{Client: client(who), Item: mooncake.PutItem{Key: key}}), errs.OK)
	}
}
