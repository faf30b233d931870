package rpc_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

func TestPutGetRemove(t *testing.T) {
	withDisk := func(c *rpc.Config) {
		m, _ := c.Gate.Master()
		m.RootFSDir = "/disk"
	}
	n, ctx := newNode(t, withDisk).mount(), t.Context()
	started, err := n.objects.PutStart(ctx, &pb.PutStartRequest{
		ClientId: strings.ToUpper(alice), Key: "k", Size: 100, GroupId: "g", RequestId: 9, Config: &pb.PutConfig{DataType: 255},
	})
	if err != nil {
		t.Fatal(err)
	}
	if h := started.GetHeader(); h.GetTerm() != term || h.GetClusterId() != cluster || h.GetNodeId() != me {
		t.Errorf("header %v; want term %d of node %s in %s", h, term, me, cluster)
	}
	object := started.GetObject()
	if object.GetObjectId() == 0 || object.GetSize() != 100 || object.ObjectChecksum != nil || len(object.GetReplicas()) != 2 {
		t.Fatalf("reservation %v; want 100 bytes with two replicas, without a checksum", object)
	}
	if r := object.GetReplicas()[0]; r.GetStatus() != pb.ReplicaStatus_REPLICA_STATUS_PROCESSING || r.GetMemory().GetAddress() < 1<<32 ||
		r.GetMemory().GetEndpoint() != "10.0.0.1:7000" || r.GetMemory().GetProtocol() != "tcp" || r.GetMemory().GetSegmentName() != "host-a" {
		t.Errorf("memory replica %v; want memory of host-a at 10.0.0.1:7000 over tcp", r)
	}
	if r := object.GetReplicas()[1]; !strings.HasPrefix(r.GetDisk().GetPath(), "/disk/test/") {
		t.Errorf("disk replica %v; want a file under /disk/test/", r)
	}
	again, err := n.objects.PutStart(ctx, &pb.PutStartRequest{ClientId: alice, Key: "k", Size: 100, RequestId: 9})
	if err != nil || again.GetObject().GetObjectId() != object.GetObjectId() {
		t.Errorf("repeated: %v, %v; want the same object", again, err)
	}

	_, err = n.objects.GetReplicaList(ctx, &pb.GetReplicaListRequest{Key: "k"})
	wantKind(t, "get of a put in progress", err, errs.ReplicaNotReady)
	sum := uint64(0xfeed)
	if _, err := n.objects.PutEnd(ctx, &pb.PutEndRequest{ClientId: alice, Key: "k", ObjectId: object.GetObjectId(), ObjectChecksum: &sum}); err != nil {
		t.Fatal(err)
	}
	// Multi-tenancy is off: all tenants are the default one.
	got, err := n.objects.GetReplicaList(ctx, &pb.GetReplicaListRequest{Tenant: "somebody", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	list := got.GetObject()
	if got.GetLeaseTtlMs() != 10_000 || list.GetObjectId() != object.GetObjectId() || list.GetObjectChecksum() != sum || list.GetSize() != 100 ||
		len(list.GetReplicas()) != 1 || list.GetReplicas()[0].GetStatus() != pb.ReplicaStatus_REPLICA_STATUS_COMPLETE ||
		!proto.Equal(list.GetReplicas()[0].GetMemory(), object.GetReplicas()[0].GetMemory()) {
		t.Errorf("got %v; want the object that was put", got)
	}
	o, err := n.store.Inspect(metadata.DefaultTenant, "k")
	if err != nil || o.Group != "g" || o.DataType != 255 {
		t.Errorf("stored as %+v, %v; want \"g\", DataType 255 and no error", o, err)
	}

	_, err = n.objects.Remove(ctx, &pb.RemoveRequest{Key: "k"})
	wantKind(t, "remove of a leased object", err, errs.ObjectHasLease)
	// Replicas in progress (the one on disk) are in the way of a removal.
	if _, err := n.objects.PutEnd(ctx, &pb.PutEndRequest{ClientId: alice, Key: "k", Selector: pb.ReplicaSelector_REPLICA_SELECTOR_DISK}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.objects.Remove(ctx, &pb.RemoveRequest{Key: "k", Force: true}); err != nil {
		t.Error(err)
	}
	if resp, err := n.objects.ExistKey(ctx, &pb.ExistKeyRequest{Key: "k"}); err != nil || resp.GetExists() {
		t.Errorf("exists: got %v, %v; want false and no error", resp, err)
	}
}

// Errors of items are sparse, and cost the others nothing.
func TestBatchesAnswerPerItem(t *testing.T) {
	n, ctx := newNode(t).mount(), t.Context()
	long := strings.Repeat("x", pb.MaxKeyBytes+1)
	started, err := n.objects.BatchPutStart(ctx, &pb.BatchPutStartRequest{ClientId: alice, RequestId: 100, Items: []*pb.PutStartItem{
		{Key: "a", Size: 1}, {Key: "b"}, {Key: "c", Size: 3}, {Key: long, Size: 1}, {Key: "a", Size: 1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	wantItems(t, "BatchPutStart", started.GetErrors(), map[uint32]pb.Kind{
		1: pb.Kind_KIND_INVALID_PARAMS, 3: pb.Kind_KIND_INVALID_KEY, 4: pb.Kind_KIND_OBJECT_ALREADY_EXISTS,
	})
	for i, o := range started.GetObjects() {
		if failed := i == 1 || i >= 3; failed != (o.GetObjectId() == 0) || failed != (len(o.GetReplicas()) == 0) || !failed && o.GetSize() != uint64(i+1) {
			t.Errorf("BatchPutStart: object %d is %v; want items 1 and 3 on to have failed, and the others reserved", i, o)
		}
	}
	// Item 2 of the batch stands for the single call with request id 102.
	c, err := n.objects.PutStart(ctx, &pb.PutStartRequest{ClientId: alice, RequestId: 102, Key: "c", Size: 3})
	if err != nil || c.GetObject().GetObjectId() != started.GetObjects()[2].GetObjectId() {
		t.Errorf("repeated in part: %v, %v; want the object of the first call", c, err)
	}

	sum := uint64(7)
	ended, err := n.objects.BatchPutEnd(ctx, &pb.BatchPutEndRequest{ClientId: alice, Items: []*pb.PutEndItem{
		{Key: "nothing"}, {Key: "a", ObjectId: started.GetObjects()[0].GetObjectId(), ObjectChecksum: &sum},
	}})
	if err != nil || ended.GetSucceeded() != 1 {
		t.Errorf("BatchPutEnd: got %v, %v; want 1 and no error", ended, err)
	}
	wantItems(t, "BatchPutEnd", ended.GetErrors(), map[uint32]pb.Kind{0: pb.Kind_KIND_OBJECT_NOT_FOUND})

	revoked, err := n.objects.BatchPutRevoke(ctx, &pb.BatchPutRevokeRequest{
		ClientId: alice, Items: []*pb.PutRevokeItem{{Key: "c", ObjectId: c.GetObject().GetObjectId()}, {Key: "a"}},
	})
	if err != nil || revoked.GetSucceeded() != 1 {
		t.Errorf("BatchPutRevoke: got %v, %v; want 1 and no error", revoked, err)
	}
	wantItems(t, "BatchPutRevoke", revoked.GetErrors(), map[uint32]pb.Kind{1: pb.Kind_KIND_INVALID_WRITE})

	keys := []string{"nothing", "a", long, "a"}
	exist, err := n.objects.BatchExistKey(ctx, &pb.BatchExistKeyRequest{Keys: keys})
	if err != nil || !slices.Equal(exist.GetExists(), []bool{false, true, false, true}) {
		t.Errorf("BatchExistKey: got %v, %v; want [false true false true] and no error", exist, err)
	}
	wantItems(t, "BatchExistKey", exist.GetErrors(), map[uint32]pb.Kind{2: pb.Kind_KIND_INVALID_KEY})
	got, err := n.objects.BatchGetReplicaList(ctx, &pb.BatchGetReplicaListRequest{Keys: keys})
	if err != nil || len(got.GetObjects()) != 4 || got.GetLeaseTtlMs() != 10_000 {
		t.Fatalf("BatchGetReplicaList: got %v, %v; want 4 entries, 10_000 and no error", got, err)
	}
	wantItems(t, "BatchGetReplicaList", got.GetErrors(), map[uint32]pb.Kind{0: pb.Kind_KIND_OBJECT_NOT_FOUND, 2: pb.Kind_KIND_INVALID_KEY})
	for i, o := range got.GetObjects() {
		if whole := len(o.GetReplicas()) == 1 && o.GetObjectChecksum() == sum && o.GetReplicas()[0].GetMemory().GetEndpoint() != ""; whole != (keys[i] == "a") {
			t.Errorf("BatchGetReplicaList: object %d is %v; want the object just for a", i, o)
		}
	}

	removed, err := n.objects.BatchRemove(ctx, &pb.BatchRemoveRequest{Keys: []string{"a", "nothing"}})
	if err != nil || removed.GetSucceeded() != 0 {
		t.Errorf("BatchRemove: got %v, %v; want 0 and no error", removed, err)
	}
	wantItems(t, "BatchRemove", removed.GetErrors(), map[uint32]pb.Kind{0: pb.Kind_KIND_OBJECT_HAS_LEASE, 1: pb.Kind_KIND_OBJECT_NOT_FOUND})
}

func wantItems(t *testing.T, what string, got []*pb.ItemError, want map[uint32]pb.Kind) {
	t.Helper()
	last := -1
	for _, item := range got {
		if int(item.GetIndex()) <= last {
			t.Errorf("%s: item %d stands behind item %d; want ascending order", what, item.GetIndex(), last)
		}
		last = int(item.GetIndex())
		if want[item.GetIndex()] != item.GetKind() {
			t.Errorf("%s: item %v, want %v", what, item, want[item.GetIndex()])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d items failed, want %d: %v", what, len(got), len(want), got)
	}
}

func TestPages(t *testing.T) {
	n, ctx := newNode(t).mount(), t.Context()
	var want []string
	for i := range 25 {
		want = append(want, fmt.Sprintf("page/%02d", i))
	}
	n.put(append(want, "other")...)
	var found, listed []string
	for token, first := "", true; first || token != ""; first = false {
		resp, err := n.objects.GetReplicaListByRegex(ctx, &pb.GetReplicaListByRegexRequest{Regex: "^page/", PageSize: 10, PageToken: token})
		if err != nil || len(resp.GetObjects()) > 10 {
			t.Fatalf("%d objects, %v; want at most 10", len(resp.GetObjects()), err)
		}
		for _, o := range resp.GetObjects() {
			if len(o.GetObject().GetReplicas()) != 1 || resp.GetLeaseTtlMs() != 10_000 {
				t.Errorf("object %v, want 1 entry and 10_000", o)
			}
			found = append(found, o.GetKey())
		}
		token = resp.GetNextPageToken()
	}
	for token, first := "", true; first || token != ""; first = false {
		resp, err := n.ops.ListKeys(ctx, &pb.ListKeysRequest{Regex: "^page/", PageSize: 7, PageToken: token})
		if err != nil || len(resp.GetKeys()) > 7 {
			t.Fatalf("%d keys, %v; want at most 7", len(resp.GetKeys()), err)
		}
		listed = append(listed, resp.GetKeys()...)
		token = resp.GetNextPageToken()
	}
	slices.Sort(found)
	slices.Sort(listed)
	if !slices.Equal(found, want) || !slices.Equal(listed, want) {
		t.Errorf("found %v, listed %v; want %v", found, listed, want)
	}
	if n, err := n.objects.RemoveByRegex(ctx, &pb.RemoveByRegexRequest{Regex: "^page/"}); err != nil || n.GetRemoved() != 0 {
		t.Errorf("removed %v leased objects, %v; want 0 and no error", n, err)
	}
}

func TestPutConfig(t *testing.T) {
	n, ctx := newNode(t).mount(), t.Context()
	long := strings.Repeat("x", pb.MaxNameBytes+1)
	for name, tc := range map[string]struct {
		config *pb.PutConfig
		ok     bool
	}{
		"none":             {nil, true},
		"empty":            {&pb.PutConfig{}, true},
		"everything":       {&pb.PutConfig{ReplicaNum: proto.Uint32(64), PreferredSegments: []string{"host-a"}, HardPin: true, HostId: "a"}, true},
		"no replicas":      {&pb.PutConfig{ReplicaNum: proto.Uint32(0)}, false},
		"65 replicas":      {&pb.PutConfig{ReplicaNum: proto.Uint32(65)}, false},
		"data type":        {&pb.PutConfig{DataType: 256}, false},
		"long name":        {&pb.PutConfig{PreferredSegments: []string{"a", long}}, false},
		"long host":        {&pb.PutConfig{HostId: long}, false},
		"unknown action":   {&pb.PutConfig{SoftPinAction: 9}, false},
		"pin":              {&pb.PutConfig{SoftPinAction: pb.SoftPinAction_SOFT_PIN_ACTION_ENABLE}, true},
		"pin for a minute": {&pb.PutConfig{SoftPinAction: pb.SoftPinAction_SOFT_PIN_ACTION_ENABLE, SoftPinTtlMs: proto.Uint64(60_000)}, true},
		"pin for ever":     {&pb.PutConfig{SoftPinAction: pb.SoftPinAction_SOFT_PIN_ACTION_ENABLE, SoftPinTtlMs: proto.Uint64(math.MaxUint64)}, false},
		// As nanoseconds in 64 bits this is one minute.
		"pin far too long": {&pb.PutConfig{SoftPinAction: pb.SoftPinAction_SOFT_PIN_ACTION_ENABLE, SoftPinTtlMs: proto.Uint64(1<<58 + 60_000)}, false},
		"pin for nothing":  {&pb.PutConfig{SoftPinTtlMs: proto.Uint64(60_000)}, false},
		"no pin":           {&pb.PutConfig{SoftPinAction: pb.SoftPinAction_SOFT_PIN_ACTION_DISABLE}, true},
	} {
		_, err := n.objects.PutStart(ctx, &pb.PutStartRequest{ClientId: alice, Key: name, Size: 1, Config: tc.config})
		switch {
		case tc.ok && err != nil:
			t.Errorf("%s: %v; want no error", name, err)
		case !tc.ok:
			wantKind(t, name, err, errs.InvalidParams)
		}
	}
}

// A removal in chunks that fails behind the first one has changed something,
// so it must not say that nothing was.
func TestRemovalThatFailsInTheMiddle(t *testing.T) {
	for name, remove := range map[string]func(*node) error{
		"RemoveAll": func(n *node) error {
			_, err := n.objects.RemoveAll(t.Context(), &pb.RemoveAllRequest{AllTenants: true})
			return err
		},
		"RemoveByRegex": func(n *node) error {
			_, err := n.objects.RemoveByRegex(t.Context(), &pb.RemoveByRegexRequest{Regex: "k"})
			return err
		},
	} {
		n := newNode(t).mount()
		putMany(n, deleteevents.MaxRemovals+1)
		n.log.failAfter(1, journal.ErrFenced)
		err := remove(n)
		wantKind(t, name, err, errs.Unresolved)
		if err == nil || !strings.Contains(err.Error(), "500 objects were changed, then the call failed") {
			t.Errorf("%s: got %v, want an error with \"500 objects were changed, then the call failed\"", name, err)
		}
	}
}

// putMany puts so many objects of 1 byte.
func putMany(n *node, objects int) {
	n.t.Helper()
	var items []*pb.PutStartItem
	var ends []*pb.PutEndItem
	for i := range objects {
		key := fmt.Sprintf("k%d", i)
		items, ends = append(items, &pb.PutStartItem{Key: key, Size: 1}), append(ends, &pb.PutEndItem{Key: key})
	}
	if resp, err := n.objects.BatchPutStart(n.t.Context(), &pb.BatchPutStartRequest{ClientId: alice, Items: items}); err != nil || len(resp.GetErrors()) > 0 {
		n.t.Fatalf("putting %d objects: got errors %v, %v; want none", len(items), resp.GetErrors(), err)
	}
	if resp, err := n.objects.BatchPutEnd(n.t.Context(), &pb.BatchPutEndRequest{ClientId: alice, Items: ends}); err != nil || len(resp.GetErrors()) > 0 {
		n.t.Fatalf("putting %d objects: got errors %v, %v; want none", len(items), resp.GetErrors(), err)
	}
}
