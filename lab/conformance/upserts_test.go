package conformance_test

import (
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

func upsert(w *world, client byte, size uint64) []metadata.Descriptor {
	w.Helper()
	replicas, code := w.UpsertStart(client, "k", size)
	w.code("UpsertStart", code, errs.OK)
	return replicas
}

var upserts = []line{
	{number: 35, given: "an upsert of the same size: the same buffers, readable after its end", run: func(w *world) {
		w.put("k")
		before := w.get("k", errs.OK)
		w.pass(ttl + time.Second) // while it is leased it has others
		after := upsert(w, 2, 100)
		w.get("k", errs.ReplicaNotReady)
		w.code("UpsertEnd", w.UpsertEnd(2, "k"), errs.OK)
		if got := w.get("k", errs.OK)[0].Address; got != before[0].Address || after[0].Address != got {
			w.Errorf("got address %#x, want %#x", got, before[0].Address)
		}
	}},
	{number: 36, given: "an upsert of another size: new buffers", run: func(w *world) {
		w.put("k")
		before := w.get("k", errs.OK)
		after := upsert(w, 1, 200)
		if after[0].Address == before[0].Address || after[0].Size != 200 {
			w.Errorf("got %+v, want 200 bytes in another place than %+v", after, before)
		}
	}},
	{number: 37, given: "a put in progress, another client upserts: the first writer's PutEnd answers -601", run: func(w *world) {
		start(w, "k", 100, errs.OK)
		upsert(w, 2, 100)
		w.code("PutEnd of the first", w.PutEnd(1, "k"), errs.IllegalClient)
		w.code("UpsertEnd", w.UpsertEnd(2, "k"), errs.OK)
	}},
	{number: 38, given: "an upsert in place is revoked: the object is gone", run: func(w *world) {
		w.put("k")
		upsert(w, 1, 100)
		w.code("UpsertRevoke", w.UpsertRevoke(1, "k"), errs.OK)
		w.get("k", errs.ObjectNotFound)
	}},
}
