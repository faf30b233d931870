package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

func TestPutGetRemove(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	r, err := f.PutStart(ctx, start(1), service.PutItem{Key: "k", Size: 100})
	if err != nil || len(r.Replicas) != 1 || r.Replicas[0].Status != metadata.Processing {
		t.Fatalf("PutStart: got %+v, %v; want one replica in progress and no error", r, err)
	}
	_, err = f.GetReplicaList(ctx, "default", "k")
	want(t, "get in progress", err, errs.ReplicaNotReady)
	sum := uint64(7)
	if err := f.PutEnd(ctx, update(1), service.UpdateItem{Key: "k", ID: r.ID, Checksum: &sum}); err != nil {
		t.Fatal(err)
	}
	list, err := f.GetReplicaList(ctx, "default", "k")
	if err != nil || list.ID != r.ID || *list.Checksum != 7 || list.Replicas[0].Address != r.Replicas[0].Address {
		t.Errorf("GetReplicaList: got %+v, %v; want what was put, with checksum 7", list, err)
	}
	want(t, "leased", f.Remove(ctx, service.RemoveRequest{Tenant: "default"}, "k"), errs.ObjectHasLease)
	want(t, "forced", f.Remove(ctx, service.RemoveRequest{Tenant: "default", Force: true}, "k"), errs.OK)
	if ok, err := f.ExistKey(ctx, "default", "k"); ok || err != nil {
		t.Errorf("exists %v, %v; want false and no error", ok, err)
	}
}

func TestInvalidArguments(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	long := strings.Repeat("k", metadata.MaxKeyBytes+1)
	putWith := func(change func(*service.PutRequest, *service.PutItem)) error {
		p, it := start(1), service.PutItem{Key: "k", Size: 1}
		change(&p, &it)
		_, err := f.PutStart(ctx, p, it)
		return err
	}
	day := 25 * time.Hour
	for what, err := range map[string]error{
		"no replicas":       putWith(func(p *service.PutRequest, _ *service.PutItem) { p.Config.Replicas = 0 }),
		"too many replicas": putWith(func(p *service.PutRequest, _ *service.PutItem) { p.Config.Replicas = 65 }),
		"an empty key":      putWith(func(_ *service.PutRequest, it *service.PutItem) { it.Key = "" }),
		"too many preferred names": putWith(func(p *service.PutRequest, _ *service.PutItem) {
			p.Config.Preferred = make([]string, service.MaxPreferred+1)
		}),
		"a batch with too many preferred names": tooManyPreferred(f),
		"no bytes":                              putWith(func(_ *service.PutRequest, it *service.PutItem) { it.Size = 0 }),
		"a pin time without a pin":              putWith(func(p *service.PutRequest, _ *service.PutItem) { p.Config.SoftPinTTL = &day }),
		"a pin beyond the longest": putWith(func(p *service.PutRequest, _ *service.PutItem) {
			p.Config.SoftPin, p.Config.SoftPinTTL = service.SoftPinEnable, &day
		}),
		"a long tenant":              putWith(func(p *service.PutRequest, _ *service.PutItem) { p.Tenant = long }),
		"an empty batch":             second(f.BatchGetReplicaList(ctx, "default", nil, nil)),
		"an empty batch of removals": first(f.BatchRemove(ctx, service.RemoveRequest{}, nil)),
		"a batch beyond the largest": second(f.BatchExistKey(ctx, "default", make([]string, service.MaxBatchItems+1))),
		"a bad pattern":              regexp(f, "a(b"),
		"a bad page token":           second2(f.GetReplicaListByRegex(ctx, "default", "", service.Page{Token: "x"})),
		"a segment without a size":   f.MountSegment(ctx, segment.Spec{ID: segment.ID{9}, Name: "x", Base: 1}),
		"a segment with a long name": f.MountSegment(ctx, segment.Spec{ID: segment.ID{9}, Name: long, Base: 1, Size: 1}),
	} {
		want(t, what, err, errs.InvalidParams)
	}
	if err := tooManyPreferred(f); !strings.Contains(err.Error(), "1025 names, at most 1024 are possible; name only those to try first") {
		t.Error(err)
	}
	err := f.ReMountSegment(ctx, owner(1), make([]segment.Spec, service.MaxReMounts+1))
	if want(t, "too many segments to remount", err, errs.InvalidParams); !strings.Contains(err.Error(), "mount larger ones") {
		t.Error(err)
	}
	_, err = f.GetReplicaList(ctx, "default", long)
	want(t, "a long key", err, errs.InvalidKey)
	want(t, "a long key to put", putWith(func(_ *service.PutRequest, it *service.PutItem) { it.Key = long }), errs.InvalidKey)
	for pattern, construct := range map[string]string{`a(?=b)`: "(?=", `(a)\1`: `\1`, `[`: "[", `a**`: "**"} {
		if err := regexp(f, pattern); err == nil || !strings.Contains(err.Error(), construct) {
			t.Errorf("pattern %s: got %v, want an error that names %s", pattern, err, construct)
		}
	}
	most := start(1)
	most.Config.Preferred = append(make([]string, service.MaxPreferred-1), "a")
	if _, err := f.PutStart(ctx, most, service.PutItem{Key: "most", Size: 1}); err != nil {
		t.Errorf("as many preferred names as there can be: got %v, want no error", err)
	}
	if st := f.Store.Stats(); st.Objects != 1 {
		t.Errorf("something was half done: got %+v, want Objects 1", st)
	}
}

func tooManyPreferred(f *fixture) error {
	p := start(1)
	p.Config.Preferred = make([]string, service.MaxPreferred+1)
	_, _, err := f.BatchPutStart(context.Background(), p, []service.PutItem{{Key: "k", Size: 1}})
	return err
}

func first[A any](_ A, err error) error          { return err }
func second[A, B any](_ A, _ B, err error) error { return err }
func second2[A any](_ A, _ string, err error) error {
	return err
}

func regexp(f *fixture, pattern string) error {
	_, err := f.RemoveByRegex(context.Background(), service.RemoveRequest{}, pattern)
	return err
}

func TestPlacement(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for i := range byte(4) {
		spec := segment.Spec{ID: segment.ID{20 + i}, Name: fmt.Sprint("host", i), Base: 1 << 40, Size: 1 << 20, Endpoint: fmt.Sprint("10.0.0.", i, ":7"), Client: owner(20 + i)}
		if err := f.MountSegment(ctx, spec); err != nil {
			t.Fatal(err)
		}
	}
	p := start(1)
	p.Config.SameNode = true
	items := make([]service.PutItem, 20)
	for i := range items {
		items[i] = service.PutItem{Key: fmt.Sprint("same", i), Size: 10}
	}
	got, _, err := f.BatchPutStart(ctx, p, items)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range got {
		if r.Replicas[0].Segment != got[0].Replicas[0].Segment {
			t.Fatalf("item %d is on %s, the first on %s; want one segment for all", i, r.Replicas[0].Segment, got[0].Replicas[0].Segment)
		}
	}
	p = start(1)
	p.Config.Preferred = []string{"host2"}
	r, err := f.PutStart(ctx, p, service.PutItem{Key: "preferred", Size: 10})
	if err != nil || r.Replicas[0].Segment != "host2" {
		t.Errorf("a put that prefers host2: got %+v, %v; want it there and no error", r, err)
	}
	p.Config.Preferred = []string{"nobody", "host2", "nobody", "host1", "host2"}
	p.Config.Replicas = 2
	r, err = f.PutStart(ctx, p, service.PutItem{Key: "repeated", Size: 10})
	if err != nil || len(r.Replicas) != 2 || r.Replicas[0].Segment != "host2" || r.Replicas[1].Segment != "host1" {
		t.Errorf("names that repeat: got %+v, %v; want 2 entries, \"host2\", \"host1\" and no error", r, err)
	}
	if got, want := service.Distinct(p.Config.Preferred), []string{"nobody", "host2", "host1"}; !slices.Equal(got, want) {
		t.Errorf("%q are tried, want %q", got, want)
	}
	p.Config.Replicas = 9
	r, err = f.PutStart(ctx, p, service.PutItem{Key: "many", Size: 10})
	if err != nil || len(r.Replicas) != 5 || f.Counters.PartialAllocations.Load() != 1 {
		t.Errorf("9 replicas on 5 segments: got %d replicas, %v; want 5, counted as a partial allocation", len(r.Replicas), err)
	}
	ips, err := f.BatchQueryIp(ctx, []segment.ClientID{owner(21), owner(99)})
	if err != nil || len(ips) != 1 || !slices.Equal(ips[owner(21)], []string{"10.0.0.1"}) {
		t.Errorf("got %v, %v; want 1 entry, [10.0.0.1] and no error", ips, err)
	}
}

func TestFailedAllocation(t *testing.T) {
	f := newFixture(t)
	f.put(t, "small")
	_, err := f.PutStart(t.Context(), start(1), service.PutItem{Key: "big", Size: 1 << 20})
	want(t, "no room", err, errs.NoAvailableHandle)
	if f.failed.Load() != 1 {
		t.Errorf("a put without room: got %d requests to evict, want 1", f.failed.Load())
	}
	p := start(1)
	p.Config.Replicas = 2
	_, err = f.PutStart(t.Context(), p, service.PutItem{Key: "big", Size: 1 << 20})
	want(t, "no room", err, errs.NoAvailableHandle)
	if f.failed.Load() != 1 {
		t.Error("fewer segments than replicas: got a request to evict, want none")
	}
	_, err = f.PutStart(t.Context(), start(1), service.PutItem{Key: "huge", Size: 1<<20 + 1})
	want(t, "no room", err, errs.NoAvailableHandle)
	if f.failed.Load() != 1 {
		t.Errorf("an object larger than any segment: got %d requests to evict in all, want no more than the 1 before", f.failed.Load())
	}
}

func TestRegexCalls(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.put(t, lonetest.Keys("model/a/", 30)...)
	f.put(t, lonetest.Keys("model/b/", 10)...)
	var found []string
	page := service.Page{Size: 7}
	for pages := 0; ; pages++ {
		list, next, err := f.GetReplicaListByRegex(ctx, "default", "/a/", page)
		if err != nil || len(list) > 7 {
			t.Fatalf("a page: got %d objects, %v; want at most 7 and no error", len(list), err)
		}
		for _, l := range list {
			found = append(found, l.Key)
		}
		if page.Token = next; next == "" {
			break
		}
		if pages > 10 {
			t.Fatalf("pages: got more than %d, want an end", pages)
		}
	}
	slices.Sort(found)
	if len(slices.Compact(found)) != 30 {
		t.Errorf("%d keys found: got %v, want 30", len(found), found)
	}
	// All of a are leased now.
	n, err := f.RemoveByRegex(ctx, service.RemoveRequest{Tenant: "default"}, "^model/")
	if err != nil || n != (deleteevents.Result{Removed: 10, Leased: 30, Events: 1, Changed: true}) {
		t.Errorf("removal by regex with leases on model/a: got %+v, %v; want 10 removed, 30 kept and no error", n, err)
	}
	n, err = f.RemoveByRegex(ctx, service.RemoveRequest{Tenant: "default", Force: true}, "/a/1")
	if err != nil || n.Removed != 11 {
		t.Errorf("forced removal by regex: got %+v, %v; want 11 removed and no error", n, err)
	}
	if n, err = f.RemoveAll(ctx, service.RemoveRequest{Tenant: "other", Force: true}); n.Removed != 0 || err != nil {
		t.Errorf("RemoveAll of another tenant: got %+v, %v; want 0 removed and no error", n, err)
	}
	f.put(t, "fresh")
	if n, err = f.RemoveAll(ctx, service.RemoveRequest{Tenant: "default"}); n.Removed != 1 || err != nil {
		t.Errorf("RemoveAll with leases on the others: got %+v, %v; want 1 removed and no error", n, err)
	}
	if n, err = f.RemoveAll(ctx, service.RemoveRequest{Force: true}); n.Removed != 19 || err != nil {
		t.Errorf("forced RemoveAll: got %+v, %v; want 19 removed and no error", n, err)
	}
	keys, _, err := f.Keys(ctx, "default", "", false, service.Page{})
	if err != nil || len(keys) != 0 {
		t.Errorf("left: got %v, %v; want no entries and no error", keys, err)
	}
}

func TestReplicaClear(t *testing.T) {
	f := newFixture(t)
	f.put(t, "a", "b", "leased")
	if _, err := f.GetReplicaList(t.Context(), "default", "leased"); err != nil {
		t.Fatal(err)
	}
	cleared, err := f.BatchReplicaClear(t.Context(), "default", []string{"a", "", "missing", "leased", "b"}, owner(1), "")
	if err != nil || !slices.Equal(cleared, []int{0, 4}) {
		t.Errorf("clearing replicas of which one is leased: got %v, %v; want [0 4] and no error", cleared, err)
	}
	cleared, err = f.BatchReplicaClear(t.Context(), "default", []string{"leased"}, owner(2), "a")
	if err != nil || len(cleared) != 0 {
		t.Errorf("clearing a replica of another client: got %v, %v; want none cleared and no error", cleared, err)
	}
}

func TestDiskReplicas(t *testing.T) {
	f := newFixture(t, func(c *service.Master) { c.RootFSDir = "/mnt/cache" })
	if dir := f.Fsdir(); dir != "/mnt/cache/c" {
		t.Errorf("fsdir %q, want \"/mnt/cache/c\"", dir)
	}
	names := map[string]bool{}
	for _, key := range []string{"a/b", "..", ".", strings.Repeat("x", 1000), strings.Repeat("x", 1001)} {
		r, err := f.PutStart(t.Context(), start(1), service.PutItem{Key: key, Size: 1})
		if err != nil || len(r.Replicas) != 2 {
			t.Fatalf("got %+v, %v; want 2 entries and no error", r, err)
		}
		path := r.Replicas[1].Path
		parts := strings.Split(path, "/")
		if name := parts[len(parts)-1]; len(parts) != 7 || name == "." || name == ".." || len(name) > 255 || names[path] {
			t.Errorf("key %.20q has the file %q; want seven parts, the last a name of its own of at most 255 bytes", key, path)
		}
		names[path] = true
	}
}
