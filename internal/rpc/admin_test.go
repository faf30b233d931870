package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

func TestStatus(t *testing.T) {
	n := newNode(t)
	n.admin.status = func() (*pb.StatusResponse, error) {
		return &pb.StatusResponse{Node: &pb.Node{NodeId: me, Role: pb.Role_ROLE_PRIMARY}, LeaderNodeId: me, Warnings: []string{"mind the gap"}}, nil
	}
	want := &pb.StatusResponse{
		Header:       &pb.ResponseHeader{Term: term, ClusterId: cluster, NodeId: me},
		Node:         &pb.Node{NodeId: me, Role: pb.Role_ROLE_PRIMARY},
		LeaderNodeId: me, Warnings: []string{"mind the gap"},
	}
	if got, err := n.ops.Status(t.Context(), &pb.StatusRequest{}); err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, %v\nwant %v", got, err, want)
	}
}

// The secret of a node that joins comes beside the request, which is logged.
func TestAddMember(t *testing.T) {
	n := newNode(t)
	got, err := n.ops.AddMember(rpc.WithJoinToken(t.Context(), "/secret"), &pb.AddMemberRequest{Name: "c", PeerUrl: "http://c:1"})
	if want := "c=http://c:1/secret"; err != nil || got.GetInitialCluster() != want {
		t.Errorf("got %v, %v; want %s", got, err, want)
	}
	if got, err = n.ops.AddMember(t.Context(), &pb.AddMemberRequest{Name: "c", PeerUrl: "http://c:1", ClusterId: cluster}); err != nil {
		t.Errorf("a node of this cluster joins: got %v, error %v, want it admitted", got, err)
	}
	_, err = n.ops.AddMember(t.Context(), &pb.AddMemberRequest{Name: "c", PeerUrl: "http://c:1", ClusterId: "mistyped"})
	wantKind(t, "a node of another cluster joins", err, errs.InvalidParams)
	if _, err = n.ops.RemoveMember(t.Context(), &pb.RemoveMemberRequest{Name: "c"}); err == nil {
		t.Error("removal of a node that runs: got no error, want it refused")
	}
}

func TestDigestHandoverStartEmpty(t *testing.T) {
	n, ctx := newNode(t), t.Context()
	n.admin.digest = func(_ context.Context, seq metadata.Seq) (metadata.Seq, metadata.Digest, error) {
		return seq + 1, 0xabc, nil
	}
	if resp, err := n.ops.Digest(ctx, &pb.DigestRequest{Sequence: 41}); err != nil || resp.GetSequence() != 42 || resp.GetDigest() != "0000000000000abc" {
		t.Errorf("got %v, %v; want 42, \"0000000000000abc\" and no error", resp, err)
	}
	resp, err := n.ops.Handover(ctx, &pb.HandoverRequest{Term: term})
	if err != nil || resp.GetLeaderNodeId() != "node-2" || resp.GetLeaderAddress() != "b:2" || resp.GetDurationMs() != 42 {
		t.Errorf("got %v, %v; want \"node-2\", \"b:2\", 42 and no error", resp, err)
	}
	_, err = n.ops.Handover(ctx, &pb.HandoverRequest{Term: term, TargetNodeId: "x"})
	wantKind(t, "handover to nobody", err, errs.InvalidParams)
	_, err = n.ops.Handover(ctx, &pb.HandoverRequest{Term: 1 << 33})
	wantKind(t, "handover of a term that can never be", err, errs.InvalidParams)
	if resp, err := n.ops.StartEmpty(ctx, &pb.StartEmptyRequest{Term: term}); err != nil || resp.GetHeader().GetTerm() != term+1 {
		t.Errorf("StartEmpty: got %v, %v; want term %d", resp, err, term+1)
	}
	_, err = n.ops.StartEmpty(ctx, &pb.StartEmptyRequest{Term: term - 1})
	wantKind(t, "a term that is not the last", err, errs.InvalidParams)
}

func TestEvents(t *testing.T) {
	n := newNode(t)
	n.admin.events = func(_ context.Context, from metadata.Seq, follow bool, yield func(*pb.EventsResponse, error) bool) {
		for i := range 5 {
			e := &pb.EventsResponse{
				Term: term, Sequence: uint64(from) + uint64(i), Type: "PUT_START", Text: fmt.Sprint(follow),
			}
			if !yield(e, nil) {
				return
			}
		}
		yield(nil, errs.New(errs.Unavailable, "Events", "etcd is away"))
	}
	tail := func(r *pb.EventsRequest) ([]*pb.EventsResponse, error) {
		stream, err := n.ops.Events(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return receive(stream)
	}
	all, err := tail(&pb.EventsRequest{FromSequence: 10, Follow: true})
	wantKind(t, "behind the events", err, errs.Unavailable)
	if len(all) != 5 {
		t.Fatalf("%d events, want 5", len(all))
	}
	for i, e := range all {
		want := &pb.EventsResponse{
			Header: &pb.ResponseHeader{Term: term, ClusterId: cluster, NodeId: me}, Term: term, Sequence: 10 + uint64(i),
			Type: "PUT_START", Text: "true",
		}
		if !proto.Equal(e, want) {
			t.Errorf("event %v, want %v", e, want)
		}
	}
	if some, err := tail(&pb.EventsRequest{Limit: 2}); err != nil || len(some) != 2 || some[0].GetText() != "false" {
		t.Errorf("limited: got %d events, %v; want 2, \"false\" and no error", len(some), err)
	}
}

// receive returns all messages of a stream, and the error that ended it.
func receive[M any](stream grpc.ServerStreamingClient[M]) (all []*M, err error) {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, m)
	}
}

// A standby answers operators from its own state, and grants no lease.
func TestAdminOnAStandby(t *testing.T) {
	n, ctx := newNode(t).mount(), t.Context()
	sum := uint64(7)
	if _, err := n.objects.PutStart(ctx, &pb.PutStartRequest{
		ClientId: alice, Key: "k", Size: 100, GroupId: "g", Config: &pb.PutConfig{HardPin: true, DataType: 3},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.objects.PutEnd(ctx, &pb.PutEndRequest{ClientId: alice, Key: "k", ObjectChecksum: &sum}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.objects.PutStart(ctx, &pb.PutStartRequest{ClientId: alice, Key: "open", Size: 5}); err != nil {
		t.Fatal(err)
	}
	n.gate.Close(service.Hint{})
	resp, err := n.ops.QueryKey(ctx, &pb.QueryKeyRequest{Key: "k"})
	if err != nil || resp.GetClientId() != alice || resp.GetGroupId() != "g" || resp.GetDataType() != 3 || !resp.GetHardPin() || resp.GetSoftPin() ||
		resp.GetBlocksRemoval() != "" || resp.GetBlocksEviction() != "it is pinned hard" ||
		resp.GetObject().GetObjectChecksum() != sum || len(resp.GetObject().GetReplicas()) != 1 || resp.GetLeaseRemainingMs() != 0 {
		t.Errorf("the object: got %v, %v; want its checksum, one replica and no lease", resp, err)
	}
	_, err = n.ops.QueryKey(ctx, &pb.QueryKeyRequest{Key: "nothing"})
	wantKind(t, "a missing key", err, errs.ObjectNotFound)
	keys, err := n.ops.ListKeys(ctx, &pb.ListKeysRequest{})
	if err != nil || len(keys.GetKeys()) != 1 || keys.GetNextPageToken() != "" {
		t.Errorf("got %v, %v; want 1 entry, \"\" and no error", keys, err)
	}
	if keys, err := n.ops.ListKeys(ctx, &pb.ListKeysRequest{IncludeUnreadable: true}); err != nil || len(keys.GetKeys()) != 2 {
		t.Errorf("got %v, %v; want 2 entries and no error", keys, err)
	}
	_, err = n.ops.ListKeys(ctx, &pb.ListKeysRequest{PageToken: "odd"})
	wantKind(t, "a token that no server gave", err, errs.InvalidParams)

	n.gate.Open(n.master) // a lease is granted, and shows
	if _, err := n.objects.GetReplicaList(ctx, &pb.GetReplicaListRequest{Key: "k"}); err != nil {
		t.Fatal(err)
	}
	if resp, err := n.ops.QueryKey(ctx, &pb.QueryKeyRequest{Key: "k"}); err != nil || resp.GetLeaseRemainingMs() == 0 ||
		resp.GetBlocksRemoval() != "a reader holds a lease on it, or on a member of its group" {
		t.Errorf("leased: %v, %v; want a lease that blocks a removal", resp, err)
	}
	leases, err := n.ops.ListKeys(ctx, &pb.ListKeysRequest{IncludeUnreadable: true, Leased: true})
	if err != nil || !slices.Equal(leases.GetKeys(), []string{"k"}) || len(leases.GetLeaseRemainingMs()) != 1 || leases.GetLeaseRemainingMs()[0] == 0 {
		t.Errorf("leased keys: got %v, %v; want k with the rest of its lease", leases, err)
	}
	if resp, err := n.ops.QueryKey(ctx, &pb.QueryKeyRequest{Key: "open"}); err != nil || resp.GetBlocksEviction() != "a replica of it is being written" ||
		resp.GetBlocksRemoval() != "it is being put, and its put has not ended" {
		t.Errorf("a reservation: got %v, %v; want it to block removal and eviction", resp, err)
	}
}

// The primary says of every client until when it is alive, a standby which there are.
// What does not fit into an answer is not put into one: the error, or the total, says so.
func TestListingsFitIntoAnswers(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.MessageBytes = 1 << 20 })
	long := strings.Repeat("n", 1000)
	var segments []*pb.Segment
	for i := range 600 {
		segments = append(segments, &pb.Segment{
			Id: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Name: fmt.Sprint(long, i), Base: 1 << 32, Size: 1 << 20,
			Endpoint: fmt.Sprint(long, i), Protocol: long, HostId: long,
		})
	}
	for part := range slices.Chunk(segments, 200) { // a request fits, too
		if _, err := n.clients.ReMountSegment(t.Context(), &pb.ReMountSegmentRequest{ClientId: alice, Segments: part}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := n.ops.ListSegments(t.Context(), &pb.ListSegmentsRequest{})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("600 segments of 4 kB: got %v, want INVALID_PARAMS", err)
	}
	one, err := n.ops.ListSegments(t.Context(), &pb.ListSegmentsRequest{Name: long + "7"})
	if err != nil || len(one.GetSegments()) != 1 {
		t.Errorf("one of them: got %d, %v; want it", len(one.GetSegments()), err)
	}
	all, err := n.ops.ListClients(t.Context(), &pb.ListClientsRequest{})
	if err != nil || all.GetTotal() != 1 || len(all.GetClients()) != 1 {
		t.Fatalf("got %d clients of %d, %v; want one", len(all.GetClients()), all.GetTotal(), err)
	}
	if got := len(all.GetClients()[0].GetSegments()); got != 600 { // 600 kB
		t.Errorf("got %d names of 1 kB, want all 600", got)
	}
}

func TestListClients(t *testing.T) {
	n, ctx := newNode(t).mount(), t.Context()
	resp, err := n.ops.ListClients(ctx, &pb.ListClientsRequest{})
	if err != nil || len(resp.GetClients()) != 1 || resp.GetTotal() != 1 || resp.GetClientTtlMs() == 0 {
		t.Fatalf("got %v, %v; want one client and a TTL", resp, err)
	}
	c := resp.GetClients()[0]
	if left := uint64(c.GetExpiresInMs()); c.GetClientId() != alice || len(c.GetSegments()) == 0 || c.GetCapacityBytes() == 0 || !c.GetWatched() || left == 0 || left > resp.GetClientTtlMs() {
		t.Errorf("got %v; want alice with memory, watched for at most a TTL", c)
	}
	n.gate.Close(service.Hint{})
	resp, err = n.ops.ListClients(ctx, &pb.ListClientsRequest{})
	if err != nil || len(resp.GetClients()) != 1 || resp.GetClients()[0].GetWatched() || resp.GetClientTtlMs() != 0 {
		t.Errorf("on a standby: got %v, %v; want one client that is not watched", resp, err)
	}
}

// Who removes many objects is on record, with what and how many, in one line.
func TestMassRemovalsAreReported(t *testing.T) {
	n, ctx := newNode(t).mount(), t.Context()
	n.put("a1", "a2", "b")
	n.master.RemovedMany = func(service.RemoveRequest, string, string, deleteevents.Result, error) {
		t.Error("a removal of many: got a second line in the log, want one, the order's")
	}
	if _, err := n.objects.RemoveByRegex(ctx, &pb.RemoveByRegexRequest{Regex: "^a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.objects.RemoveAll(ctx, &pb.RemoveAllRequest{Force: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"order":"RemoveByRegex","peer":"`, `^a`, `"objects":2,"result":"OK"`, `"order":"RemoveAll","peer":"`, `"objects":1,"result":"OK"`} {
		if got := n.logged.String(); !strings.Contains(got, want) {
			t.Errorf("the audit of removals: got\n%s\nwant %s in it", got, want)
		}
	}
}

func TestAdminOnANodeWithoutState(t *testing.T) {
	n, ctx := newNode(t), t.Context()
	n.gate.Close(service.Hint{})
	n.admin.store = nil
	n.admin.status = func() (*pb.StatusResponse, error) { return new(pb.StatusResponse), nil }
	for what, call := range map[string]func() error{
		"ListSegments": func() error { _, err := n.ops.ListSegments(ctx, &pb.ListSegmentsRequest{}); return err },
		"ListKeys":     func() error { _, err := n.ops.ListKeys(ctx, &pb.ListKeysRequest{}); return err },
		"QueryKey":     func() error { _, err := n.ops.QueryKey(ctx, &pb.QueryKeyRequest{Key: "k"}); return err },
		"DumpRanges": func() error {
			stream, err := n.ops.DumpRanges(ctx, &pb.DumpRangesRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		wantKind(t, what, call(), errs.Unavailable)
	}
	if resp, err := n.ops.Status(ctx, &pb.StatusRequest{}); err != nil || resp.GetHeader().GetTerm() != 0 {
		t.Errorf("status: got %v, %v; want 0 and no error", resp, err)
	}
}

func TestDumpRanges(t *testing.T) {
	n, ctx := newNode(t).mount(), t.Context()
	empty := &pb.Segment{Id: bob, Name: "host-b", Base: 1 << 40, Size: 1 << 10}
	if _, err := n.clients.MountSegment(ctx, &pb.MountSegmentRequest{ClientId: bob, Segment: empty}); err != nil {
		t.Fatal(err)
	}
	items := make([]*pb.PutStartItem, pb.MaxDumpRanges+10)
	for i := range items {
		items[i] = &pb.PutStartItem{Key: fmt.Sprintf("key/%d", i), Size: 2000} // too large for host-b
	}
	if resp, err := n.objects.BatchPutStart(ctx, &pb.BatchPutStartRequest{ClientId: alice, Items: items}); err != nil || len(resp.GetErrors()) > 0 {
		t.Fatal(err)
	}
	n.put("live")
	if _, err := n.objects.PutRevoke(ctx, &pb.PutRevokeRequest{ClientId: alice, Key: "key/0"}); err != nil {
		t.Fatal(err)
	}
	dump := func(r *pb.DumpRangesRequest) []*pb.DumpRangesResponse {
		t.Helper()
		stream, err := n.ops.DumpRanges(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		all, err := receive(stream)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	all, counts := dump(&pb.DumpRangesRequest{}), make(map[pb.RangeState]int)
	if len(all) < 3 || !proto.Equal(all[0].GetSegment(), memory(seg1)) || !proto.Equal(all[1].GetSegment(), empty) || len(all[1].GetRanges()) > 0 {
		t.Fatalf("%d messages; want the segments %s and host-b, and then ranges", len(all), seg1)
	}
	for i, m := range all[2:] {
		before := all[i+1].GetSequence() // or one of a heartbeat since
		if len(m.GetRanges()) == 0 || len(m.GetRanges()) > pb.MaxDumpRanges || m.GetSequence() < before {
			t.Errorf("%d ranges of %v at %d; want 1 to %d at %d or later", len(m.GetRanges()), m.GetSegment(), m.GetSequence(), pb.MaxDumpRanges, before)
		}
		end := uint64(0)
		for _, r := range m.GetRanges() {
			counts[r.GetState()]++
			if quarantined := r.GetState() == pb.RangeState_RANGE_STATE_QUARANTINED; r.GetOffset() < end || quarantined != (r.GetKey() == "") ||
				quarantined != (r.GetUntilClusterTimeMs() > 0) || quarantined == (r.GetObjectId() > 0 && r.GetTenant() == "default") {
				t.Errorf("range %v behind %d; want it behind that, with an owner or an end of its quarantine", r, end)
			}
			end = r.GetOffset() + r.GetLength()
		}
	}
	if counts[pb.RangeState_RANGE_STATE_LIVE] != 1 || counts[pb.RangeState_RANGE_STATE_RESERVED] != len(items)-1 || counts[pb.RangeState_RANGE_STATE_QUARANTINED] != 1 {
		t.Errorf("ranges by state: %v; want 1 live, %d reserved, 1 in quarantine", counts, len(items)-1)
	}
	if one := dump(&pb.DumpRangesRequest{SegmentId: bob}); slices.ContainsFunc(one, func(m *pb.DumpRangesResponse) bool { return !proto.Equal(m.GetSegment(), empty) }) {
		t.Errorf("one segment: got %v, want host-b", one)
	}
}

// A dump that nobody reads leaves a place to other hosts, and no other waits for it.
func TestDumpsOfOneHost(t *testing.T) {
	n := newNode(t).mount()
	elsewhere := pb.NewAdminServiceClient(n.dialElsewhere())
	for i := range 300 {
		n.put(fmt.Sprintf("%04d", i) + strings.Repeat("x", 4092))
	}
	unread, err := n.ops.DumpRanges(t.Context(), &pb.DumpRangesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unread.Recv(); err != nil { // so it has its place
		t.Fatal(err)
	}
	second, err := n.ops.DumpRanges(t.Context(), &pb.DumpRangesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = second.Recv()
	wantKind(t, "a second one to the host", err, errs.Unavailable)
	other, err := elsewhere.DumpRanges(t.Context(), &pb.DumpRangesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := receive(other); err != nil {
		t.Errorf("a dump for another host, beside one that nobody reads: got error %v, want none", err)
	}
}
