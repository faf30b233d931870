package mooncakeserver_test

import (
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/metadata"
)

// onSSD puts objects that are on the SSD of client 1 alone.
func onSSD(t *testing.T, n *node, c *mooncakeclient.Conn, keys ...string) {
	t.Helper()
	g := c.Generation
	disk := mooncake.Args{Client: client(1), Offloading: true}
	expect(t, "MountLocalDiskSegment", ask(t, c, g.MountLocalDisk, disk), errs.OK)
	put(t, c, 7, keys...)
	done := mooncake.Args{Client: client(1), Tasks: ask(t, c, g.OffloadObjectHeartbeat, disk).Value}
	for range done.Tasks {
		done.Objects = append(done.Objects, mooncake.OffloadedObject{DataSize: 100, Endpoint: "ssd:1"})
	}
	expect(t, "NotifyOffloadSuccess", ask(t, c, g.NotifyOffloadSuccess, done), errs.OK)
	clear := mooncake.Args{Client: client(7), Keys: keys, SegmentName: n.primary.Store.Segments()[0].Name}
	if r := ask(t, c, g.BatchReplicaClear, clear); r.Failure != 0 || len(r.Value) != len(keys) {
		t.Fatalf("BatchReplicaClear: got %+v, want all of %q", r, keys)
	}
}

// An object on an SSD that is read twice comes back to memory: its client asks for
// the task, gets memory, and says when the bytes are there.
func TestPromotion(t *testing.T) {
	each(t, func(t *testing.T, n *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		onSSD(t, n, c, "a", "b", "c")
		disk, a := mooncake.Args{Client: client(1)}, mooncake.Args{Client: client(1), Key: "a", Size: 100}
		replicas := func(key string) []metadata.Descriptor {
			return ask(t, c, g.GetReplicaList, mooncake.Args{Key: key}).Value.Replicas
		}
		tasks := func(what string, want ...string) {
			t.Helper()
			r := ask(t, c, g.PromotionHeartbeat, disk)
			if r.Failure != 0 || len(r.Value) != len(want) || len(want) > 0 && (r.Value[0].Key != want[0] || r.Value[0].Size != 100) {
				t.Errorf("tasks %s: got %+v, want %q of 100 bytes", what, r, want)
			}
		}
		replicas("a")
		tasks("after one read")
		expect(t, "a start that nobody asked for", ask(t, c, g.PromotionStart, a), errs.ReplicaNotReady)
		replicas("a")
		ask(t, c, g.BatchGetReplicaList, mooncake.Args{Keys: []string{"a", "b"}})
		ask(t, c, g.BatchGetReplicaList, mooncake.Args{Keys: []string{"b", "c", "c"}}) // there are two at most
		tasks("after more", "a")
		tasks("then", "b")
		tasks("then")

		wrong := a
		wrong.Size = 99
		expect(t, "another size", ask(t, c, g.PromotionStart, wrong), errs.InvalidParams)
		wrong = a
		wrong.Client = client(2)
		expect(t, "a stranger's start", ask(t, c, g.PromotionStart, wrong), errs.ReplicaNotReady)
		expect(t, "an end before the start", ask(t, c, g.PromotionSuccess, a), errs.ReplicaNotReady)
		replicas("a")
		tasks("given up by the end before the start", "a")
		started := ask(t, c, g.PromotionStart, a)
		if expect(t, "PromotionAllocStart", started, errs.OK); started.Value.Kind != metadata.Memory || started.Value.Size != 100 || started.Value.Endpoint == "" {
			t.Errorf("PromotionAllocStart: got %+v, want 100 bytes in memory", started.Value)
		}
		expect(t, "another start", ask(t, c, g.PromotionStart, a), errs.ReplicaNotReady)
		if r := replicas("a"); len(r) != 1 || r[0].Kind != metadata.LocalDisk {
			t.Errorf("during the promotion: got %+v, want the SSD alone", r)
		}
		expect(t, "Remove", ask(t, c, g.Remove, mooncake.Args{Key: "a", Force: true}), errs.ReplicaNotReady)
		expect(t, "a stranger's end", ask(t, c, g.PromotionSuccess, wrong), errs.InvalidParams)
		expect(t, "the end of a copy", ask(t, c, g.CopyEnd, a), errs.InvalidParams)
		expect(t, "NotifyPromotionSuccess", ask(t, c, g.PromotionSuccess, a), errs.OK)
		if r := replicas("a"); len(r) != 2 || r[1].Kind != metadata.Memory || r[1].Address != started.Value.Address {
			t.Errorf("after it: got %+v, want memory too, at %#x", r, started.Value.Address)
		}
		expect(t, "it once more", ask(t, c, g.PromotionSuccess, a), errs.ReplicaNotReady)
		expect(t, "giving up what has ended", ask(t, c, g.PromotionFailure, a), errs.OK)

		b := mooncake.Args{Client: client(1), Key: "b", Size: 100}
		expect(t, "PromotionAllocStart", ask(t, c, g.PromotionStart, b), errs.OK)
		expect(t, "NotifyPromotionFailure", ask(t, c, g.PromotionFailure, b), errs.OK)
		if r := replicas("b"); len(r) != 1 {
			t.Errorf("given up: got %+v, want the SSD alone", r)
		}
		tasks("for a read after that", "b")
		expect(t, "giving up before the start", ask(t, c, g.PromotionFailure, b), errs.OK)
		expect(t, "of no object", ask(t, c, g.PromotionFailure, mooncake.Args{Client: client(1), Key: "z"}), errs.ObjectNotFound)
	})
}
