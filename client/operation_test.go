package client

import (
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

var allOperations = []operation{
	opExistKey, opBatchExistKey, opGetReplicaList, opBatchGetReplicaList, opGetReplicaListByRegex,
	opPutStart, opPutEnd, opPutRevoke, opBatchPutStart, opBatchPutEnd, opBatchPutRevoke,
	opRemove, opBatchRemove, opRemoveByRegex, opRemoveAll, opBatchReplicaClear,
	opServiceReady, opPing, opMountSegment, opReMountSegment, opUnmountSegment,
	opBatchQueryIP, opGetFsdir, opGetStorageConfig,
	opMountLocalDiskSegment, opOffloadObjectHeartbeat, opNotifyOffloadSuccess,
}

// The table must match the contract: there a call that may be repeated at any time is marked as
// such, and any other has a request id.
func TestOperationsAreTheContracts(t *testing.T) {
	known := make(map[string]operation)
	for _, o := range allOperations {
		known[o.method] = o
	}
	methods := 0
	for _, file := range []protoreflect.FileDescriptor{pb.File_understudy_v1_object_proto, pb.File_understudy_v1_client_proto} {
		service := file.Services().Get(0)
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			if m.IsStreamingServer() { // this client offers no streams
				continue
			}
			methods++
			o, ok := known["/"+string(service.FullName())+"/"+string(m.Name())]
			if !ok {
				t.Errorf("%s of the contract: got no operation, want one in the table", m.FullName())
				continue
			}
			level := m.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel()
			repeatable := level != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
			if repeatable != (o.repeat == always) {
				t.Errorf("%s is %v in the contract and %d here; want both to call it repeatable, or neither", o.name, level, o.repeat)
			}
			if hasID := m.Input().Fields().ByName("request_id") != nil; hasID == repeatable {
				t.Errorf("%s: request id %v, repeatable %v; want an id just for what may not be repeated", o.name, hasID, repeatable)
			}
			if o.name != string(m.Name()) {
				t.Errorf("%s is called %s; want one name", m.Name(), o.name)
			}
		}
	}
	if methods != len(allOperations) {
		t.Errorf("%d methods, %d operations; want as many", methods, len(allOperations))
	}
}

func TestRequestIDs(t *testing.T) {
	seen := make(map[uint64]bool)
	for range 1000 {
		id := newRequestID()
		if id == 0 || id+pb.MaxBatchItems > math.MaxInt64 || seen[id] {
			t.Fatalf("request id %d; want one above 0 that is new, with room for a batch behind it", id)
		}
		seen[id] = true
	}
}

func TestLeaseEnds(t *testing.T) {
	now := duration(5000)
	c := &Client{clock: func() time.Duration { return now }}
	l := c.lease(duration(4900), 1000)
	if !l.Valid() || l.Remaining() != duration(900) {
		t.Errorf("%v left; want 900 of a valid lease", l.Remaining())
	}
	if now += duration(899); !l.Valid() {
		t.Errorf("a lease of 1000 after 999: got it ended with %v left, want it valid", l.Remaining())
	}
	if now += duration(1); l.Valid() {
		t.Errorf("a lease of 1000 after 1000: got it valid with %v left, want it ended", l.Remaining())
	}
	if (Lease{}).Valid() {
		t.Error("the zero Lease: got it valid, want it ended")
	}
	if l := c.lease(duration(4900), math.MaxUint64); !l.Valid() {
		t.Errorf("a lease for ever: got it ended with %v left, want it valid", l.Remaining())
	}
}

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]uint64{0: 0, -5: 0, 1: 1, duration(1): 1, duration(1) + 1: 2, duration(60_000): 60_000} {
		if got := millis(d); got != want {
			t.Errorf("%v is %d ms, want %d", d, got, want)
		}
	}
}

// A message that lacks something, or says it twice, is no answer.
func TestWholeAnswers(t *testing.T) {
	items := func(indexes ...uint32) (list []*pb.ItemError) {
		for _, i := range indexes {
			list = append(list, &pb.ItemError{Index: i})
		}
		return list
	}
	for _, tc := range []struct {
		succeeded uint32
		items     []*pb.ItemError
		n         int
		want      bool
	}{
		{3, nil, 3, true},
		{0, nil, 3, false},
		{1, items(0, 2), 3, true},
		{2, items(0, 2), 3, false},
		{1, items(2, 0), 3, false},
		{1, items(1, 1), 3, false},
		{2, items(3), 3, false},
	} {
		resp := &pb.BatchRemoveResponse{Succeeded: tc.succeeded, Errors: tc.items}
		if got := acknowledged(run{5, 5 + tc.n}, resp); got != tc.want {
			t.Errorf("%d successes and errors %v of %d items: whole is %v, want %v", tc.succeeded, tc.items, tc.n, got, tc.want)
		}
	}
	there, none := &pb.ReplicaList{ObjectId: 1}, &pb.ReplicaList{}
	for _, tc := range []struct {
		objects []*pb.ReplicaList
		items   []*pb.ItemError
		want    bool
	}{
		{[]*pb.ReplicaList{there, there}, nil, true},
		{[]*pb.ReplicaList{there}, nil, false},
		{[]*pb.ReplicaList{there, none}, nil, false},
		{[]*pb.ReplicaList{there, none}, items(1), true},
		{[]*pb.ReplicaList{none, there}, items(1), false},
		{[]*pb.ReplicaList{none, none}, items(1, 0), false},
	} {
		if got := allThere(tc.objects, tc.items, 2); got != tc.want {
			t.Errorf("objects %v with errors %v: whole is %v, want %v", tc.objects, tc.items, got, tc.want)
		}
	}
}

// Replicas of a kind that this client does not know are left out.
func TestUnknownReplicas(t *testing.T) {
	list := &pb.ReplicaList{ObjectId: 7, Replicas: []*pb.Replica{
		{},
		{Location: &pb.Replica_Disk{Disk: &pb.DiskLocation{Path: "/p"}}},
		{Location: &pb.Replica_LocalDisk{LocalDisk: &pb.LocalDiskLocation{Endpoint: "e:1", ClientId: "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}}},
	}}
	o := objectOf(list, Lease{}, new([]Replica))
	if len(o.Replicas) != 2 || o.Replicas[0] != (Replica{Kind: Disk, Path: "/p"}) {
		t.Errorf("replicas %+v; want two, the first the file /p", o.Replicas)
	}
	if r := o.Replicas[1]; r.Kind != LocalDisk || r.Endpoint != "e:1" || !strings.HasPrefix(r.Client.String(), "6ba7b810") {
		t.Errorf("replica %+v; want an SSD at e:1 of client 6ba7b810-...", r)
	}
}
