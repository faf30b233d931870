package rpc_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
)

func TestSegmentsAndClients(t *testing.T) {
	n, ctx := newNode(t), t.Context()
	ping := func(client string) pb.ClientStatus {
		t.Helper()
		resp, err := n.clients.Ping(ctx, &pb.PingRequest{ClientId: client})
		if err != nil || resp.GetClientTtlMs() != 10_000 {
			t.Errorf("ping: got %v, %v; want 10_000 and no error", resp, err)
		}
		return resp.GetStatus()
	}
	if got := ping(alice); got != pb.ClientStatus_CLIENT_STATUS_NEED_REMOUNT {
		t.Errorf("before it mounts: got %v, want pb.ClientStatus_CLIENT_STATUS_NEED_REMOUNT", got)
	}
	n.mount().mount() // twice is no error
	if got := ping(alice); got != pb.ClientStatus_CLIENT_STATUS_OK {
		t.Errorf("after it mounted: got %v, want pb.ClientStatus_CLIENT_STATUS_OK", got)
	}
	moved := memory(seg1)
	moved.Base *= 4
	_, err := n.clients.MountSegment(ctx, &pb.MountSegmentRequest{ClientId: alice, Segment: moved})
	wantKind(t, "the same id at another place", err, errs.SegmentExists)
	for name, broken := range map[string]func(*pb.Segment){
		"no id": func(s *pb.Segment) { s.Id = "" }, "nil id": func(s *pb.Segment) { s.Id = nilUUID }, "no name": func(s *pb.Segment) { s.Name = "" },
		"no base": func(s *pb.Segment) { s.Base = 0 }, "no size": func(s *pb.Segment) { s.Size = 0 }, "over the end": func(s *pb.Segment) { s.Size = 1<<64 - 1 },
		"long endpoint": func(s *pb.Segment) { s.Endpoint = tooLong },
	} {
		seg := proto.CloneOf(memory(bob))
		broken(seg)
		_, err := n.clients.MountSegment(ctx, &pb.MountSegmentRequest{ClientId: alice, Segment: seg})
		wantKind(t, name, err, errs.InvalidParams)
	}

	other := &pb.Segment{Id: bob, Name: "host-b", Base: 1 << 40, Size: 1 << 20, Endpoint: "[fe80::0:1]:7000"}
	if _, err := n.clients.ReMountSegment(ctx, &pb.ReMountSegmentRequest{ClientId: bob, Segments: []*pb.Segment{other}}); err != nil {
		t.Fatal(err)
	}
	if got := ping(bob); got != pb.ClientStatus_CLIENT_STATUS_OK {
		t.Errorf("after it remounted: got %v, want pb.ClientStatus_CLIENT_STATUS_OK", got)
	}
	ips, err := n.clients.BatchQueryIp(ctx, &pb.BatchQueryIpRequest{ClientIds: []string{bob, seg1, alice}})
	if err != nil || len(ips.GetClients()) != 2 || ips.GetClients()[0].GetClientId() != bob || !slices.Equal(ips.GetClients()[0].GetIps(), []string{"fe80::1"}) ||
		!slices.Equal(ips.GetClients()[1].GetIps(), []string{"10.0.0.1"}) {
		t.Errorf("addresses: %v, %v; want 10.0.0.1", ips, err)
	}
	list, err := n.ops.ListSegments(ctx, &pb.ListSegmentsRequest{})
	if err != nil || len(list.GetSegments()) != 2 || !proto.Equal(list.GetSegments()[0].GetSegment(), memory(seg1)) ||
		list.GetSegments()[0].GetClientId() != alice || list.GetSegments()[0].GetCapacityBytes() != 1<<30 {
		t.Errorf("segments: %v, %v; want 1 GiB of alice", list, err)
	}
	if list, err := n.ops.ListSegments(ctx, &pb.ListSegmentsRequest{Name: "host-b"}); err != nil || len(list.GetSegments()) != 1 {
		t.Errorf("segments of a name: got %v, %v; want 1 entry and no error", list, err)
	}
	for range 2 {
		if _, err := n.clients.UnmountSegment(ctx, &pb.UnmountSegmentRequest{ClientId: alice, SegmentId: bob}); err != nil {
			t.Error(err)
		}
	}
	if list, err := n.ops.ListSegments(ctx, &pb.ListSegmentsRequest{}); err != nil || len(list.GetSegments()) != 1 {
		t.Errorf("segments that are left: got %v, %v; want 1 entry and no error", list, err)
	}
}

func TestHandshakeAndStorage(t *testing.T) {
	withDisk := func(c *rpc.Config) {
		m, _ := c.Gate.Master()
		m.RootFSDir, m.DiskEviction, m.DiskQuota = "/disk", true, 1<<30
	}
	n, ctx := newNode(t, withDisk), t.Context()
	ready, err := n.clients.ServiceReady(ctx, &pb.ServiceReadyRequest{ContractRevision: pb.ContractRevision, ClientVersion: "0.1"})
	if err != nil || ready.GetServerVersion() != "1.2.3" || ready.GetContractRevision() != pb.ContractRevision {
		t.Errorf("got %v, %v; want \"1.2.3\", pb.ContractRevision and no error", ready, err)
	}
	if resp, err := n.clients.GetFsdir(ctx, &pb.GetFsdirRequest{}); err != nil || resp.GetFsdir() != "/disk/test" {
		t.Errorf("got %v, %v; want \"/disk/test\" and no error", resp, err)
	}
	if resp, err := n.clients.GetStorageConfig(ctx, &pb.GetStorageConfigRequest{}); err != nil || resp.GetFsdir() != "/disk/test" ||
		!resp.GetEnableDiskEviction() || resp.GetQuotaBytes() != 1<<30 {
		t.Errorf("the storage configuration: got %v, %v; want disk eviction with a quota of 1 GiB", resp, err)
	}
}
