package rpc_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/metadata"
)

// Stop ends what would never end, and waits for what does.
func TestStop(t *testing.T) {
	n := newNode(t).mount()
	health, err := healthpb.NewHealthClient(n.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	n.admin.events = func(ctx context.Context, _ metadata.Seq, _ bool, yield func(*pb.EventsResponse, error) bool) {
		if yield(&pb.EventsResponse{Type: "FIRST"}, nil) {
			<-ctx.Done()
			yield(nil, ctx.Err())
		}
	}
	events, err := n.ops.Events(t.Context(), &pb.EventsRequest{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func() error{
		"health": func() error { _, err := health.Recv(); return err },
		"events": func() error { _, err := events.Recv(); return err },
	} {
		if err := f(); err != nil {
			t.Fatalf("%s: got %v, want no error", what, err)
		}
	}
	release := n.log.stall(t)
	put := make(chan error, 1)
	go func() {
		_, err := n.objects.PutStart(context.Background(), &pb.PutStartRequest{ClientId: alice, Key: "k", Size: 1})
		put <- err
	}()
	<-n.log.entered

	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		stopped <- n.server.Stop(ctx)
	}()
	_, err = health.Recv()
	wantKind(t, "a watch of the health", err, errs.Unavailable)
	_, err = events.Recv()
	wantKind(t, "a tail of the events", err, errs.Unavailable)
	select {
	case err := <-stopped:
		t.Fatalf("stopped with a call under way: %v; want it to wait", err)
	default:
	}
	release()
	if err := <-put; err != nil {
		t.Errorf("the call under way: got %v, want no error", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: got %v, want no error", err)
	}
	if _, err := n.clients.Ping(t.Context(), &pb.PingRequest{ClientId: alice}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call behind the end: got %v, want Unavailable", err)
	}
}

func TestStopIsBounded(t *testing.T) {
	n := newNode(t).mount()
	release := n.log.stall(t)
	put := make(chan error, 1)
	go func() {
		_, err := n.objects.PutStart(context.Background(), &pb.PutStartRequest{ClientId: alice, Key: "k", Size: 1})
		put <- err
	}()
	<-n.log.entered
	ctx, cancel := context.WithCancelCause(context.Background())
	enough := errors.New("enough")
	cancel(enough)
	if err := n.server.Stop(ctx); !errors.Is(err, enough) {
		t.Errorf("stop: got %v, want enough", err)
	}
	if err := <-put; status.Code(err) != codes.Unavailable {
		t.Errorf("the call that was cut off: got %v, want Unavailable", err)
	}
	release()
}

// A stream that nobody reads ends, and what it held is free again.
func TestStreamsThatNobodyReadsEnd(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Send = 200 * time.Millisecond })
	ended := make(chan struct{})
	n.admin.events = func(_ context.Context, _ metadata.Seq, _ bool, yield func(*pb.EventsResponse, error) bool) {
		defer close(ended)
		for yield(&pb.EventsResponse{Text: strings.Repeat("x", 1<<10)}, nil) {
		}
	}
	stream, err := n.ops.Events(t.Context(), &pb.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	_, err = receive(stream)
	wantKind(t, "reading on", err, errs.Unavailable)
}

// A backup that is read all the time, and too slowly on the whole, ends: it holds the place
// of others.
func TestSlowStreamsEnd(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Send, c.Limits.Rate = time.Second, 1<<40 })
	for range 300 { // six seconds of them
		n.admin.backup = append(n.admin.backup, make([]byte, pb.MaxSnapshotChunkBytes))
	}
	stream, err := n.ops.Backup(t.Context(), &pb.BackupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for err == nil {
		<-tick.C
		_, err = stream.Recv()
	}
	wantKind(t, "a slow reader", err, errs.Unavailable)
	within(t, "the next backup, a moment after the answer", func() bool {
		again, err := n.ops.Backup(t.Context(), &pb.BackupRequest{})
		if err == nil {
			_, err = again.Recv()
		}
		return err == nil
	})
}

// Events that are read all the time, and too slowly while there are more, end: the stream
// holds the place of others. What went fast before makes up for little of it.
func TestSlowReadersOfEventsEnd(t *testing.T) {
	const quick = 2000
	n := newNode(t, func(c *rpc.Config) { c.Limits.Send, c.Limits.EventRate = 2*time.Second, 1<<20 })
	n.admin.events = func(_ context.Context, _ metadata.Seq, _ bool, yield func(*pb.EventsResponse, error) bool) {
		for yield(&pb.EventsResponse{Text: strings.Repeat("x", 16<<10)}, nil) {
		}
	}
	stream, err := n.ops.Events(t.Context(), &pb.EventsRequest{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	for range quick { // which is worth half a minute of slow ones
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	tick := time.NewTicker(100 * time.Millisecond) // 160 KiB a second
	defer tick.Stop()
	slow := 0
	for ; err == nil && slow < 250; slow++ {
		<-tick.C
		_, err = stream.Recv()
	}
	wantKind(t, "a slow reader", err, errs.Unavailable)
}

// A peer that asks one thing after the other may think for long, and not for ever.
func TestSilentReflectionEnds(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Send = 20 * time.Millisecond })
	stream, err := reflectionpb.NewServerReflectionClient(n.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantKind(t, "a peer that asks nothing", err, errs.Unavailable)
}
