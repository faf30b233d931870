package rpc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// methods lists every method of the contract.
func methods(t *testing.T) []protoreflect.MethodDescriptor {
	t.Helper()
	var all []protoreflect.MethodDescriptor
	for _, name := range []string{"ObjectService", "ClientService", "AdminService", "SnapshotService"} {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("understudy.v1." + name))
		if err != nil {
			t.Fatal(err)
		}
		list := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range list.Len() {
			all = append(all, list.Get(i))
		}
	}
	return all
}

func path(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// invoke calls a method with a request, and returns its last answer.
func invoke(ctx context.Context, conn *grpc.ClientConn, m protoreflect.MethodDescriptor, request proto.Message) (proto.Message, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil, err
	}
	answer := kind.New().Interface()
	if !m.IsStreamingServer() && !m.IsStreamingClient() {
		return answer, conn.Invoke(ctx, path(m), request, answer)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: m.IsStreamingServer(), ClientStreams: m.IsStreamingClient()}, path(m))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(stream.SendMsg(request), stream.CloseSend()); err != nil {
		return nil, err
	}
	for {
		next := kind.New().Interface()
		if err := stream.RecvMsg(next); errors.Is(err, io.EOF) {
			return answer, nil
		} else if err != nil {
			return nil, err
		}
		answer = next
	}
}

// rows has, for every method, a call that succeeds on a node with an object
// "k" and a reservation "open", and one that fails.
var rows = map[string]struct {
	good, bad proto.Message
	kind      errs.Kind
}{
	"ExistKey":              {&pb.ExistKeyRequest{Key: "k"}, &pb.ExistKeyRequest{Key: tooLong}, errs.InvalidKey},
	"BatchExistKey":         {&pb.BatchExistKeyRequest{Keys: []string{"k"}}, &pb.BatchExistKeyRequest{}, errs.InvalidParams},
	"GetReplicaList":        {&pb.GetReplicaListRequest{Key: "k"}, &pb.GetReplicaListRequest{Key: tooLong}, errs.InvalidKey},
	"BatchGetReplicaList":   {&pb.BatchGetReplicaListRequest{Keys: []string{"k"}}, &pb.BatchGetReplicaListRequest{Keys: make([]string, 10_001)}, errs.InvalidParams},
	"GetReplicaListByRegex": {&pb.GetReplicaListByRegexRequest{Regex: "^k$"}, &pb.GetReplicaListByRegexRequest{Regex: "(?=x)"}, errs.InvalidParams},
	"PutStart": {&pb.PutStartRequest{ClientId: alice, Key: "new", Size: 1},
		&pb.PutStartRequest{ClientId: alice, Key: "k", Size: 1}, errs.ObjectExists},
	"PutEnd": {&pb.PutEndRequest{ClientId: alice, Key: "open"},
		&pb.PutEndRequest{ClientId: bob, Key: "open"}, errs.IllegalClient},
	"PutRevoke": {&pb.PutRevokeRequest{ClientId: alice, Key: "revoke"},
		&pb.PutRevokeRequest{ClientId: alice, Key: "revoke", Selector: 77}, errs.InvalidParams},
	"BatchPutStart": {&pb.BatchPutStartRequest{ClientId: alice, Items: []*pb.PutStartItem{{Key: "new2", Size: 1}}},
		&pb.BatchPutStartRequest{ClientId: alice}, errs.InvalidParams},
	"BatchPutEnd": {&pb.BatchPutEndRequest{ClientId: alice, Items: []*pb.PutEndItem{{Key: "k"}}},
		&pb.BatchPutEndRequest{ClientId: "k", Items: []*pb.PutEndItem{{Key: "k"}}}, errs.InvalidParams},
	"BatchPutRevoke": {&pb.BatchPutRevokeRequest{ClientId: alice, Items: []*pb.PutRevokeItem{{Key: "k"}}},
		&pb.BatchPutRevokeRequest{ClientId: alice}, errs.InvalidParams},
	"Remove":        {&pb.RemoveRequest{Key: "gone"}, &pb.RemoveRequest{Key: "nothing"}, errs.ObjectNotFound},
	"BatchRemove":   {&pb.BatchRemoveRequest{Keys: []string{"nothing"}}, &pb.BatchRemoveRequest{}, errs.InvalidParams},
	"RemoveByRegex": {&pb.RemoveByRegexRequest{Regex: "^nothing$"}, &pb.RemoveByRegexRequest{Regex: "("}, errs.InvalidParams},
	"RemoveAll":     {&pb.RemoveAllRequest{}, &pb.RemoveAllRequest{AllTenants: true, Tenant: "x"}, errs.InvalidParams},
	"BatchReplicaClear": {&pb.BatchReplicaClearRequest{ClientId: alice, Keys: []string{"clear", "nothing"}},
		&pb.BatchReplicaClearRequest{ClientId: alice, Keys: []string{"k"}, SegmentName: tooLong}, errs.InvalidParams},

	"KvEvents": {nil, &pb.KvEventsRequest{}, errs.NotSupported}, // a good one ends with its caller only

	"ServiceReady": {&pb.ServiceReadyRequest{ContractRevision: 2}, &pb.ServiceReadyRequest{}, errs.InvalidVersion},
	"Ping":         {&pb.PingRequest{ClientId: alice}, &pb.PingRequest{ClientId: nilUUID}, errs.InvalidParams},
	"MountSegment": {&pb.MountSegmentRequest{ClientId: alice, Segment: memory(seg1)},
		&pb.MountSegmentRequest{ClientId: alice}, errs.InvalidParams},
	"ReMountSegment": {&pb.ReMountSegmentRequest{ClientId: bob},
		&pb.ReMountSegmentRequest{ClientId: alice, Segments: make([]*pb.Segment, 10_001)}, errs.InvalidParams},
	"UnmountSegment": {&pb.UnmountSegmentRequest{ClientId: bob, SegmentId: bob},
		&pb.UnmountSegmentRequest{ClientId: bob, SegmentId: "{" + bob + "}"}, errs.InvalidParams},
	"BatchQueryIp":           {&pb.BatchQueryIpRequest{ClientIds: []string{alice, bob}}, &pb.BatchQueryIpRequest{}, errs.InvalidParams},
	"GetFsdir":               {&pb.GetFsdirRequest{}, nil, errs.OK},
	"GetStorageConfig":       {&pb.GetStorageConfigRequest{}, nil, errs.OK},
	"MountLocalDiskSegment":  {&pb.MountLocalDiskSegmentRequest{ClientId: alice}, &pb.MountLocalDiskSegmentRequest{}, errs.InvalidParams},
	"OffloadObjectHeartbeat": {&pb.OffloadObjectHeartbeatRequest{ClientId: alice}, &pb.OffloadObjectHeartbeatRequest{ClientId: bob}, errs.SegmentNotFound},
	"NotifyOffloadSuccess": {&pb.NotifyOffloadSuccessRequest{ClientId: alice, Objects: []*pb.OffloadedObject{{Refused: true}}},
		&pb.NotifyOffloadSuccessRequest{ClientId: alice}, errs.InvalidParams},

	"Status":        {&pb.StatusRequest{}, nil, errs.OK},
	"Digest":        {&pb.DigestRequest{}, &pb.DigestRequest{Sequence: 99}, errs.InvalidParams},
	"Handover":      {&pb.HandoverRequest{Term: term}, &pb.HandoverRequest{}, errs.InvalidParams},
	"StartEmpty":    {&pb.StartEmptyRequest{Term: term}, &pb.StartEmptyRequest{Term: 1 << 40}, errs.InvalidParams},
	"Refound":       {&pb.RefoundRequest{GiveUp: []string{"node-2"}}, &pb.RefoundRequest{}, errs.Unavailable},
	"Backup":        {&pb.BackupRequest{}, nil, errs.OK},
	"History":       {&pb.HistoryRequest{}, nil, errs.OK},
	"AddMember":     {&pb.AddMemberRequest{Name: "c"}, &pb.AddMemberRequest{}, errs.InvalidParams},
	"RemoveMember":  {&pb.RemoveMemberRequest{Name: "gone"}, &pb.RemoveMemberRequest{}, errs.InvalidParams},
	"Forget":        {&pb.ForgetRequest{NodeId: "gone"}, &pb.ForgetRequest{}, errs.InvalidParams},
	"PauseTakeover": {&pb.PauseTakeoverRequest{ForMs: 1000}, &pb.PauseTakeoverRequest{ForMs: 1 << 63}, errs.InvalidParams},
	"Events":        {&pb.EventsRequest{}, &pb.EventsRequest{FromSequence: 99}, errs.Unavailable},
	"ListSegments":  {&pb.ListSegmentsRequest{}, nil, errs.OK},
	"ListClients":   {&pb.ListClientsRequest{}, nil, errs.OK},
	"ListDrainJobs": {&pb.ListDrainJobsRequest{}, nil, errs.OK},
	"ListKeys":      {&pb.ListKeysRequest{}, &pb.ListKeysRequest{PageSize: 10_001}, errs.InvalidParams},
	"QueryKey":      {&pb.QueryKeyRequest{Key: "k"}, &pb.QueryKeyRequest{}, errs.InvalidKey},
	"DumpRanges":    {&pb.DumpRangesRequest{}, &pb.DumpRangesRequest{SegmentId: bob}, errs.SegmentNotFound},

	"StreamSnapshot": {&pb.StreamSnapshotRequest{ClusterId: cluster, Formats: []uint32{7, rpc.SnapshotFormat}},
		&pb.StreamSnapshotRequest{ClusterId: cluster, Formats: []uint32{7}}, errs.InvalidVersion},
}

var tooLong = strings.Repeat("x", pb.MaxKeyBytes+1)

const nilUUID = "00000000-0000-0000-0000-000000000000"

// furnish makes a node ready for all rows.
func furnish(n *node) *node {
	n.mount().put("k", "gone", "clear")
	if err := n.master.MountLocalDisk(n.t.Context(), segment.ClientID(uuid.MustParse(alice)), false); err != nil {
		n.t.Fatal(err)
	}
	for _, key := range []string{"open", "revoke"} {
		if _, err := n.objects.PutStart(n.t.Context(), &pb.PutStartRequest{ClientId: alice, Key: key, Size: 1}); err != nil {
			n.t.Fatal(err)
		}
	}
	n.admin.backup = [][]byte{[]byte("a state file")}
	n.admin.status = func() (*pb.StatusResponse, error) { return new(pb.StatusResponse), nil }
	n.admin.digest = func(_ context.Context, seq metadata.Seq) (metadata.Seq, metadata.Digest, error) {
		if seq != 0 {
			return 0, 0, errs.New(errs.InvalidParams, "Digest", "it is no longer known")
		}
		return 5, 0xabc, nil
	}
	n.admin.events = func(_ context.Context, from metadata.Seq, _ bool, yield func(*pb.EventsResponse, error) bool) {
		if from != 0 {
			yield(nil, errs.Unavailable)
			return
		}
		yield(&pb.EventsResponse{Term: term}, nil)
	}
	return n
}

func TestEveryMethodOnceGoodAndOnceBad(t *testing.T) {
	n := furnish(newNode(t))
	for _, m := range methods(t) {
		name := string(m.Name())
		row, ok := rows[name]
		if !ok {
			t.Errorf("%s: got no row, want a good and a bad request for every method", name)
			continue
		}
		if row.bad != nil {
			_, err := invoke(t.Context(), n.conn, m, row.bad)
			wantKind(t, name, err, row.kind)
			if !n.calls.has(path(m), row.kind.Code()) {
				t.Errorf("%s that fails: got no report of the call, want one with %v", name, row.kind.Code())
			}
		}
		if row.good == nil {
			continue
		}
		answer, err := invoke(t.Context(), n.conn, m, row.good)
		if err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
			continue
		}
		h := answer.(interface{ GetHeader() *pb.ResponseHeader }).GetHeader()
		wantTerm := uint64(term)
		switch name {
		case "StartEmpty":
			wantTerm++
		case "Refound":
			wantTerm += 1024
		}
		if h.GetTerm() != wantTerm || h.GetClusterId() != cluster || h.GetNodeId() != me {
			t.Errorf("%s: header %v; want term %d of node %s in %s", name, h, wantTerm, me, cluster)
		}
		if !n.calls.has(path(m), codes.OK) {
			t.Errorf("%s that succeeds: got no report of the call, want one with OK", name)
		}
	}
}

// Every node but the serving one turns clients away, with a hint, whatever they
// ask; operators get their answers.
func TestNotLeader(t *testing.T) {
	n := furnish(newNode(t))
	hint := service.Hint{Term: 9, NodeID: "node-2", RPC: "10.0.0.2:50051"}
	all := methods(t)
	check := func(what string, wantTerm uint64, leader string) {
		t.Helper()
		for _, m := range all {
			row := rows[string(m.Name())]
			clientCall := m.Parent().Name() != "AdminService"
			for _, request := range []proto.Message{row.good, row.bad} {
				// Another format, and too long a batch, is refused wherever it is asked for.
				if request == nil || request == row.bad && (m.Name() == "StreamSnapshot" || m.Name() == "BatchGetReplicaList") {
					continue
				}
				_, err := invoke(t.Context(), n.conn, m, request)
				if !clientCall {
					if errs.KindOf(err) == errs.NotLeader {
						t.Errorf("%s: %s: %v; want an answer on any node", what, m.Name(), err)
					}
					continue
				}
				from := wantKind(t, what+": "+string(m.Name()), err, errs.NotLeader)
				if from.Term != wantTerm || from.Leader != leader {
					t.Errorf("%s: %s: hint %+v; want term %d and leader %q", what, m.Name(), from, wantTerm, leader)
				}
			}
		}
	}
	n.gate.Close(hint)
	check("a standby", 9, hint.RPC)
	n.gate.Close(service.Hint{})
	check("a standby that knows nobody", 0, "")
	if resp, err := n.ops.ListSegments(t.Context(), &pb.ListSegmentsRequest{}); err != nil || resp.GetHeader().GetTerm() != term {
		t.Errorf("the term of the newest commit: %v, %v; want %d", resp, err, term)
	}

	// A primary whose right to answer has lapsed judges by its own clock. What is
	// wrong with a request shows before that where the service does not see it.
	n.gate.Open(n.master)
	n.fenced.Store(true)
	for _, m := range all {
		if row := rows[string(m.Name())]; row.good != nil && m.Parent().Name() != "AdminService" {
			_, err := invoke(t.Context(), n.conn, m, row.good)
			if from := wantKind(t, "fenced: "+string(m.Name()), err, errs.NotLeader); from.Term != term {
				t.Errorf("fenced: %s: %+v; want term %d", m.Name(), from, term)
			}
		}
	}
}
