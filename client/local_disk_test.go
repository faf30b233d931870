package client_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/segment"
)

// A client copies its objects to its SSD, and whoever reads them finds them
// there.
func TestOffload(t *testing.T) {
	_, c := serving(t)
	ctx := t.Context()
	_, err := c.OffloadObjectHeartbeat(ctx, true)
	wantKind(t, "without an SSD", err, errs.SegmentNotFound)
	wantKind(t, "copies without an SSD", c.NotifyOffloadSuccess(ctx, []client.OffloadedObject{{}}), errs.SegmentNotFound)
	if err := c.MountLocalDiskSegment(ctx, true); err != nil {
		t.Fatal(err)
	}
	put(t, c, "a", "b")
	tasks, err := c.OffloadObjectHeartbeat(ctx, true)
	if err != nil || !slices.Equal(tasks, []client.OffloadTask{{Tenant: "default", Key: "a", Size: 100}, {Tenant: "default", Key: "b", Size: 100}}) {
		t.Fatalf("tasks %+v, %v; want those for a and b, 100 bytes each", tasks, err)
	}
	done := []client.OffloadedObject{
		{Task: tasks[0], Bucket: 7, Offset: 9, KeySize: 1, DataSize: 100, Endpoint: "10.0.0.1:9000"},
		{Task: tasks[1], Refused: true},
	}
	if err := c.NotifyOffloadSuccess(ctx, done); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int{"a": 2, "b": 1} {
		o, err := c.GetReplicaList(ctx, key)
		if err != nil || len(o.Replicas) != want {
			t.Errorf("%s: %+v, %v; want %d replicas", key, o, err, want)
			continue
		}
		if r := o.Replicas[want-1]; want == 2 && r != (client.Replica{Kind: client.LocalDisk, Client: c.ID(), Endpoint: "10.0.0.1:9000"}) {
			t.Errorf("%s is on %+v; want the client's SSD at 10.0.0.1:9000", key, r)
		}
	}
	wantKind(t, "a copy of another size", c.NotifyOffloadSuccess(ctx, []client.OffloadedObject{{Task: tasks[0], DataSize: 99}}), errs.InvalidParams)
	wantKind(t, "no copies", c.NotifyOffloadSuccess(ctx, nil), errs.InvalidParams)
}

// A client mounts an SSD that the server has forgotten again, with the same flag. It does so
// even if the first try fails after the segments were mounted, when the server knows the client
// again and does not ask for a remount any more.
func TestRemountsItsSSD(t *testing.T) {
	cl := newCluster(t, 1)
	f := newFront(t, cl.lead(0).address)
	w := new(witness)
	c := connect(t, client.Config{Addresses: []string{f.address}, PingInterval: 5 * time.Millisecond, Observer: w})
	if err := c.MountLocalDiskSegment(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	const method = "MountLocalDiskSegment"
	within(t, "it must mount again, as it may have segments", func() bool { return w.answered(method) == 2 })
	if _, err := c.OffloadObjectHeartbeat(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	s := mountMemory(t, c)
	asked := len(f.asked(method))
	f.answering(func(called string, _, resp proto.Message, err error) (proto.Message, error) {
		if called == method && len(f.asked(method)) == asked+1 {
			if err := cl.nodes[0].master.UnmountLocalDisk(t.Context(), segment.ClientID(c.ID())); err != nil {
				t.Error(err)
			}
			return nil, status.Error(codes.Internal, "not today")
		}
		return resp, err
	})
	cl.forget(c.ID())
	within(t, "both are mounted again", func() bool {
		disk, ok := cl.store.FindLocalDisk(segment.ClientID(c.ID()))
		return ok && !disk.Offloading && slices.Equal(cl.mounted(), ids(s)) && len(f.asked(method)) > asked+1
	})
}
