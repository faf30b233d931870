package mooncakeserver_test

import (
	"testing"

	"github.com/google/uuid"

	goclient "github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A client's SSD gets objects to keep, and readers find them there.
func TestLocalDisk(t *testing.T) {
	each(t, func(t *testing.T, n *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		disk := mooncake.Args{Client: client(1), Offloading: true}
		expect(t, "a heartbeat without an SSD", ask(t, c, g.OffloadObjectHeartbeat, disk), errs.SegmentNotFound)
		expect(t, "a capacity without an SSD", ask(t, c, g.ReportSsdCapacity, mooncake.Args{Client: client(1), Capacity: 1}), errs.SegmentNotFound)
		expect(t, "promotions without an SSD", ask(t, c, g.PromotionHeartbeat, disk), errs.SegmentNotFound)
		expect(t, "MountLocalDiskSegment", ask(t, c, g.MountLocalDisk, disk), errs.OK)
		expect(t, "ReportSsdCapacity", ask(t, c, g.ReportSsdCapacity, mooncake.Args{Client: client(1), Capacity: 1 << 40}), errs.OK)
		if got := n.primary.Store.Stats().SSDCapacity; got != 1<<40 {
			t.Errorf("got %d bytes on SSDs, want those that were reported", got)
		}
		expect(t, "a capacity below 0", ask(t, c, g.ReportSsdCapacity, mooncake.Args{Client: client(1), Capacity: -1}), errs.InvalidParams)
		if r := ask(t, c, g.PromotionHeartbeat, disk); r.Failure != 0 || len(r.Value) != 0 {
			t.Errorf("PromotionObjectHeartbeat: got %+v, want Failure 0 and nothing", r)
		}
		put(t, c, 7, "a", "b")
		ask(t, c, g.OffloadObjectHeartbeat, disk)
		done := mooncake.Args{
			Client:  client(1),
			Tasks:   []mooncake.OffloadTask{{Key: "a", Size: 100}, {Key: "b", Size: -1}, {Key: "gone", Size: 100}},
			Objects: []mooncake.OffloadedObject{{DataSize: 100, Endpoint: "ssd:1"}, {DataSize: -1}, {DataSize: 100}},
		}
		expect(t, "NotifyOffloadSuccess", ask(t, c, g.NotifyOffloadSuccess, done), errs.OK)
		expect(t, "it once more", ask(t, c, g.NotifyOffloadSuccess, done), errs.OK)
		replicas := ask(t, c, g.GetReplicaList, mooncake.Args{Key: "a"}).Value.Replicas
		if len(replicas) != 2 || replicas[1].Kind != metadata.LocalDisk || replicas[1].Client != client(1) || replicas[1].Endpoint != "ssd:1" || replicas[1].Size != 100 {
			t.Errorf("replicas: %+v; want memory, and 100 bytes on the SSD of client 1 at ssd:1", replicas)
		}
		if r := ask(t, c, g.GetReplicaList, mooncake.Args{Key: "b"}).Value.Replicas; len(r) != 1 {
			t.Errorf("the client refused it, and it has %+v; want 1 entry", r)
		}
		done.Objects[0].DataSize = 99
		expect(t, "another size", ask(t, c, g.NotifyOffloadSuccess, done), errs.InvalidParams)
		done.Objects = nil
		expect(t, "no objects", ask(t, c, g.NotifyOffloadSuccess, done), errs.InvalidParams)
		removeAll := func() {
			t.Helper()
			if n := ask(t, c, g.RemoveAll, mooncake.Args{}); n != 0 {
				t.Errorf("RemoveAll of leased objects: got %d, want 0", n)
			}
			put(t, c, 7, "since")
		}
		wantTasks := func(when string, want int) {
			t.Helper()
			if r := ask(t, c, g.OffloadObjectHeartbeat, disk); r.Failure != 0 || len(r.Value) != want {
				t.Errorf("OffloadObjectHeartbeat %s: got %+v, want %d tasks", when, r, want)
			}
		}
		if g.Name == "v0.3.11" { // has no PollRemoveAll
			removeAll()
			wantTasks("after RemoveAll", 1)
		} else {
			poll := func(want bool) {
				t.Helper()
				if r := ask(t, c, g.PollRemoveAll, disk); r.Failure != 0 || r.Value != want {
					t.Errorf("PollRemoveAll: got %+v, want %t", r, want)
				}
			}
			poll(false)
			removeAll()
			wantTasks("before the client knows that it is to delete its files", 0)
			poll(true)
			poll(false)
			wantTasks("then", 1)
			if r := ask(t, c, g.GetReplicaList, mooncake.Args{Key: "a"}).Value.Replicas; len(r) != 1 {
				t.Errorf("after its files were deleted: got %+v, want memory alone", r)
			}
		}
		if g.Name == "head" {
			expect(t, "UnmountLocalDiskSegment", ask(t, c, g.UnmountLocalDisk, mooncake.Args{Client: client(1)}), errs.OK)
			if r := ask(t, c, g.GetReplicaList, mooncake.Args{Key: "a"}).Value.Replicas; len(r) != 1 {
				t.Errorf("without its SSD: got %+v, want 1 entry", r)
			}
		}
	})
}

// What our client refuses to copy to its SSD is refused in the words of each generation.
func TestRefusedCopies(t *testing.T) {
	each(t, func(t *testing.T, n *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		over, err := mooncakeclient.NewTransport(g.Name)
		if err != nil {
			t.Fatal(err)
		}
		owner, err := goclient.New(goclient.Config{Addresses: []string{n.address[g.Name]}, Transport: over, ClientID: uuid.UUID(segment.ClientID{1})})
		if err != nil {
			t.Fatal(err)
		}
		defer owner.Close()
		if err := owner.MountLocalDiskSegment(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		put(t, c, 7, "taken", "refused")
		tasks, err := owner.OffloadObjectHeartbeat(t.Context(), true)
		if err != nil || len(tasks) != 2 {
			t.Fatalf("got %+v, %v; want two objects to copy", tasks, err)
		}
		var done []goclient.OffloadedObject
		for _, o := range tasks {
			done = append(done, goclient.OffloadedObject{Task: o, DataSize: o.Size, Endpoint: "ssd:1", Refused: o.Key == "refused"})
		}
		if err := owner.NotifyOffloadSuccess(t.Context(), done); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]int{"taken": 2, "refused": 1} {
			if r := ask(t, c, g.GetReplicaList, mooncake.Args{Key: key}).Value.Replicas; len(r) != want {
				t.Errorf("%s: got the replicas %+v, want %d", key, r, want)
			}
		}
	})
}
