package conformance_test

import (
	"fmt"
	"slices"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/metadata"
)

var one = mooncake.ReplicateConfig{Replicas: 1}

func start(w *world, key string, size uint64, want errs.Kind) []metadata.Descriptor {
	w.Helper()
	replicas, code := w.PutStart(1, key, size, one)
	w.code("PutStart of "+key, code, want)
	return replicas
}

func busy(w *world) uint64 { return w.primary.Store.Stats().Busy }

var puts = []line{
	{number: 1, given: "no key, PutStart and PutEnd: GetReplicaList returns COMPLETE descriptors", run: func(w *world) {
		w.put("k")
		if r := w.get("k", errs.OK); len(r) != 1 || r[0].Status != metadata.Complete || r[0].Size != 100 {
			w.Errorf("got %+v, want one complete replica of 100 bytes", r)
		}
	}},
	{number: 2, given: "no replica, an empty key or no bytes: -600", run: func(w *world) {
		for what, p := range map[string]struct {
			key  string
			size uint64
			how  mooncake.ReplicateConfig
		}{"no replica": {"k", 1, mooncake.ReplicateConfig{}}, "an empty key": {"", 1, one}, "no bytes": {"k", 0, one}} {
			_, code := w.PutStart(1, p.key, p.size, p.how)
			w.code(what, code, errs.InvalidParams)
		}
	}},
	{number: 3, given: "PutStart only: Get answers -703", run: func(w *world) {
		start(w, "k", 100, errs.OK)
		w.get("k", errs.ReplicaNotReady)
	}},
	{number: 4, given: "PutStart only: ExistKey answers false", run: func(w *world) {
		start(w, "k", 100, errs.OK)
		w.exists(false, "k")
	}},
	{number: 5, given: "no key: Get answers -704, ExistKey false", run: func(w *world) {
		w.get("k", errs.ObjectNotFound)
		w.exists(false, "k")
	}},
	{number: 6, given: "a complete object: PutStart answers -705", run: func(w *world) {
		w.put("k")
		start(w, "k", 100, errs.ObjectExists)
	}},
	{number: 7, given: "a put younger than the discard timeout: PutStart answers -705", run: func(w *world) {
		start(w, "k", 100, errs.OK)
		w.pass(discard - 1e6)
		start(w, "k", 100, errs.ObjectExists)
	}},
	{number: 8, given: "a put as old as the discard timeout: PutStart succeeds, the old buffers stay occupied", run: func(w *world) {
		old := start(w, "k", 100, errs.OK)
		before := busy(w)
		w.pass(discard)
		if now := start(w, "k", 100, errs.OK); len(now) != 1 || now[0].Address == old[0].Address {
			w.Errorf("got %+v, want memory other than %+v", now, old)
		}
		if got := busy(w); got != 2*before {
			w.Errorf("got %d bytes occupied, want %d", got, 2*before)
		}
	}},
	{number: 9, given: "those buffers fill the pool: -200 before the release time, OK after it", run: func(w *world) {
		start(w, "old", memory, errs.OK)
		w.pass(discard)
		start(w, "k", memory, errs.NoAvailableHandle)
		start(w, "old", memory, errs.NoAvailableHandle)
		w.pass(release - discard)
		for _, d := range w.primary.Store.PrepareDiscards(w.primary.Now(), 2) { // as the eviction loop does each second
			w.primary.Commit(d)
		}
		start(w, "k", memory, errs.OK)
	}},
	{number: 10, given: "a put of A: PutEnd and PutRevoke of B answer -601", run: func(w *world) {
		start(w, "k", 100, errs.OK)
		w.code("PutEnd", w.PutEnd(2, "k"), errs.IllegalClient)
		w.code("PutRevoke", w.PutRevoke(2, "k"), errs.IllegalClient)
		w.code("PutEnd of A", w.PutEnd(1, "k"), errs.OK)
	}},
	{number: 11, given: "N replicas, as many segments: N distinct segments", run: func(w *world) {
		w.mount(2, "b", memory)
		w.mount(3, "c", memory)
		r, code := w.PutStart(1, "k", 100, mooncake.ReplicateConfig{Replicas: 3})
		w.code("PutStart", code, errs.OK)
		w.count("segments", len(endpoints(r)), 3)
	}},
	{number: 12, given: "one segment, two replicas: OK with one", run: func(w *world) {
		r, code := w.PutStart(1, "k", 100, mooncake.ReplicateConfig{Replicas: 2})
		w.code("PutStart", code, errs.OK)
		w.count("replicas", len(r), 1)
	}},
	{number: 13, given: "a partial allocation: its metric rises", run: func(w *world) {
		w.PutStart(1, "k", 100, mooncake.ReplicateConfig{Replicas: 2})
		w.count("partial allocations", int(w.master.Counters.PartialAllocations.Load()), 1)
	}},
	{number: 14, given: "memory and NoF: PutEnd of all completes both", differs: true},
	{number: 15, given: "memory and NoF: PutEnd of memory leaves NoF in progress", differs: true},
	{number: 16, given: "a completed put: a repeated PutEnd leaves the soft pin's end", run: func(w *world) {
		_, code := w.PutStart(1, "k", 100, mooncake.ReplicateConfig{Replicas: 1, SoftPin: mooncake.SoftPinEnable})
		w.code("PutStart", code, errs.OK)
		w.code("PutEnd", w.PutEnd(1, "k"), errs.OK)
		w.pass(20 * 60e9)
		w.code("PutEnd again", w.PutEnd(1, "k"), errs.OK)
		w.pass(10 * 60e9)
		if o, err := w.primary.Store.Inspect(metadata.DefaultTenant, "k"); err != nil || o.SoftPin {
			w.Errorf("after 30 minutes: got pinned %t, %v; want the pin ended", o.SoftPin, err)
		}
	}},
	{number: 17, given: "a put in progress: PutRevoke removes the key, PutStart is allowed", run: func(w *world) {
		start(w, "k", 100, errs.OK)
		w.code("PutRevoke", w.PutRevoke(1, "k"), errs.OK)
		w.get("k", errs.ObjectNotFound)
		start(w, "k", 100, errs.OK)
	}},
	{number: 18, given: "a batch with a missing key: BatchGet keeps the order, that slot is -704", run: func(w *world) {
		w.put("a", "c")
		if got, want := w.BatchGet("a", "b", "c"), []int32{0, errs.ObjectNotFound.Number(), 0}; !slices.Equal(got, want) {
			w.Errorf("got %v, want %v", got, want)
		}
	}},
	{number: 19, given: "a mixed batch: BatchExistKey answers in order", run: func(w *world) {
		w.put("a", "c")
		if got, want := w.BatchExist("a", "b", "c"), []bool{true, false, true}; !slices.Equal(got, want) {
			w.Errorf("got %v, want %v", got, want)
		}
	}},
	{number: 20, given: "a preferred segment with room: PutStart takes it", run: func(w *world) {
		w.mount(2, "b", memory)
		for i := range 20 {
			r, _ := w.PutStart(1, fmt.Sprint(i), 100, mooncake.ReplicateConfig{Replicas: 1, Preferred: []string{"b"}})
			if len(r) != 1 || r[0].Endpoint != "b:1" {
				w.Fatalf("got %+v, want memory of b", r)
			}
		}
	}},
	{number: 21, given: "the writer's segment is full: local_first takes another", hosts: true, run: func(w *world) {
		w.mount(2, "b", memory)
		local := func(key string, size uint64, endpoint string) {
			r, code := w.PutStart(2, key, size, mooncake.ReplicateConfig{Replicas: 1, HostID: "host-b"})
			if w.code("PutStart", code, errs.OK); len(r) != 1 || r[0].Endpoint != endpoint {
				w.Errorf("%s: got %+v, want memory of %s", key, r, endpoint)
			}
		}
		local("first", memory, "b:1")
		local("second", 100, "a:1")
	}},
}
