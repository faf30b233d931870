package rpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

func TestRequestsThatNoServiceSees(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.MessageBytes = 64 << 10 }).mount()
	ctx := t.Context()
	_, err := n.objects.ExistKey(ctx, &pb.ExistKeyRequest{Tenant: strings.Repeat("x", pb.MaxTenantBytes+1), Key: "k"})
	wantKind(t, "a long tenant", err, errs.InvalidParams)
	_, err = n.objects.Remove(ctx, &pb.RemoveRequest{RequestId: 1 << 63, Key: "k"})
	wantKind(t, "a request id above 2^63", err, errs.InvalidParams)

	for _, id := range []string{"", nilUUID, alice[:35], alice + "0", "urn:uuid:" + alice, "{" + alice[:34] + "}", strings.Repeat("-", 36)} {
		_, err = n.clients.Ping(ctx, &pb.PingRequest{ClientId: id})
		wantKind(t, "client id "+id, err, errs.InvalidParams)
		if err == nil || !strings.Contains(err.Error(), "client_id is ") {
			t.Errorf("client id %s: %v does not name the field; want \"client_id is\" in it", id, err)
		}
	}

	keys := make([]string, 100)
	for i := range keys {
		keys[i] = strings.Repeat("x", 1000)
	}
	_, err = n.objects.BatchExistKey(ctx, &pb.BatchExistKeyRequest{Keys: keys})
	if e, from := rpcerr.Parse(err); e == nil || e.Kind != errs.InvalidParams || status.Code(err) != codes.ResourceExhausted || from.NodeID != "" {
		t.Errorf("a message that is too large: got %v, want an error with InvalidParams, ResourceExhausted and no NodeID", err)
	}
	if _, err := n.objects.BatchExistKey(ctx, &pb.BatchExistKeyRequest{Keys: keys[:50]}); err != nil {
		t.Errorf("a message that is not: %v; want no error", err)
	}
}

func TestUnknownErrorsAreLoggedOnceAndNotTold(t *testing.T) {
	n := newNode(t)
	n.admin.status = func() (*pb.StatusResponse, error) { return nil, errSecret }
	_, err := n.ops.Status(t.Context(), &pb.StatusRequest{})
	wantKind(t, "status", err, errs.Internal)
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the client was told: %v; want nothing of the cause", err)
	}
	if logged := n.logged.String(); strings.Count(logged, errSecret.Error()) != 1 || !strings.Contains(logged, "/understudy.v1.AdminService/Status") {
		t.Errorf("logged: got %s, want 1 and \"/understudy.v1.AdminService/Status\"", logged)
	}
}

// A call that fails for a defect is found in the log by its request id.
func TestDefectsAreLoggedWithTheRequestID(t *testing.T) {
	n := newNode(t).mount()
	n.log.failAfter(0, &journal.RefusedError{Err: errs.New(errs.Internal, "", "odd")})
	// A refused commit is Unavailable, not a defect, and not logged.
	_, err := n.objects.PutStart(t.Context(), &pb.PutStartRequest{ClientId: alice, Key: "the key", Size: 1, RequestId: 4711})
	wantKind(t, "refused", err, errs.Unavailable)
	n.gate.Open(service.NewMaster(service.Master{})) // a Master that nobody has made whole panics
	_, err = n.objects.PutStart(t.Context(), &pb.PutStartRequest{ClientId: alice, Key: "the key", Size: 1, RequestId: 4712})
	wantKind(t, "a defect", err, errs.Internal)
	lines := strings.Split(strings.TrimSpace(n.logged.String()), "\n")
	var line struct {
		Level, Method, Panic, Stack, Message string
		RequestID                            uint64 `json:"request_id"`
	}
	if err := json.Unmarshal([]byte(lines[0]), &line); err != nil || len(lines) != 1 {
		t.Fatalf("logged %d lines: got %s, %v; want 1 and no error", len(lines), lines, err)
	}
	if line.Level != "error" || line.RequestID != 4712 || !strings.HasSuffix(line.Method, "/PutStart") || line.Message != "a call panicked" ||
		!strings.Contains(line.Panic, "nil pointer") || !strings.Contains(line.Stack, "service.(*Master).PutStart") || strings.Contains(lines[0], "the key") {
		t.Errorf("logged %s, want the panic with its stack, and no key", lines[0])
	}
	// The server goes on.
	n.gate.Open(n.master)
	if _, err := n.objects.ExistKey(t.Context(), &pb.ExistKeyRequest{Key: "k"}); err != nil {
		t.Error(err)
	}
}

func TestPanicInAStream(t *testing.T) {
	n := newNode(t)
	n.admin.events = func(context.Context, metadata.Seq, bool, func(*pb.EventsResponse, error) bool) { panic("on purpose") }
	stream, err := n.ops.Events(t.Context(), &pb.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantKind(t, "a stream that panics", err, errs.Internal)
	if strings.Contains(err.Error(), "on purpose") || strings.Count(n.logged.String(), `"panic":"on purpose"`) != 1 {
		t.Errorf("told %v, logged %s, want neither to the caller, and one line in the log", err, n.logged)
	}
}

func TestEveryCallHasADeadline(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Deadline = 50 * time.Millisecond })
	var deadline time.Time
	n.admin.digest = func(ctx context.Context, _ metadata.Seq) (metadata.Seq, metadata.Digest, error) {
		deadline, _ = ctx.Deadline()
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-time.After(10 * time.Second):
			return 0, 0, nil
		}
	}
	_, err := n.ops.Digest(context.Background(), &pb.DigestRequest{Sequence: 1})
	wantKind(t, "a call without a deadline", err, errs.Unresolved)
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	if left := time.Until(deadline); left > 0 {
		t.Errorf("it had %v left, want none", left)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	n.admin.digest = func(ctx context.Context, _ metadata.Seq) (metadata.Seq, metadata.Digest, error) {
		deadline, _ = ctx.Deadline()
		return 1, 2, nil
	}
	if _, err := n.ops.Digest(ctx, &pb.DigestRequest{}); err != nil || time.Until(deadline) < 59*time.Minute {
		t.Errorf("the caller's own deadline: %v left, %v; want an hour, and no error", time.Until(deadline), err)
	}
}

// A call that may wait for an hour, or for ever, ends all the same.
func TestLongestDeadline(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(c *rpc.Config) { c.Limits.LongestDeadline = 5 * time.Second }).mount() // which is a call itself
	release := n.log.stall(t)
	defer release()
	ctx, cancel := context.WithTimeout(context.Background(), 100*365*24*time.Hour)
	defer cancel()
	_, err := n.objects.PutStart(ctx, &pb.PutStartRequest{ClientId: alice, Key: "k", Size: 1})
	wantKind(t, "a put that waits", err, errs.Unresolved)
	n.admin.status = func() (*pb.StatusResponse, error) { return new(pb.StatusResponse), nil }
	if _, err := n.ops.Status(ctx, new(pb.StatusRequest)); err != nil {
		t.Errorf("a call that is answered at once: got %v, want no error", err)
	}
}

// The fence closes after a call was let through and before it is answered: a
// read, and a write that the journal refuses.
func TestFenceClosesInTheMiddleOfACall(t *testing.T) {
	n := newNode(t).mount()
	n.put("k")
	release := n.log.stall(t)
	revoked := make(chan error, 1)
	go func() {
		_, err := n.objects.Remove(context.Background(), &pb.RemoveRequest{Key: "k", Force: true})
		revoked <- err
	}()
	<-n.log.entered

	asked := make(chan struct{}, 16)
	hook := func() { asked <- struct{}{} }
	n.onFence.Store(&hook)
	got := make(chan error, 1)
	go func() {
		_, err := n.objects.GetReplicaList(context.Background(), &pb.GetReplicaListRequest{Key: "k"})
		got <- err
	}()
	<-asked // let through, and now waiting for the removal
	n.fenced.Store(true)
	n.gate.Close(service.Hint{Term: term + 1, RPC: "b:2"})
	n.log.failAfter(0, journal.ErrFenced)
	release()
	for what, err := range map[string]error{"the read": <-got, "the write": <-revoked} {
		if from := wantKind(t, what, err, errs.NotLeader); from.Leader != "b:2" || from.Term != term+1 {
			t.Errorf("%s: hint %+v; want b:2 in term %d", what, from, term+1)
		}
	}
}

func TestCallsUnderWayAreBounded(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Calls = 1 }).mount()
	release := n.log.stall(t)
	put := make(chan error, 1)
	go func() {
		_, err := n.objects.PutStart(context.Background(), &pb.PutStartRequest{ClientId: alice, Key: "k", Size: 1})
		put <- err
	}()
	<-n.log.entered
	_, err := n.objects.ExistKey(t.Context(), &pb.ExistKeyRequest{Key: "k"})
	wantKind(t, "one call too many", err, errs.Unavailable)
	_, err = n.clients.MountSegment(t.Context(), &pb.MountSegmentRequest{ClientId: bob, Segment: memory(bob)})
	wantKind(t, "one mount too many", err, errs.Unavailable)
	_, err = n.clients.NotifyOffloadSuccess(t.Context(), &pb.NotifyOffloadSuccessRequest{ClientId: bob, Objects: []*pb.OffloadedObject{{}}})
	wantKind(t, "one notice too many", err, errs.Unavailable)
	if _, err := n.clients.Ping(t.Context(), &pb.PingRequest{ClientId: alice}); err != nil {
		t.Errorf("ping: got %v, want no error", err)
	}
	release()
	if err := <-put; err != nil {
		t.Error(err)
	}
	if _, err := n.objects.ExistKey(t.Context(), &pb.ExistKeyRequest{Key: "k"}); err != nil {
		t.Errorf("afterwards: got %v, want no error", err)
	}
}

func TestHealthFollowsTheFence(t *testing.T) {
	n := newNode(t)
	client := healthpb.NewHealthClient(n.conn)
	const serving, notServing = healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING
	check := func(what string, want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, name := range []string{"", "understudy.v1.ObjectService"} {
			if resp, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name}); err != nil || resp.GetStatus() != want {
				t.Errorf("%s: %q is %v, %v; want %v", what, name, resp, err, want)
			}
		}
		list, err := client.List(t.Context(), &healthpb.HealthListRequest{})
		if err != nil || len(list.GetStatuses()) != 4 || list.GetStatuses()["understudy.v1.SnapshotService"].GetStatus() != want {
			t.Errorf("%s: %v, %v; want 4 services, all of them %v", what, list, err, want)
		}
	}
	watch := func(name string) grpc.ServerStreamingClient[healthpb.HealthCheckResponse] {
		stream, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	whole, unknown := watch(""), watch("nothing")
	next := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if resp, err := whole.Recv(); err != nil || resp.GetStatus() != want {
			t.Errorf("watch: %v, %v, want %v", resp, err, want)
		}
	}
	check("serving", serving)
	next(serving)
	n.fenced.Store(true) // nobody says so; time has passed
	check("fenced", notServing)
	next(notServing)
	n.gate.Close(service.Hint{})
	n.fenced.Store(false)
	check("a standby", notServing)
	n.gate.Open(n.master)
	next(serving) // what was the same in between was not told again
	check("serving again", serving)

	if resp, err := unknown.Recv(); err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
		t.Errorf("watch of nothing: %v, %v; want SERVICE_UNKNOWN", resp, err)
	}
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nothing"}); status.Code(err) != codes.NotFound {
		t.Errorf("check of nothing: got %v, want NotFound", err)
	}
}

func TestReflection(t *testing.T) {
	n := newNode(t)
	want := []string{
		"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
		"understudy.v1.AdminService", "understudy.v1.ClientService", "understudy.v1.ObjectService", "understudy.v1.SnapshotService",
	}
	v1, err := reflectionpb.NewServerReflectionClient(n.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	if err := errors.Join(v1.Send(ask), v1.CloseSend()); err != nil {
		t.Fatal(err)
	}
	resp, err := v1.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range resp.GetListServicesResponse().GetService() {
		got = append(got, s.GetName())
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("v1 lists %v, want %v", got, want)
	}
	alpha, err := reflectionalpha.NewServerReflectionClient(n.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	old := &reflectionalpha.ServerReflectionRequest{MessageRequest: &reflectionalpha.ServerReflectionRequest_ListServices{}} //nolint:staticcheck // old clients use it
	if err := errors.Join(alpha.Send(old), alpha.CloseSend()); err != nil {
		t.Fatal(err)
	}
	resp2, err := alpha.Recv()
	if err != nil || len(resp2.GetListServicesResponse().GetService()) != len(want) { //nolint:staticcheck // old clients use it
		t.Errorf("v1alpha lists %v, %v, want as many", resp2, err)
	}
}
