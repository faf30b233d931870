package conformance_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/lab/lonetest"
)

var removals = []line{
	{number: 22, given: "an ended lease: Remove succeeds, then answers -704", run: func(w *world) {
		w.put("k")
		w.get("k", errs.OK)
		w.pass(ttl)
		w.code("Remove", w.Remove("k", false), errs.OK)
		w.code("Remove again", w.Remove("k", false), errs.ObjectNotFound)
	}},
	{number: 23, given: "an object just read: Remove answers -706", run: func(w *world) {
		w.put("k")
		w.get("k", errs.OK)
		w.code("Remove", w.Remove("k", false), errs.ObjectHasLease)
	}},
	{number: 24, given: "the same by force: OK", run: func(w *world) {
		w.put("k")
		w.get("k", errs.OK)
		w.code("Remove by force", w.Remove("k", true), errs.OK)
		w.get("k", errs.ObjectNotFound)
	}},
	{number: 25, given: "a put in progress: Remove by force answers -703", run: func(w *world) {
		start(w, "k", 100, errs.OK)
		w.code("Remove by force", w.Remove("k", true), errs.ReplicaNotReady)
	}},
	{number: 26, given: "leased and other objects: RemoveAll removes and counts the others only", run: func(w *world) {
		w.put("leased", "a", "b")
		w.get("leased", errs.OK)
		w.count("RemoveAll", w.RemoveAll(false), 2)
		w.exists(true, "leased")
	}},
	{number: 27, given: "the same by force: RemoveAll removes leased ones too", run: func(w *world) {
		w.put("leased", "a", "b")
		w.get("leased", errs.OK)
		w.count("RemoveAll", w.RemoveAll(true), 3)
		w.exists(false, "leased")
	}},
	{number: 28, given: "some keys match: RemoveByRegex removes and counts those", run: func(w *world) {
		w.put("x1", "x2", "y")
		n, code := w.RemoveByRegex("^x", false)
		w.code("RemoveByRegex", code, errs.OK)
		w.count("RemoveByRegex", n, 2)
		w.exists(true, "y")
	}},
	{number: 29, given: "matches are leased: RemoveByRegex skips them, by force it does not", run: func(w *world) {
		w.put("x1", "x2")
		w.get("x1", errs.OK)
		for _, tc := range []struct {
			force bool
			want  int
		}{{false, 1}, {true, 1}} {
			n, code := w.RemoveByRegex("^x", tc.force)
			w.code("RemoveByRegex", code, errs.OK)
			w.count(fmt.Sprintf("RemoveByRegex, force %t", tc.force), n, tc.want)
		}
	}},
	{number: 30, given: "duplicates and empty keys: BatchRemove has a result for each slot", run: func(w *world) {
		w.put("a")
		if got, missing := w.BatchRemove(false, "a", "a", "", "b"), errs.ObjectNotFound.Number(); !slices.Equal(got, []int32{0, missing, missing, missing}) {
			w.Errorf("got %v, want 0 and then %d", got, missing)
		}
	}},
	{number: 31, given: "outcomes of BatchRemove equal those of Remove", run: func(w *world) {
		keys := []string{"a", "leased", "going", "gone"}
		prepare := func(prefix string) (list []string) {
			for _, k := range keys {
				list = append(list, prefix+k)
			}
			w.put(list[:2]...)
			w.get(list[1], errs.OK)
			start(w, list[2], 100, errs.OK)
			return list
		}
		var single []int32
		for _, k := range prepare("1") {
			single = append(single, w.Remove(k, false))
		}
		if got := w.BatchRemove(false, prepare("2")...); !slices.Equal(got, single) {
			w.Errorf("got %v, want %v", got, single)
		}
	}},
	{number: 32, given: "a key that is another writer's, or leased: BatchReplicaClear leaves it out", run: func(w *world) {
		w.put("own", "leased")
		w.get("leased", errs.OK)
		_, code := w.PutStart(2, "other", 100, one)
		w.code("PutStart", code, errs.OK)
		w.code("PutEnd", w.PutEnd(2, "other"), errs.OK)
		n, code := w.Clear(1, "own", "leased", "other")
		w.code("BatchReplicaClear", code, errs.OK)
		w.count("cleared", n, 1)
		w.exists(false, "own")
		w.exists(true, "leased", "other")
	}},
	{number: 33, given: "tenants with equal keys: a removal of one leaves the other", shown: "internal/mooncake/mooncakeserver/TestTenants"},
	{number: 34, given: "puts and reads at the same time: RemoveAll counts what it removed", run: removeAllUnderLoad},
}

func removeAllUnderLoad(w *world) {
	var put, removed atomic.Int64
	var writers sync.WaitGroup
	for i := range 4 {
		d := w.another()
		writers.Go(func() {
			for _, key := range lonetest.Keys(fmt.Sprint(i, "-"), 50) {
				if _, code := d.PutStart(1, key, 100, one); code == 0 && d.PutEnd(1, key) == 0 {
					put.Add(1)
				}
				d.Exist(key + "-not")
			}
		})
	}
	for range 5 {
		removed.Add(int64(w.RemoveAll(true)))
	}
	writers.Wait()
	removed.Add(int64(w.RemoveAll(true)))
	if put.Load() != 200 || removed.Load() != 200 {
		w.Errorf("got %d put and %d removed, want 200 each", put.Load(), removed.Load())
	}
}
