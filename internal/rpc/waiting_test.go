package rpc_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

// Calls that wait for a sequence that never comes, and streams that nobody ends, are
// bounded, and hold up no other call.
func TestWaitingOperatorsAreBounded(t *testing.T) {
	n := newNode(t)
	const digests, events = 32, 32 // of one host
	waiting := make(chan struct{}, digests+events)
	ctx, leave := context.WithCancel(t.Context())
	n.admin.digest = func(ctx context.Context, _ metadata.Seq) (metadata.Seq, metadata.Digest, error) {
		waiting <- struct{}{}
		<-ctx.Done()
		return 0, 0, ctx.Err()
	}
	n.admin.events = func(ctx context.Context, _ metadata.Seq, _ bool, _ func(*pb.EventsResponse, error) bool) {
		waiting <- struct{}{}
		<-ctx.Done()
	}
	n.admin.status = func() (*pb.StatusResponse, error) { return new(pb.StatusResponse), nil }
	var calls sync.WaitGroup
	for range digests {
		calls.Go(func() { _, _ = n.ops.Digest(ctx, &pb.DigestRequest{Sequence: 1 << 40}) })
	}
	for range events {
		calls.Go(func() {
			if stream, err := n.ops.Events(ctx, &pb.EventsRequest{Follow: true}); err == nil {
				_, _ = stream.Recv()
			}
		})
	}
	for range digests + events {
		<-waiting
	}
	_, err := n.ops.Digest(t.Context(), &pb.DigestRequest{Sequence: 1})
	wantKind(t, "one more that waits", err, errs.Unavailable)
	elsewhere := n.dial(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(ctx, "tcp", address)
	}))
	calls.Go(func() { _, _ = pb.NewAdminServiceClient(elsewhere).Digest(ctx, &pb.DigestRequest{Sequence: 1}) }) // of a primary that hands over
	select {
	case <-waiting:
	case <-time.After(10 * time.Second):
		t.Error("a call of another host does not wait beside them")
	}
	stream, err := n.ops.Events(t.Context(), &pb.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantKind(t, "one more stream", err, errs.Unavailable)
	if _, err := n.ops.Status(t.Context(), new(pb.StatusRequest)); err != nil {
		t.Errorf("Status beside them: %v", err)
	}
	leave()
	calls.Wait()
}

// A few of operators' calls are answered at once, the others wait in line, and past
// that they are refused. Clients' calls go on.
func TestOperatorsWaitInLine(t *testing.T) {
	n := newNode(t).mount()
	const at, line = 16, 512
	entered, leave := make(chan struct{}, line), make(chan struct{})
	var under, most atomic.Int64
	n.admin.status = func() (*pb.StatusResponse, error) {
		most.Store(max(most.Load(), under.Add(1)))
		defer under.Add(-1)
		entered <- struct{}{}
		<-leave
		return new(pb.StatusResponse), nil
	}
	var calls sync.WaitGroup
	var refused atomic.Int64
	release := sync.OnceFunc(func() { close(leave) })
	for range line + 1 {
		calls.Go(func() {
			if _, err := n.ops.Status(context.Background(), new(pb.StatusRequest)); err != nil {
				wantKind(t, "one too many", err, errs.Unavailable)
				refused.Add(1)
				release()
			}
		})
	}
	for range at {
		<-entered
	}
	n.put("k")
	calls.Wait()
	if refused.Load() != 1 || most.Load() > at {
		t.Errorf("%d calls at once: got %d refused, at most %d were answered at a time; want 1 and %d", line+1, refused.Load(), most.Load(), at)
	}
}

// Calls of operators that take long, as all that ask etcd while that is away, hold up
// neither Status, by which nodes decide whose state counts, nor health checks.
func TestStatusPassesSlowOperators(t *testing.T) {
	n := newNode(t)
	const line = 512
	n.admin.status = func() (*pb.StatusResponse, error) { return new(pb.StatusResponse), nil }
	full := make(chan struct{})
	n.admin.history = func(ctx context.Context) { <-ctx.Done() }
	ctx, leave := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range line + 1 {
		calls.Go(func() {
			_, err := n.ops.History(ctx, new(pb.HistoryRequest))
			if ctx.Err() == nil && wantKind(t, "one too many", err, errs.Unavailable).NodeID == me {
				close(full)
			}
		})
	}
	<-full // the line is as long as it can be
	wait, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := n.ops.Status(wait, new(pb.StatusRequest)); err != nil {
		t.Errorf("Status: %v", err)
	}
	if _, err := healthpb.NewHealthClient(n.conn).Check(wait, new(healthpb.HealthCheckRequest)); err != nil {
		t.Errorf("health check: %v", err)
	}
	leave()
	calls.Wait()
}
