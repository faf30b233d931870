package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/security/share"
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
	elsewhere := n.dialElsewhere()
	calls.Go(func() { _, _ = pb.NewAdminServiceClient(elsewhere).Digest(ctx, &pb.DigestRequest{Sequence: 1}) }) // of a primary that hands over
	select {
	case <-waiting:
	case <-time.After(30 * time.Second):
		t.Error("a call of another host that waits for a sequence: got it held up for 30 s, want it to begin beside the others")
	}
	stream, err := n.ops.Events(t.Context(), &pb.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantKind(t, "one more stream", err, errs.Unavailable)
	if _, err := n.ops.Status(t.Context(), new(pb.StatusRequest)); err != nil {
		t.Errorf("Status beside calls and streams that wait: got error %v, want an answer", err)
	}
	leave()
	calls.Wait()
}

// A few of operators' calls are answered at once, the others wait in line, and past
// that they are refused. One host has half of each. Clients' calls go on, and so do those
// of another host.
func TestOperatorsWaitInLine(t *testing.T) {
	n := newNode(t).mount()
	const at, line = 8, 256 // of one host
	entered, leave := make(chan struct{}, line), make(chan struct{})
	var under, most atomic.Int64
	n.admin.status = func() (*pb.StatusResponse, error) {
		most.Store(max(most.Load(), under.Add(1)))
		defer under.Add(-1)
		entered <- struct{}{}
		<-leave
		return new(pb.StatusResponse), nil
	}
	var calls, other sync.WaitGroup
	var refused atomic.Int64
	full := make(chan struct{})
	for range line + 1 {
		calls.Go(func() {
			if _, err := n.ops.Status(context.Background(), new(pb.StatusRequest)); err != nil {
				wantKind(t, "one too many", err, errs.Unavailable)
				refused.Add(1)
				close(full)
			}
		})
	}
	for range at {
		<-entered
	}
	<-full
	n.put("k")
	if got := most.Load(); got > at {
		t.Errorf("one host's calls: %d were answered at a time, want %d at most", got, at)
	}
	other.Go(func() {
		if _, err := pb.NewAdminServiceClient(n.dialElsewhere()).Status(context.Background(), new(pb.StatusRequest)); err != nil {
			t.Errorf("a call of another host: got error %v, want an answer", err)
		}
	})
	select {
	case <-entered:
	case <-time.After(30 * time.Second):
		t.Error("a call of another host: got it waiting 30 s behind those of the first, want it to go on beside them")
	}
	close(leave)
	calls.Wait()
	other.Wait()
	if refused.Load() != 1 {
		t.Errorf("%d calls at once: got %d refused, want 1", line+1, refused.Load())
	}
}

// One host has half of the calls that clients may have under way.
func TestCallsOfOneHost(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Calls = 32 }).mount()
	release := n.log.stall(t)
	put := func(from pb.ObjectServiceClient, key string) error {
		_, err := from.PutStart(context.Background(), &pb.PutStartRequest{ClientId: alice, Key: key, Size: 1})
		return err
	}
	var calls sync.WaitGroup
	refused := make(chan error, 1)
	const half = 16
	for i := range half + 1 {
		calls.Go(func() {
			if err := put(n.objects, fmt.Sprint("k", i)); err != nil {
				refused <- err
			}
		})
	}
	wantKind(t, "one call of a host too many", <-refused, errs.Unavailable)
	other := pb.NewObjectServiceClient(n.dialElsewhere())
	if _, err := other.ExistKey(t.Context(), &pb.ExistKeyRequest{Key: "none"}); err != nil {
		t.Errorf("a call of another host, when the first has its half: got error %v, want an answer", err)
	}
	release()
	calls.Wait()
	if err := put(n.objects, "after"); err != nil {
		t.Errorf("a put when all calls of the host have ended: got error %v, want none", err)
	}
}

// Large calls of a host that wait for a commit leave room in the queue to others.
func TestOneHostLeavesTheQueueToOthers(t *testing.T) {
	n := newNode(t).mount()
	release := n.log.stall(t)
	put := func(from pb.ObjectServiceClient, caller int) error {
		items := make([]*pb.PutStartItem, 1000)
		for i := range items {
			items[i] = &pb.PutStartItem{Key: fmt.Sprintf("%d/%0100d", caller, i), Size: 1}
		}
		_, err := from.BatchPutStart(context.Background(), &pb.BatchPutStartRequest{ClientId: alice, Items: items})
		return err
	}
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() { _ = put(n.objects, i) })
	}
	for full := false; !full; {
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), share.PeerKey{}, "127.0.0.1"), 50*time.Millisecond)
		ticket, err := n.master.Queue.Admit(ctx, 128<<10)
		if full = err != nil; !full {
			ticket.Release()
		}
		cancel()
	}
	_, before := n.master.Queue.Len()
	other := pb.NewObjectServiceClient(n.dialElsewhere())
	calls.Go(func() {
		if err := put(other, 100); err != nil {
			t.Errorf("a put of another host: got error %v, want room in the queue", err)
		}
	})
	for began, queued := time.Now(), before; queued <= before; _, queued = n.master.Queue.Len() {
		if time.Sleep(time.Millisecond); time.Since(began) > 30*time.Second {
			t.Error("a put of another host: got it waiting 30 s behind the first host's, want it in the queue")
			break
		}
	}
	release()
	calls.Wait()
}

// Streams of gRPC's own services are bounded, half of them for one host, and give their
// places back.
func TestStreamsOfOneHost(t *testing.T) {
	for what, tc := range map[string]struct {
		half int
		open func(ctx context.Context, conn *grpc.ClientConn) error
	}{
		"watches of the health": {512, func(ctx context.Context, conn *grpc.ClientConn) error {
			stream, err := healthpb.NewHealthClient(conn).Watch(ctx, new(healthpb.HealthCheckRequest))
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}},
		"reflection": {32, func(ctx context.Context, conn *grpc.ClientConn) error {
			stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
			if err == nil {
				err = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
			}
			if err == nil || errors.Is(err, io.EOF) { // of a stream that has ended, Recv says why
				_, err = stream.Recv()
			}
			return err
		}},
	} {
		t.Run(what, func(t *testing.T) {
			n := newNode(t)
			ctx, leave := context.WithCancel(t.Context())
			for i := range tc.half {
				if err := tc.open(ctx, n.conn); err != nil {
					t.Fatalf("stream %d of a host: got error %v, want %d of them open", i, err, tc.half)
				}
			}
			wantKind(t, "one too many", tc.open(ctx, n.conn), errs.Unavailable)
			if err := tc.open(ctx, n.dialElsewhere()); err != nil {
				t.Errorf("a stream of another host: got error %v, want it open", err)
			}
			leave()
			within(t, "places are free again", func() bool { return tc.open(t.Context(), n.conn) == nil })
		})
	}
}

// Calls of operators that take long, as all that ask etcd while that is away, hold up
// neither Status, by which nodes decide whose state counts, nor health checks.
func TestStatusPassesSlowOperators(t *testing.T) {
	n := newNode(t)
	const line = 256
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
	wait, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := n.ops.Status(wait, new(pb.StatusRequest)); err != nil {
		t.Errorf("Status beside slow calls of operators: got error %v, want an answer", err)
	}
	if _, err := healthpb.NewHealthClient(n.conn).Check(wait, new(healthpb.HealthCheckRequest)); err != nil {
		t.Errorf("a health check beside slow calls of operators: got error %v, want an answer", err)
	}
	leave()
	calls.Wait()
}
