package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
)

func TestBatches(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	items := []service.PutItem{{Key: "a", Size: 1}, {Key: "", Size: 1}, {Key: "b", Size: 1}, {Key: "a", Size: 1}}
	got, failed, err := f.BatchPutStart(ctx, start(1), items)
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range []errs.Kind{errs.OK, errs.InvalidParams, errs.OK, errs.ObjectExists} {
		want(t, fmt.Sprint("put start item ", i), failed[i], kind)
	}
	if got[0].ID == 0 || got[2].ID == 0 || got[3].ID != 0 {
		t.Errorf("BatchPutStart: got %+v, want ids of the first and the third put alone", got)
	}
	ends, err := f.BatchPutEnd(ctx, update(1), []service.UpdateItem{{Key: "a", ID: got[0].ID}, {Key: "x"}, {Key: "b"}})
	if err != nil || ends[0] != nil || ends[2] != nil {
		t.Fatalf("BatchPutEnd: got %v, %v; want the first and the third put ended", ends, err)
	}
	want(t, "end of a missing put", ends[1], errs.ObjectNotFound)
	lists, failed, err := f.BatchGetReplicaList(ctx, "default", []string{"a", "missing", "b", "a"}, nil)
	if err != nil || len(lists[0].Replicas) != 1 || lists[0].ID != lists[3].ID || failed[2] != nil {
		t.Fatalf("BatchGetReplicaList: got %+v, %v, %v; want all objects but the missing one", lists, failed, err)
	}
	want(t, "BatchGetReplicaList of a missing key", failed[1], errs.ObjectNotFound)
	exist, _, err := f.BatchExistKey(ctx, "default", []string{"missing", "a", "b"})
	if err != nil || !slices.Equal(exist, []bool{false, true, true}) {
		t.Errorf("BatchExistKey: got %v, %v; want [false true true] and no error", exist, err)
	}
	removed, err := f.BatchRemove(ctx, service.RemoveRequest{Tenant: "default", Force: true}, []string{"a", "", "a", "b"})
	if err != nil || removed[0] != nil || removed[3] != nil {
		t.Fatalf("BatchRemove: got %v, %v; want a and b removed", removed, err)
	}
	want(t, "BatchRemove of the same key again", removed[2], errs.ObjectNotFound)
	c := f.Counters.Of(service.OpBatchRemove)
	if c.Requests.Load() != 1 || c.Items.Load() != 4 || c.FailedItems.Load() != 2 || c.Partial.Load() != 1 {
		t.Errorf("counted %d requests, %d items, %d failed; want 1, 4, 2 and 1", c.Requests.Load(), c.Items.Load(), c.FailedItems.Load())
	}
}

func TestLargeBatchIsSplitIntoRounds(t *testing.T) {
	f := newFixture(t)
	items := make([]service.PutItem, 2000)
	for i := range items {
		items[i] = service.PutItem{Key: fmt.Sprintf("%s-%d", strings.Repeat("k", 400), i), Size: 1}
	}
	_, failed, err := f.BatchPutStart(t.Context(), start(1), items)
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range failed {
		if err != nil {
			t.Fatalf("item %d: got %v, want no error", i, err)
		}
	}
	if st := f.Store.Stats(); st.Objects != 2000 {
		t.Errorf("%d objects, want 2000", st.Objects)
	}
}

// Upserts carry the groups of the objects that they replace, whose names nobody counted
// before.
func TestUpsertsOfGroupsAreSplitIntoRounds(t *testing.T) {
	f := newFixture(t)
	p, items, refs := start(1), make([]service.PutItem, 700), make([]service.UpdateItem, 700)
	for i := range items {
		items[i] = service.PutItem{Key: fmt.Sprint("k", i), Size: 1, Group: strings.Repeat("g", 500)}
		refs[i] = service.UpdateItem{Key: items[i].Key}
	}
	for _, upsert := range []bool{false, true} {
		p.Config.Upsert = upsert
		_, failed, err := f.BatchPutStart(t.Context(), p, items)
		if err != nil {
			t.Fatal(err)
		}
		ended, err := f.BatchPutEnd(t.Context(), update(1), refs)
		if err != nil {
			t.Fatal(err)
		}
		for i := range items {
			want(t, fmt.Sprintf("put %d, upsert %t", i, upsert), failed[i], errs.OK)
			want(t, fmt.Sprintf("end %d, upsert %t", i, upsert), ended[i], errs.OK)
			items[i].Group = ""
		}
	}
}

func TestRepeatedBatchGetsTheSameAnswers(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	p := start(1)
	p.Request = 1000
	items := []service.PutItem{{Key: "a", Size: 1}, {Key: "b", Size: 1}}
	got, _, err := f.BatchPutStart(ctx, p, items)
	if err != nil {
		t.Fatal(err)
	}
	again, failed, err := f.BatchPutStart(ctx, p, items)
	if err != nil || failed[0] != nil || again[0].ID != got[0].ID || again[1].ID != got[1].ID ||
		again[1].Replicas[0].Address != got[1].Replicas[0].Address {
		t.Errorf("%+v, %v, %v; want %+v", again, failed, err, got)
	}
	if _, err := f.BatchPutEnd(ctx, update(1), []service.UpdateItem{{Key: "a"}, {Key: "b"}}); err != nil {
		t.Fatal(err)
	}
	r := service.RemoveRequest{Tenant: "default", Request: 2000}
	for range 2 {
		failed, err := f.BatchRemove(ctx, r, []string{"a", "b"})
		if err != nil || failed[0] != nil || failed[1] != nil {
			t.Errorf("BatchRemove with one request id: got %v, %v; want both removed", failed, err)
		}
	}
}
