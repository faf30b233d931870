package mooncakeclient

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/lab/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A master answers ExistKey as its test says.
type master struct {
	*coro.Server
	address string
	opened  atomic.Int64 // connections
	open    atomic.Int64 // of these, still there
	answer  atomic.Pointer[answer]
}

// An answer is what comes of ExistKey.
type answer func(ctx context.Context) (mooncake.Result[bool], error)

func (m *master) answers(f answer) { m.answer.Store(&f) }

func yes(context.Context) (mooncake.Result[bool], error) {
	return mooncake.Result[bool]{Value: true}, nil
}

func start(t *testing.T) *master {
	t.Helper()
	m := new(master)
	m.answers(yes)
	m.Server = coro.NewServer(&coro.Server{Open: func(*coro.Conn) coro.Handler {
		m.opened.Add(1)
		m.open.Add(1)
		return &session{master: m}
	}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.address = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- m.Serve(l) }()
	t.Cleanup(func() {
		at, once := context.WithCancel(context.Background())
		once()
		_ = m.Stop(at)
		if err := <-served; err != nil {
			t.Errorf("serve: got %v, want no error", err)
		}
	})
	return m
}

type session struct {
	master *master
	writer structpack.Writer
}

func (s *session) Call(ctx context.Context, function uint32, _ string, reply []byte) ([]byte, error) {
	g, _ := mooncake.NewGeneration("head")
	if function == g.ServiceReady.ID {
		return structpack.Pack(&s.writer, reply, g.ServiceReady.Result, &mooncake.Result[string]{Value: "2.0.0"}), nil
	}
	r, err := (*s.master.answer.Load())(ctx)
	if err != nil {
		return nil, err
	}
	return structpack.Pack(&s.writer, reply, g.ExistKey.Result, &r), nil
}
func (s *session) Quick(uint32) bool { return false }
func (s *session) Delivered(int)     {}
func (s *session) Close()            { s.master.open.Add(-1) }

func (m *master) transport(t *testing.T) *caller {
	t.Helper()
	return transport(t, m.address)
}

func transport(t *testing.T, address string) *caller {
	t.Helper()
	return newCaller(t, "head", address, 1<<20)
}

func newCaller(t *testing.T, generation, address string, most int) *caller {
	t.Helper()
	tr, err := NewTransport(generation)
	if err != nil {
		t.Fatal(err)
	}
	c := tr.newCaller(address, client.Config{ClusterID: "c", MaxMessageBytes: most})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// exists calls ExistKey. It reports whether the master may have got that.
func exists(ctx context.Context, tr *caller) (resp *pb.ExistKeyResponse, sent bool, err error) {
	resp = new(pb.ExistKeyResponse)
	var to peer.Peer
	err = tr.Invoke(ctx, pb.ObjectService_ExistKey_FullMethodName, &pb.ExistKeyRequest{Key: "k"}, resp, grpc.Peer(&to))
	return resp, to.Addr != nil, err
}

func within(t *testing.T, what string, so func() bool) {
	t.Helper()
	waittest.Until(t, 20*time.Second, what, so)
}

// A call ends with the status that gRPC would have.
func TestOutcomes(t *testing.T) {
	m := start(t)
	for name, tc := range map[string]struct {
		answer mooncake.Result[bool]
		err    error
		code   codes.Code
		kind   errs.Kind
		node   bool // has said so
	}{
		"an answer":        {code: codes.OK},
		"a refusal":        {answer: mooncake.Result[bool]{Failure: errs.InvalidKey.Number()}, code: codes.InvalidArgument, kind: errs.InvalidKey, node: true},
		"an open outcome":  {answer: mooncake.Result[bool]{Failure: errs.Unresolved.Number()}, code: codes.DeadlineExceeded, kind: errs.Unresolved, node: true},
		"unknown number":   {answer: mooncake.Result[bool]{Failure: -4711}, code: codes.Internal, kind: errs.Internal, node: true},
		"closed":           {err: errors.New("gone"), code: codes.Unavailable, kind: errs.Unresolved},
		"thrown":           {err: &coro.Error{Code: coro.CodeException}, code: codes.Unavailable, kind: errs.Unresolved},
		"another release":  {err: &coro.Error{Code: coro.CodeInvalidArguments}, code: codes.Unimplemented, kind: errs.NotSupported},
		"an unknown call":  {err: &coro.Error{Code: coro.CodeNotRegistered}, code: codes.Unimplemented, kind: errs.NotSupported},
		"another protocol": {err: &coro.Error{Code: 99}, code: codes.Unimplemented, kind: errs.NotSupported},
	} {
		m.answers(func(context.Context) (mooncake.Result[bool], error) { return tc.answer, tc.err })
		resp, sent, err := exists(t.Context(), m.transport(t))
		e, from := rpcerr.Parse(err)
		if status.Code(err) != tc.code || !sent || (from.NodeID != "") != tc.node || err != nil && e.Kind != tc.kind {
			t.Errorf("%s: %v from %+v, sent %v; want %v of kind %v, sent", name, err, from, sent, tc.code, tc.kind)
		}
		if h := resp.GetHeader(); err == nil && (h.GetClusterId() != "c" || h.GetNodeId() != m.address || h.GetTerm() != 0) {
			t.Errorf("%s: header %v; want cluster c, node %s, term 0", name, h, m.address)
		}
	}
}

// What never left says so: it may be asked anywhere else.
func TestNothingSent(t *testing.T) {
	closing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := closing.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	})
	defer accepting.Wait()
	defer closing.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		address string
		ctx     context.Context
		code    codes.Code
	}{
		"nobody listens":     {"127.0.0.1:1", t.Context(), codes.Unavailable},
		"a node that closes": {closing.Addr().String(), t.Context(), codes.Unavailable},
		"given up":           {"127.0.0.1:1", over, codes.Canceled},
	} {
		if _, sent, err := exists(tc.ctx, transport(t, tc.address)); sent || status.Code(err) != tc.code {
			t.Errorf("%s: %v, sent %v; want %v, not sent", name, err, sent, tc.code)
		}
	}
	tr := transport(t, "127.0.0.1:1")
	for _, err := range []error{
		tr.Invoke(t.Context(), pb.AdminService_Status_FullMethodName, new(pb.StatusRequest), new(pb.StatusResponse)),
		tr.Invoke(t.Context(), pb.ObjectService_RemoveAll_FullMethodName, &pb.RemoveAllRequest{AllTenants: true}, new(pb.RemoveAllResponse)),
	} {
		if e, _ := rpcerr.Parse(err); e == nil || e.Kind != errs.NotSupported {
			t.Errorf("what needs gRPC: got %v, want an error with NotSupported", err)
		}
	}
	err = tr.Invoke(t.Context(), pb.ClientService_Ping_FullMethodName, &pb.PingRequest{ClientId: "x"}, new(pb.PingResponse))
	if e, from := rpcerr.Parse(err); e == nil || e.Kind != errs.InvalidParams || from.NodeID != "" {
		t.Errorf("no UUID: got %v, want an error with InvalidParams and no NodeID", err)
	}
}

func TestUnknownGeneration(t *testing.T) {
	if _, err := NewTransport("v9"); err == nil || !strings.Contains(err.Error(), `"v9" of Mooncake's protocol; known are head`) {
		t.Errorf("a generation that there is not: %v; want an error that names those there are", err)
	}
}

// Calls share connections, one call at a time on each; idle ones go after a
// while, and when one has failed.
func TestPool(t *testing.T) {
	m := start(t)
	tr := m.transport(t)
	var now time.Duration
	tr.pool.clock = func() time.Duration { return now }
	must := func() {
		t.Helper()
		if resp, _, err := exists(t.Context(), tr); err != nil || !resp.GetExists() {
			t.Fatalf("got %v, %v; want true and no error", resp, err)
		}
	}
	must()
	must()
	if n := m.opened.Load(); n != 1 {
		t.Errorf("%d connections for one call after the other, want 1", n)
	}
	const callers = 20
	atOnce := func() {
		m.meet(t, callers, func(all *sync.WaitGroup) {
			for range callers {
				all.Go(func() {
					if _, _, err := exists(t.Context(), tr); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
	atOnce()
	if n := m.opened.Load(); n != callers {
		t.Errorf("%d connections for %d calls at once; want one each", n, callers)
	}
	now = idleFor / 2
	must() // the last one is used again
	now = idleFor
	tr.pool.sweep()
	within(t, "one is left", func() bool { return m.open.Load() == 1 })
	must()

	atOnce()
	m.answers(func(context.Context) (mooncake.Result[bool], error) {
		return mooncake.Result[bool]{}, errors.New("gone")
	})
	if _, sent, err := exists(t.Context(), tr); err == nil || !sent {
		t.Errorf("%v, sent %v; want an error after it was sent", err, sent)
	}
	if n := len(tr.pool.idle) + len(tr.pool.busy) + len(tr.pool.slots); n != 0 {
		t.Errorf("%d are left after a failure, want 0", n)
	}
}

// meet has n calls at the master at once before any is answered.
func (m *master) meet(t *testing.T, n int, calls func(*sync.WaitGroup)) {
	t.Helper()
	var there sync.WaitGroup
	there.Add(n)
	m.answers(func(ctx context.Context) (mooncake.Result[bool], error) {
		there.Done()
		there.Wait()
		return yes(ctx)
	})
	var all sync.WaitGroup
	calls(&all)
	all.Wait()
	m.answers(yes)
}

// Past its bound calls wait, and those that wait can be given up.
func TestPoolIsBounded(t *testing.T) {
	m := start(t)
	tr := m.transport(t)
	for range maxConns {
		tr.pool.slots <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, sent, err := exists(ctx, tr); sent || status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v, sent %v; want the deadline, not sent", err, sent)
	}
	<-tr.pool.slots
	if _, _, err := exists(t.Context(), tr); err != nil {
		t.Error(err)
	}
}

// Close ends calls in progress, connecting ones too, and all that follow.
func TestClose(t *testing.T) {
	m := start(t)
	arrived := make(chan struct{})
	m.answers(func(ctx context.Context) (mooncake.Result[bool], error) {
		close(arrived)
		<-ctx.Done() // of the server
		return yes(ctx)
	})
	tr := m.transport(t)
	ended := make(chan error)
	go func() {
		_, _, err := exists(t.Context(), tr)
		ended <- err
	}()
	<-arrived
	_ = tr.Close()
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Errorf("a call in progress: got %v, want Unavailable", err)
	}
	if _, sent, err := exists(t.Context(), tr); sent || status.Code(err) != codes.Unavailable {
		t.Errorf("a call after that: %v, sent %v; want Unavailable, not sent", err, sent)
	}

	patient := transport(t, "127.0.0.1:1")
	patient.pool.dial = func(ctx context.Context, _ string, _ *mooncake.Generation) (*Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	go func() {
		_, _, err := exists(t.Context(), patient)
		ended <- err
	}()
	within(t, "the call has begun", func() bool { return len(patient.pool.slots) == 1 })
	_ = patient.Close()
	select { // by nothing else: this dial has no timeout
	case err := <-ended:
		if status.Code(err) != codes.Unavailable {
			t.Errorf("a call that connects: got %v, want Unavailable", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("a call that connects goes on, want it to end")
	}
}
