package rpc_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

// An object goes to its owner's SSD, outlives its memory there, and goes with
// the SSD.
func TestLocalDisk(t *testing.T) {
	n, ctx := newNode(t).mount(), t.Context()
	_, err := n.clients.OffloadObjectHeartbeat(ctx, &pb.OffloadObjectHeartbeatRequest{ClientId: alice, EnableOffloading: true})
	wantKind(t, "without an SSD", err, errs.SegmentNotFound)
	if _, err := n.clients.MountLocalDiskSegment(ctx, &pb.MountLocalDiskSegmentRequest{ClientId: alice, EnableOffloading: true}); err != nil {
		t.Fatal(err)
	}
	n.put("k", "refused")
	given, err := n.clients.OffloadObjectHeartbeat(ctx, &pb.OffloadObjectHeartbeatRequest{ClientId: alice, EnableOffloading: true})
	if err != nil || len(given.GetTasks()) != 2 || !proto.Equal(given.GetTasks()[0], &pb.OffloadTask{Tenant: "default", Key: "k", Size: given.GetTasks()[0].GetSize()}) {
		t.Fatalf("tasks %v, %v; want two, the first for k", given, err)
	}
	size := given.GetTasks()[0].GetSize()
	done := &pb.NotifyOffloadSuccessRequest{ClientId: alice, Objects: []*pb.OffloadedObject{
		// Multi-tenancy is off: all tenants are the default one.
		{Task: &pb.OffloadTask{Tenant: "somebody", Key: "k"}, Bucket: 1, Offset: 2, KeySize: 1, DataSize: size, Endpoint: "10.0.0.1:9000"},
		{Task: given.GetTasks()[1], Refused: true, DataSize: 1},
		{Task: &pb.OffloadTask{Key: "gone"}, DataSize: 1},
	}}
	for range 2 {
		if _, err := n.clients.NotifyOffloadSuccess(ctx, done); err != nil {
			t.Fatal(err)
		}
	}
	wrong := &pb.OffloadedObject{Task: given.GetTasks()[0], DataSize: size + 1, Endpoint: "e:1"}
	_, err = n.clients.NotifyOffloadSuccess(ctx, &pb.NotifyOffloadSuccessRequest{ClientId: alice, Objects: []*pb.OffloadedObject{wrong}})
	wantKind(t, "another size", err, errs.InvalidParams)

	onSSD := &pb.LocalDiskLocation{ClientId: alice, Endpoint: "10.0.0.1:9000"}
	replicas := func() (list []*pb.Replica) {
		t.Helper()
		got, err := n.objects.GetReplicaList(ctx, &pb.GetReplicaListRequest{Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		return got.GetObject().GetReplicas()
	}
	if list := replicas(); len(list) != 2 || list[0].GetMemory() == nil || !proto.Equal(list[1].GetLocalDisk(), onSSD) ||
		list[1].GetStatus() != pb.ReplicaStatus_REPLICA_STATUS_COMPLETE {
		t.Errorf("replicas %v; want memory, and a complete copy on the SSD", list)
	}
	if _, err := n.clients.UnmountSegment(ctx, &pb.UnmountSegmentRequest{ClientId: alice, SegmentId: seg1}); err != nil {
		t.Fatal(err)
	}
	if list := replicas(); len(list) != 1 || !proto.Equal(list[0].GetLocalDisk(), onSSD) {
		t.Errorf("without its memory: %v; want the copy on the SSD", list)
	}
	n.store.Sweep(metadata.ShardCount)
	if err := n.master.UnmountLocalDisk(ctx, n.store.LocalDisks()[0].Client); err != nil {
		t.Fatal(err)
	}
	exist, err := n.objects.BatchExistKey(ctx, &pb.BatchExistKeyRequest{Keys: []string{"k", "refused"}})
	if err != nil || !slices.Equal(exist.GetExists(), []bool{false, false}) {
		t.Errorf("left: got %v, %v; want [false false] and no error", exist, err)
	}
}
