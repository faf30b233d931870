package conformance_test

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/segment"
)

func capacity(w *world) int { return int(w.primary.Store.Stats().Capacity) }

var segments = []line{
	{number: 56, given: "one UUID mounted twice: OK, its capacity counts once", run: func(w *world) {
		s := w.mount(2, "b", memory)
		w.code("again", w.Mount(s), errs.OK)
		w.count("capacity", capacity(w), 2*memory)
	}},
	{number: 57, given: "an unknown UUID: UnmountSegment succeeds", run: func(w *world) {
		w.code("UnmountSegment", w.Unmount(segment.ID{9}), errs.OK)
	}},
	{number: 58, given: "the segment of the only replica is unmounted: -704 and false at once", run: func(w *world) {
		w.put("k")
		w.code("UnmountSegment", w.Unmount(segment.ID{1}), errs.OK)
		w.get("k", errs.ObjectNotFound)
		w.exists(false, "k")
	}},
	{number: 59, given: "two replicas, one segment is unmounted: still readable", run: func(w *world) {
		w.mount(2, "b", memory)
		w.putAs(mooncake.ReplicateConfig{Replicas: 2}, "k")
		w.code("UnmountSegment", w.Unmount(segment.ID{1}), errs.OK)
		if r := w.get("k", errs.OK); len(r) != 1 || r[0].Endpoint != "b:1" {
			w.Errorf("got %+v, want the replica of b", r)
		}
	}},
	{number: 60, given: "HA: an unmount has cleaned up when it answers", run: func(w *world) {
		w.put("k")
		w.code("UnmountSegment", w.Unmount(segment.ID{1}), errs.OK)
		w.count("objects", w.alive("k"), 0)
		w.count("capacity", capacity(w), 0)
	}},
	{number: 61, given: "mounts and unmounts at the same time: nothing is left behind", run: func(w *world) {
		var clients sync.WaitGroup
		for n := byte(2); n < 10; n++ {
			d := w.another()
			clients.Go(func() {
				s := spec(n, "b"+string('0'+n), memory)
				for range 5 {
					w.code("MountSegment", d.Mount(s), errs.OK)
					w.code("UnmountSegment", d.Unmount(s.ID), errs.OK)
				}
			})
		}
		clients.Wait()
		w.count("capacity", capacity(w), memory)
	}},
	{number: 62, given: "graceful: no new allocation, readable, unmounted in time, a stranger is refused", run: func(w *world) {
		w.mount(2, "b", memory)
		w.put("k")
		w.code("of a stranger", w.GracefulUnmount(2, segment.ID{1}, time.Minute), errs.InvalidParams)
		for n := byte(1); n < 3; n++ {
			w.code("GracefulUnmountSegment", w.GracefulUnmount(n, segment.ID{n}, time.Minute), errs.OK)
		}
		start(w, "new", 100, errs.NoAvailableHandle)
		w.get("k", errs.OK)
		w.pass(time.Minute)
		w.count("due", len(w.primary.Store.SegmentsToUnmount(w.primary.Now())), 2)
	}},
	{number: 63, given: "a master that does not know a client: its Ping says so, and ReMountSegment mends that", run: func(w *world) {
		if w.Ping(2) {
			w.Error("Ping of an unknown client: got known, want that it must mount again")
		}
		w.code("ReMountSegment", w.ReMount(2, spec(2, "b", memory)), errs.OK)
		if !w.Ping(2) {
			w.Error("Ping after ReMountSegment: got unknown, want known")
		}
	}},
	{number: 64, given: "a client silent for longer than its TTL: its objects vanish", slow: true, run: func(w *world) {
		w.put("k")
		w.mount(2, "b", memory)
		w.putAs(mooncake.ReplicateConfig{Replicas: 1, Preferred: []string{"b"}}, "silent")
		w.background(func(ctx context.Context) { _ = w.master.WatchClients(ctx, zerolog.Nop()) })
		w.until("the silent client's object has vanished", func() bool {
			if !w.Ping(1) {
				w.Fatal("a client that pings: got it expired, want it known")
			}
			found, _ := w.Exist("silent")
			return !found
		})
		w.get("silent", errs.ObjectNotFound)
		w.get("k", errs.OK)
		w.count("capacity", capacity(w), memory)
		if w.Ping(2) {
			w.Error("the silent client is known, want that it must mount again")
		}
	}},
	{number: 66, given: "freed in any order: one free region", shown: "segment/TestFreeInAnyOrderLeavesOneRegion"},
	{number: 67, given: "regions taken over are reserved again, overlaps refused", shown: "segment/TestAllocatorRefuses metadata/TestSnapshotRangesAreChecked"},
	{number: 68, given: "full segments are skipped", shown: "segment/TestFullSegmentsAreSkipped"},
}
