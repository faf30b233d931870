package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/lonetest"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var params = metadata.Params{LeaseTTL: 10 * time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}

// A fixture is a master on a lone primary with one segment of 1 MiB.
type fixture struct {
	*service.Master
	p      *lonetest.Primary
	fenced atomic.Bool
	failed atomic.Int32 // allocations
	clock  atomic.Int64 // of liveness
}

func newFixture(t *testing.T, change ...func(*service.Config)) *fixture {
	t.Helper()
	f := &fixture{p: lonetest.Start(t, metadata.Options{}, params, 1<<20)}
	c := service.Config{
		Settings: service.Settings{ClusterID: "c", SoftPinTTL: 30 * time.Minute, MaxSoftPin: 24 * time.Hour, Version: "test"},
		Term:     1, Store: f.p.Store, Queue: f.p.Queue, Now: f.p.Now,
		Fence: func() error {
			if f.fenced.Load() {
				return errs.NotLeader
			}
			return nil
		},
		Liveness: service.NewLiveness(10*time.Second, func() time.Duration { return time.Duration(f.clock.Load()) }, f.p.Store),
		Counters: service.NewCounters(), AllocationFailed: func(uint64) { f.failed.Add(1) },
	}
	for _, fn := range change {
		fn(&c)
	}
	f.Master = service.NewMaster(c)
	return f
}

func owner(n byte) segment.ClientID { return segment.ClientID{n} }

func start(n byte) service.PutStart {
	return service.PutStart{Tenant: "default", Client: owner(n), Config: service.PutConfig{Replicas: 1}}
}

func update(n byte) service.PutUpdate {
	return service.PutUpdate{Tenant: "default", Client: owner(n), Selector: metadata.SelectMemory}
}

func (f *fixture) put(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if _, err := f.PutStart(t.Context(), start(1), service.PutItem{Key: key, Size: 100}); err != nil {
			t.Fatal(err)
		}
		if err := f.PutEnd(t.Context(), update(1), service.PutRef{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
}

func want(t *testing.T, what string, err error, kind errs.Kind) {
	t.Helper()
	if got := errs.KindOf(err); got != kind {
		t.Errorf("%s: %v (%v), want %v", what, got, err, kind)
	}
}

func TestPutGetRemove(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	r, err := f.PutStart(ctx, start(1), service.PutItem{Key: "k", Size: 100})
	if err != nil || len(r.Replicas) != 1 || r.Replicas[0].Status != metadata.Processing {
		t.Fatalf("%+v, %v", r, err)
	}
	_, err = f.GetReplicaList(ctx, "default", "k")
	want(t, "get in progress", err, errs.ReplicaNotReady)
	sum := uint64(7)
	if err := f.PutEnd(ctx, update(1), service.PutRef{Key: "k", ID: r.ID, Checksum: &sum}); err != nil {
		t.Fatal(err)
	}
	list, err := f.GetReplicaList(ctx, "default", "k")
	if err != nil || list.ID != r.ID || *list.Checksum != 7 || list.Replicas[0].Address != r.Replicas[0].Address {
		t.Errorf("%+v, %v", list, err)
	}
	want(t, "leased", f.Remove(ctx, service.Removal{Tenant: "default"}, "k"), errs.ObjectHasLease)
	want(t, "forced", f.Remove(ctx, service.Removal{Tenant: "default", Force: true}, "k"), errs.OK)
	if ok, err := f.ExistKey(ctx, "default", "k"); ok || err != nil {
		t.Errorf("exists %v, %v", ok, err)
	}
}

func TestInvalidArguments(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	long := strings.Repeat("k", metadata.MaxKeyBytes+1)
	putWith := func(change func(*service.PutStart, *service.PutItem)) error {
		p, it := start(1), service.PutItem{Key: "k", Size: 1}
		change(&p, &it)
		_, err := f.PutStart(ctx, p, it)
		return err
	}
	day := 25 * time.Hour
	for what, err := range map[string]error{
		"2: no replicas":           putWith(func(p *service.PutStart, _ *service.PutItem) { p.Config.Replicas = 0 }),
		"too many replicas":        putWith(func(p *service.PutStart, _ *service.PutItem) { p.Config.Replicas = 65 }),
		"2: an empty key":          putWith(func(_ *service.PutStart, it *service.PutItem) { it.Key = "" }),
		"2: no bytes":              putWith(func(_ *service.PutStart, it *service.PutItem) { it.Size = 0 }),
		"a pin time without a pin": putWith(func(p *service.PutStart, _ *service.PutItem) { p.Config.SoftPinTTL = &day }),
		"a pin beyond the longest": putWith(func(p *service.PutStart, _ *service.PutItem) {
			p.Config.SoftPin, p.Config.SoftPinTTL = service.SoftPinEnable, &day
		}),
		"a long tenant":              putWith(func(p *service.PutStart, _ *service.PutItem) { p.Tenant = long }),
		"an empty batch":             second(f.BatchGetReplicaList(ctx, "default", nil)),
		"an empty batch of removals": first(f.BatchRemove(ctx, service.Removal{}, nil)),
		"a batch beyond the largest": second(f.BatchExistKey(ctx, "default", make([]string, service.MaxBatchItems+1))),
		"a bad pattern":              regexp(f, "a(b"),
		"a bad page token":           second2(f.GetReplicaListByRegex(ctx, "default", "", service.Page{Token: "x"})),
		"a segment without a size":   f.MountSegment(ctx, segment.Spec{ID: segment.ID{9}, Name: "x", Base: 1}),
		"a segment with a long name": f.MountSegment(ctx, segment.Spec{ID: segment.ID{9}, Name: long, Base: 1, Size: 1}),
	} {
		want(t, what, err, errs.InvalidParams)
	}
	_, err := f.GetReplicaList(ctx, "default", long)
	want(t, "a long key", err, errs.InvalidKey)
	want(t, "a long key to put", putWith(func(_ *service.PutStart, it *service.PutItem) { it.Key = long }), errs.InvalidKey)
	for pattern, construct := range map[string]string{`a(?=b)`: "(?=", `(a)\1`: `\1`, `[`: "[", `a**`: "**"} {
		if err := regexp(f, pattern); err == nil || !strings.Contains(err.Error(), construct) {
			t.Errorf("pattern %s: %v does not name %s", pattern, err, construct)
		}
	}
	if st := f.Store.Stats(); st.Objects != 0 || st.Busy != 0 {
		t.Errorf("something was half done: %+v", st)
	}
}

func first[A any](_ A, err error) error          { return err }
func second[A, B any](_ A, _ B, err error) error { return err }
func second2[A any](_ A, _ string, err error) error {
	return err
}

func regexp(f *fixture, pattern string) error {
	_, err := f.RemoveByRegex(context.Background(), service.Removal{}, pattern)
	return err
}

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
		t.Errorf("%+v", got)
	}
	ends, err := f.BatchPutEnd(ctx, update(1), []service.PutRef{{Key: "a", ID: got[0].ID}, {Key: "x"}, {Key: "b"}})
	if err != nil || ends[0] != nil || ends[2] != nil {
		t.Fatalf("%v, %v", ends, err)
	}
	want(t, "end of a missing put", ends[1], errs.ObjectNotFound)
	lists, failed, err := f.BatchGetReplicaList(ctx, "default", []string{"a", "missing", "b", "a"})
	if err != nil || len(lists[0].Replicas) != 1 || lists[0].ID != lists[3].ID || failed[2] != nil {
		t.Fatalf("18: %+v, %v, %v", lists, failed, err)
	}
	want(t, "18: the missing key", failed[1], errs.ObjectNotFound)
	exist, _, err := f.BatchExistKey(ctx, "default", []string{"missing", "a", "b"})
	if err != nil || !slices.Equal(exist, []bool{false, true, true}) {
		t.Errorf("19: %v, %v", exist, err)
	}
	removed, err := f.BatchRemove(ctx, service.Removal{Tenant: "default", Force: true}, []string{"a", "", "a", "b"})
	if err != nil || removed[0] != nil || removed[3] != nil {
		t.Fatalf("30: %v, %v", removed, err)
	}
	want(t, "30: the same key again", removed[2], errs.ObjectNotFound)
	c := f.Counters.Of(service.OpBatchRemove)
	if c.Requests.Load() != 1 || c.Items.Load() != 4 || c.FailedItems.Load() != 2 || c.Partial.Load() != 1 {
		t.Errorf("counted %d requests, %d items, %d failed", c.Requests.Load(), c.Items.Load(), c.FailedItems.Load())
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
			t.Fatalf("item %d: %v", i, err)
		}
	}
	if st := f.Store.Stats(); st.Objects != 2000 {
		t.Errorf("%d objects", st.Objects)
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
	if _, err := f.BatchPutEnd(ctx, update(1), []service.PutRef{{Key: "a"}, {Key: "b"}}); err != nil {
		t.Fatal(err)
	}
	r := service.Removal{Tenant: "default", Request: 2000}
	for range 2 {
		failed, err := f.BatchRemove(ctx, r, []string{"a", "b"})
		if err != nil || failed[0] != nil || failed[1] != nil {
			t.Errorf("%v, %v", failed, err)
		}
	}
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
			t.Fatalf("item %d is on %s, the first on %s", i, r.Replicas[0].Segment, got[0].Replicas[0].Segment)
		}
	}
	p = start(1)
	p.Config.Preferred = []string{"host2"}
	r, err := f.PutStart(ctx, p, service.PutItem{Key: "preferred", Size: 10})
	if err != nil || r.Replicas[0].Segment != "host2" {
		t.Errorf("20: %+v, %v", r, err)
	}
	p.Config.Replicas = 9
	r, err = f.PutStart(ctx, p, service.PutItem{Key: "many", Size: 10})
	if err != nil || len(r.Replicas) != 5 || f.Counters.PartialAllocations.Load() != 1 {
		t.Errorf("13: %d replicas, %v", len(r.Replicas), err)
	}
	ips, err := f.BatchQueryIp(ctx, []segment.ClientID{owner(21), owner(99)})
	if err != nil || len(ips) != 1 || !slices.Equal(ips[owner(21)], []string{"10.0.0.1"}) {
		t.Errorf("%v, %v", ips, err)
	}
}

func TestFailedAllocation(t *testing.T) {
	f := newFixture(t)
	_, err := f.PutStart(t.Context(), start(1), service.PutItem{Key: "big", Size: 2 << 20})
	want(t, "no room", err, errs.NoAvailableHandle)
	if f.failed.Load() != 1 {
		t.Error("no eviction is asked for")
	}
	p := start(1)
	p.Config.Replicas = 2
	_, err = f.PutStart(t.Context(), p, service.PutItem{Key: "big", Size: 2 << 20})
	want(t, "no room", err, errs.NoAvailableHandle)
	if f.failed.Load() != 1 {
		t.Error("55: fewer segments than replicas, and an eviction is asked for")
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
			t.Fatalf("%d, %v", len(list), err)
		}
		for _, l := range list {
			found = append(found, l.Key)
		}
		if page.Token = next; next == "" {
			break
		}
		if pages > 10 {
			t.Fatal("the pages do not end")
		}
	}
	slices.Sort(found)
	if len(slices.Compact(found)) != 30 {
		t.Errorf("%d keys found: %v", len(found), found)
	}
	// All of a are leased now.
	n, err := f.RemoveByRegex(ctx, service.Removal{Tenant: "default"}, "^model/")
	if err != nil || n != 10 {
		t.Errorf("28, 29: %d removed, %v", n, err)
	}
	n, err = f.RemoveByRegex(ctx, service.Removal{Tenant: "default", Force: true}, "/a/1")
	if err != nil || n != 11 {
		t.Errorf("29: %d removed, %v", n, err)
	}
	if n, err = f.RemoveAll(ctx, service.Removal{Tenant: "other", Force: true}); n != 0 || err != nil {
		t.Errorf("33: %d of another tenant removed, %v", n, err)
	}
	f.put(t, "fresh")
	if n, err = f.RemoveAll(ctx, service.Removal{Tenant: "default"}); n != 1 || err != nil {
		t.Errorf("26: %d removed, %v", n, err)
	}
	if n, err = f.RemoveAll(ctx, service.Removal{Force: true}); n != 19 || err != nil {
		t.Errorf("27: %d removed, %v", n, err)
	}
	keys, _, err := f.Keys(ctx, "default", "", false, service.Page{})
	if err != nil || len(keys) != 0 {
		t.Errorf("left: %v, %v", keys, err)
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
		t.Errorf("32: %v, %v", cleared, err)
	}
	cleared, err = f.BatchReplicaClear(t.Context(), "default", []string{"leased"}, owner(2), "a")
	if err != nil || len(cleared) != 0 {
		t.Errorf("32: %v, %v", cleared, err)
	}
}

func TestDiskReplicas(t *testing.T) {
	f := newFixture(t, func(c *service.Config) { c.RootFSDir = "/mnt/cache" })
	if dir := f.Fsdir(); dir != "/mnt/cache/c" {
		t.Errorf("fsdir %q", dir)
	}
	names := map[string]bool{}
	for _, key := range []string{"a/b", "..", ".", strings.Repeat("x", 1000), strings.Repeat("x", 1001)} {
		r, err := f.PutStart(t.Context(), start(1), service.PutItem{Key: key, Size: 1})
		if err != nil || len(r.Replicas) != 2 {
			t.Fatalf("%+v, %v", r, err)
		}
		path := r.Replicas[1].Path
		parts := strings.Split(path, "/")
		if name := parts[len(parts)-1]; len(parts) != 7 || name == "." || name == ".." || len(name) > 255 || names[path] {
			t.Errorf("key %.20q has the file %q", key, path)
		}
		names[path] = true
	}
}

func TestFence(t *testing.T) {
	f := newFixture(t)
	f.put(t, "k")
	f.fenced.Store(true)
	ctx := t.Context()
	_, err := f.GetReplicaList(ctx, "default", "k")
	want(t, "get", err, errs.NotLeader)
	_, err = f.ExistKey(ctx, "default", "k")
	want(t, "exist", err, errs.NotLeader)
	_, err = f.PutStart(ctx, start(1), service.PutItem{Key: "x", Size: 1})
	want(t, "put", err, errs.NotLeader)
	want(t, "remove", f.Remove(ctx, service.Removal{}, "k"), errs.NotLeader)
	_, err = f.Ping(ctx, owner(1))
	want(t, "ping", err, errs.NotLeader)
	_, err = f.RemoveAll(ctx, service.Removal{})
	want(t, "remove all", err, errs.NotLeader)

	// The fence closes while an answer is built.
	n := 0
	g := newFixture(t, func(c *service.Config) {
		c.Fence = func() error {
			if n++; n > 1 {
				return errs.NotLeader
			}
			return nil
		}
	})
	g.p.Put(nil, "k")
	if _, err := g.GetReplicaList(ctx, "default", "k"); !errors.Is(err, errs.NotLeader) {
		t.Errorf("an answer built while the fence closed: %v", err)
	}
}

// A reader of an object whose removal is being written waits for the outcome;
// its deadline ends the waiting.
func TestReadersWaitForMutations(t *testing.T) {
	f := newFixture(t)
	f.put(t, "k")
	r, _, err := f.Store.PrepareRemove(metadata.Remove{Tenant: "default", Key: "k"}, f.p.Now())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = f.GetReplicaList(ctx, "default", "k")
	want(t, "a reader with a short deadline", err, errs.Unavailable)
	want(t, "a remover with a short deadline", f.Remove(ctx, service.Removal{Tenant: "default"}, "k"), errs.Unavailable)
	got := make(chan error, 1)
	go func() {
		_, err := f.GetReplicaList(t.Context(), "default", "k")
		got <- err
	}()
	f.p.Commit(lonetest.Removal(r))
	want(t, "a patient reader", <-got, errs.ObjectNotFound)
}

// Many callers put, read and remove few keys at once: each gets an answer that
// fits some order, and nothing is left over.
func TestContention(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	var wg sync.WaitGroup
	var puts, removes atomic.Int64
	for w := range byte(16) {
		wg.Go(func() {
			for i := range 100 {
				key := fmt.Sprint(i % 5)
				switch r, err := f.PutStart(ctx, start(w), service.PutItem{Key: key, Size: 10}); errs.KindOf(err) {
				case errs.OK:
					puts.Add(1)
					if err := f.PutEnd(ctx, update(w), service.PutRef{Key: key, ID: r.ID}); err != nil {
						t.Errorf("the end of my own put: %v", err)
					}
				case errs.ObjectExists:
				default:
					t.Errorf("put: %v", err)
				}
				if _, err := f.GetReplicaList(ctx, "default", key); err != nil && !errors.Is(err, errs.ObjectNotFound) && !errors.Is(err, errs.ReplicaNotReady) {
					t.Errorf("get: %v", err)
				}
				switch err := f.Remove(ctx, service.Removal{Tenant: "default", Force: true}, key); errs.KindOf(err) {
				case errs.OK:
					removes.Add(1)
				case errs.ObjectNotFound, errs.ReplicaNotReady:
				default:
					t.Errorf("remove: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if left := f.Store.Stats().Objects; puts.Load()-removes.Load() != left {
		t.Errorf("%d puts, %d removals, %d objects left", puts.Load(), removes.Load(), left)
	}
	if puts.Load() < 10 {
		t.Errorf("only %d puts went through", puts.Load())
	}
}

func TestClientsAndSegments(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	if known, err := f.Ping(ctx, owner(1)); !known || err != nil {
		t.Errorf("the owner of a segment from before this term: known %v, %v", known, err)
	}
	if known, _ := f.Ping(ctx, owner(2)); known {
		t.Error("63: a stranger need not remount")
	}
	spec := segment.Spec{ID: segment.ID{2}, Name: "b", Base: 1 << 33, Size: 1 << 20, Endpoint: "b:1", Client: owner(2)}
	if err := f.ReMountSegment(ctx, owner(2), []segment.Spec{spec, spec}); err != nil {
		t.Fatal(err)
	}
	if known, _ := f.Ping(ctx, owner(2)); !known {
		t.Error("63: a client that has remounted is not known")
	}
	if st := f.Store.Stats(); st.Segments != 2 || f.Liveness.Active() != 2 {
		t.Errorf("%+v, %d clients", st, f.Liveness.Active())
	}
	f.put(t, "k")
	if err := f.UnmountSegment(ctx, segment.ID{99}); err != nil {
		t.Errorf("57: %v", err)
	}
	if err := f.UnmountSegment(ctx, segment.ID{1}); err != nil {
		t.Error(err)
	}
	if err := f.ReMountSegment(ctx, owner(3), nil); err != nil {
		t.Error(err)
	}
	if known, _ := f.Ping(ctx, owner(3)); !known {
		t.Error("a client without segments that has remounted is not known")
	}
}

func TestSilentClientsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *service.Config) {
			c.Liveness = service.NewLiveness(10*time.Second, clock.Runtime(), c.Store)
		})
		f.put(t, "k")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = f.WatchClients(ctx, zerolog.Nop()) }()
		time.Sleep(5 * time.Second)
		if known, _ := f.Ping(ctx, owner(1)); !known {
			t.Fatal("expired after half its TTL")
		}
		time.Sleep(9500 * time.Millisecond)
		if st := f.Store.Stats(); st.Segments != 1 {
			t.Fatal("expired before its TTL")
		}
		time.Sleep(2 * time.Second)
		if st := f.Store.Stats(); st.Segments != 0 {
			t.Error("64: the silent client's segment stays")
		}
		if ok, _ := f.ExistKey(ctx, "default", "k"); ok {
			t.Error("64: its objects are still there")
		}
		if known, _ := f.Ping(ctx, owner(1)); known {
			t.Error("an expired client is still known")
		}
	})
}
