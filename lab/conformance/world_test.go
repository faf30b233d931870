package conformance_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeserver"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	memory  = 1 << 20 // bytes of the segment "a", which client 1 has mounted
	ttl     = 10 * time.Second
	discard = 30 * time.Second
	release = 600 * time.Second
)

// A world is a primary with one segment, what clients may call, and the eviction
// loop, which runs only when a line calls for a round. Its clock stands still but
// for pass.
type world struct {
	api
	*testing.T
	primary *lonetest.Primary
	master  *service.Master
	loop    *eviction.Loop
	another func() api // a connection of its own, which has one call at a time
}

// clientTTL is how long a client may be silent. It is of real time, and only where a
// line runs the loop that watches clients.
const clientTTL = time.Second

// newWorld starts a primary that evicts by a policy, with so much memory.
func newWorld(t *testing.T, front string, size uint64, policy eviction.Watermark) *world {
	p := lonetest.Start(t, metadata.Options{}, metadata.Params{LeaseTTL: ttl, DiscardTimeout: discard, ReleaseTimeout: release}, size)
	w := &world{T: t, primary: p}
	w.loop = eviction.NewLoop(&eviction.Loop{
		Store: p.Store, Journal: p.Queue, Policy: policy, Now: p.Now, Counters: new(eviction.Counters), Log: zerolog.Nop(),
	})
	w.master = service.NewMaster(service.Master{
		Settings: service.Settings{ClusterID: "c", SoftPinTTL: 30 * time.Minute, MaxSoftPin: 24 * time.Hour, Version: "test", LocalFirst: true},
		Term:     1, Store: p.Store, Leases: p.Leases, Queue: p.Queue, Now: p.Now,
		Answers: func() bool { return true }, Fence: func(context.Context) error { return nil },
		Liveness: service.NewLiveness(clientTTL, 0, clock.Boot(), p.Store),
		Counters: service.NewCounters(), AllocationFailed: w.loop.AllocationFailed,
	})
	w.another = func() api { return direct{t, w.master} }
	if front != "service" {
		w.another = overWire(t, w.master, front)
	}
	w.api = w.another()
	return w
}

// background runs a loop of the primary until the test ends.
func (w *world) background(run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	w.Cleanup(func() { cancel(); <-done })
}

// until waits for what loops in the background do.
func (w *world) until(what string, done func() bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	for !done() {
		if err := clock.Sleep(ctx, 50*time.Millisecond); err != nil {
			w.Fatalf("after a minute: got no change, want that %s", what)
		}
	}
}

// overWire serves a master on a port of a generation, and returns what connects to it.
func overWire(t *testing.T, m *service.Master, generation string) func() api {
	gate := service.NewGate()
	gate.Open(m)
	front := mooncakeserver.New(&mooncakeserver.Front{Gate: gate, Version: "2.0.0", View: func() int64 { return 1 }, Log: zerolog.Nop()})
	server, err := front.Server(generation, coro.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Stop(ctx)
		if err := <-served; err != nil && !errors.Is(err, coro.ErrStopped) {
			t.Error(err)
		}
	})
	g, ok := mooncake.NewGeneration(generation)
	if !ok {
		t.Fatalf("got no generation %s of Mooncake's protocol, want one", generation)
	}
	return func() api {
		c, err := mooncakeclient.Dial(t.Context(), l.Addr().String(), g)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return &wire{t, c, g}
	}
}

// pass lets time pass, with a commit behind it.
func (w *world) pass(d time.Duration) { w.Helper(); w.primary.Pass(d) }

// evict runs one round of the eviction loop and returns how many objects went.
func (w *world) evict() int {
	w.Helper()
	n, err := w.loop.Round(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// put puts a whole object of client 1 with 100 bytes, which take 104.
func (w *world) put(keys ...string) {
	w.Helper()
	w.putAs(one, keys...)
}

func (w *world) putAs(how mooncake.ReplicateConfig, keys ...string) {
	w.Helper()
	for _, key := range keys {
		_, code := w.PutStart(1, key, 100, how)
		w.code("PutStart of "+key, code, errs.OK)
		w.code("PutEnd of "+key, w.PutEnd(1, key), errs.OK)
	}
}

// get reads an object, which grants a lease.
func (w *world) get(key string, want errs.Kind) []metadata.Descriptor {
	w.Helper()
	replicas, code := w.Get(key)
	w.code("GetReplicaList of "+key, code, want)
	return replicas
}

func (w *world) code(what string, got int32, want errs.Kind) {
	w.Helper()
	if got != want.Number() {
		w.Errorf("%s: got %d, want %d (%v)", what, got, want.Number(), want)
	}
}

// exists checks which keys ExistKey finds; it grants them leases.
func (w *world) exists(want bool, keys ...string) {
	w.Helper()
	for _, key := range keys {
		if got, code := w.Exist(key); got != want || code != 0 {
			w.Errorf("ExistKey of %s: got %t, %d; want %t, 0", key, got, code, want)
		}
	}
}

// alive counts keys that are there, without a lease.
func (w *world) alive(keys ...string) int { return w.primary.Alive(keys...) }

func (w *world) count(what string, got, want int) {
	w.Helper()
	if got != want {
		w.Errorf("%s: got %d, want %d", what, got, want)
	}
}

// mount mounts a segment of a client under a name, on a host.
func (w *world) mount(n byte, name string, size uint64) segment.Spec {
	w.Helper()
	s := spec(n, name, size)
	w.code("MountSegment of "+name, w.Mount(s), errs.OK)
	return s
}

func spec(n byte, name string, size uint64) segment.Spec {
	return segment.Spec{
		ID: segment.ID{n}, Name: name, Base: uint64(n) << 36, Size: size, Endpoint: name + ":1", Protocol: "tcp", Client: segment.ClientID{n}, HostID: "host-" + name,
	}
}

// segments are the names of the segments where replicas lie.
func endpoints(replicas []metadata.Descriptor) map[string]bool {
	names := make(map[string]bool)
	for _, r := range replicas {
		names[r.Endpoint] = true
	}
	return names
}
