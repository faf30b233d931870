package mooncakeclient

import (
	"path"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// answerTo returns the call that a request is of, and room for its answer.
func answerTo(t *testing.T, req proto.Message) (method string, resp proto.Message) {
	t.Helper()
	call := strings.TrimSuffix(string(req.ProtoReflect().Descriptor().FullName()), "Request")
	found, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(call + "Response"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range methods {
		if path.Base(name) == call[strings.LastIndex(call, ".")+1:] {
			return name, found.New().Interface()
		}
	}
	t.Fatalf("call %s: got no method, want one of %d", call, len(methods))
	return "", nil
}

// A call with a setting that its generation has no place for is refused, and
// never sent without it.
func TestSettingsThatCannotBeSaid(t *testing.T) {
	const only, both, none = "head", "head v0.3.12", ""
	number, who := proto.Uint64(7), uuid.NewString()
	segment := func(host string) *pb.Segment {
		return &pb.Segment{Id: uuid.NewString(), Name: "n", Base: 1, Size: 1, Endpoint: "e", Protocol: "tcp", HostId: host}
	}
	pinned := &pb.PutConfig{SoftPinAction: pb.SoftPinAction_SOFT_PIN_ACTION_ENABLE}
	timed := &pb.PutConfig{SoftPinAction: pb.SoftPinAction_SOFT_PIN_ACTION_ENABLE, SoftPinTtlMs: number}
	plain := "head v0.3.12 v0.3.11"
	for _, tc := range []struct {
		what    string
		req     proto.Message
		sayable string // in these generations
	}{
		{"a soft pin", &pb.PutStartRequest{ClientId: who, Config: pinned}, plain},
		{"its time", &pb.PutStartRequest{ClientId: who, Config: timed}, only},
		{"its time, of many", &pb.BatchPutStartRequest{ClientId: who, Config: timed}, only},
		{"a group", &pb.PutStartRequest{ClientId: who, GroupId: "g"}, both},
		{"groups", &pb.BatchPutStartRequest{ClientId: who, Items: []*pb.PutStartItem{{}, {GroupId: "g"}}}, both},
		{"no groups", &pb.BatchPutStartRequest{ClientId: who, Items: []*pb.PutStartItem{{}, {}}}, plain},
		{"a checksum", &pb.PutEndRequest{ClientId: who, ObjectChecksum: number}, only},
		{"checksums", &pb.BatchPutEndRequest{ClientId: who, Items: []*pb.PutEndItem{{}, {ObjectChecksum: number}}}, only},
		{"no checksums", &pb.BatchPutEndRequest{ClientId: who, Items: []*pb.PutEndItem{{}}}, plain},
		{"a host", &pb.MountSegmentRequest{ClientId: who, Segment: segment("h")}, both},
		{"a host again", &pb.ReMountSegmentRequest{ClientId: who, Segments: []*pb.Segment{segment("h")}}, both},
		{"no host", &pb.MountSegmentRequest{ClientId: who, Segment: segment("")}, plain},
		{"a tenant", &pb.RemoveAllRequest{Tenant: "t"}, both},
		{"the default tenant", &pb.RemoveAllRequest{Tenant: "default"}, plain},
		{"whose replicas", &pb.BatchReplicaClearRequest{ClientId: who, Tenant: "t"}, none},
		{"whose copies", &pb.NotifyOffloadSuccessRequest{ClientId: who, Objects: []*pb.OffloadedObject{{Task: &pb.OffloadTask{Tenant: "t"}}}}, both},
	} {
		for _, name := range mooncake.Names() {
			tr := newCaller(t, name, "127.0.0.1:1", 1<<20) // nobody listens
			method, resp := answerTo(t, tc.req)
			err := tr.Invoke(t.Context(), method, tc.req, resp)
			e, _ := rpcerr.Parse(err)
			refused := e != nil && e.Kind == errs.NotSupported && strings.Contains(e.Detail, "leave it out")
			if sayable := strings.Contains(tc.sayable, name); refused == sayable || !refused && status.Code(err) != codes.Unavailable {
				t.Errorf("%s in %s: %v; want it sent just where the generation can say it", tc.what, name, err)
			}
		}
	}
}

// A request that the master would not take is refused, and the connection stays.
func TestTooLargeARequest(t *testing.T) {
	m := start(t)
	tr := newCaller(t, "head", m.address, 100)
	for range 3 {
		err := tr.Invoke(t.Context(), pb.ObjectService_ExistKey_FullMethodName, &pb.ExistKeyRequest{Key: strings.Repeat("k", 101)}, new(pb.ExistKeyResponse))
		if e, _ := rpcerr.Parse(err); e == nil || e.Kind != errs.InvalidParams || !strings.HasSuffix(e.Detail, "at most 100 are possible; split it") {
			t.Errorf("too large: %v; want InvalidParams with how many are possible", err)
		}
		if _, _, err := exists(t.Context(), tr); err != nil {
			t.Error(err)
		}
	}
	if n := m.opened.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}
