package service_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A segment that is unmounted gracefully stays readable for the grace period, takes
// no new objects, and goes then, without a further call.
func TestGracefulUnmount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *service.Master) {
			c.Liveness = service.NewLiveness(time.Hour, 0, clock.Runtime(), c.Store)
		})
		f.put(t, "k")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = f.WatchClients(ctx, zerolog.Nop()) }()
		want(t, "a client without segments", f.GracefulUnmountSegment(ctx, owner(2), segment.ID{1}, time.Minute), errs.SegmentNotFound)
		want(t, "a segment that is not there", f.GracefulUnmountSegment(ctx, owner(1), segment.ID{9}, time.Minute), errs.InvalidParams)
		want(t, "a graceful unmount", f.GracefulUnmountSegment(ctx, owner(1), segment.ID{1}, time.Minute), errs.OK)
		want(t, "it once more", f.GracefulUnmountSegment(ctx, owner(1), segment.ID{1}, time.Hour), errs.OK)
		_, err := f.PutStart(ctx, start(1), service.PutItem{Key: "new", Size: 100})
		want(t, "a put meanwhile", err, errs.NoAvailableHandle)
		want(t, "a mount meanwhile", f.MountSegment(ctx, f.Store.Segments()[0].Spec), errs.Unavailable)
		f.p.Pass(59 * time.Second)
		time.Sleep(2 * time.Second)
		if ok, err := f.ExistKey(ctx, "default", "k"); !ok || err != nil {
			t.Errorf("within the grace period: got %t, %v; want the object", ok, err)
		}
		f.p.Pass(time.Second)
		time.Sleep(2 * time.Second)
		if st := f.Store.Stats(); st.Segments != 0 {
			t.Errorf("after the grace period: got %d segments, want 0", st.Segments)
		}
		if ok, _ := f.ExistKey(ctx, "default", "k"); ok {
			t.Error("the object of a segment that was unmounted exists, want it gone")
		}
	})
}

// RemoveAll has the owners of SSDs delete their files, each once.
func TestPollRemoveAll(t *testing.T) {
	f := newFixture(t, func(c *service.Master) { c.Offload, c.OffloadQueue = true, 10 })
	ctx := t.Context()
	_, err := f.PollRemoveAll(ctx, owner(1))
	want(t, "without an SSD", err, errs.SegmentNotFound)
	if err := f.MountLocalDisk(ctx, owner(1), true); err != nil {
		t.Fatal(err)
	}
	f.put(t, "k", "kept")
	tasks(t, f.Master)
	if ok, err := f.ExistKey(ctx, "default", "kept"); !ok || err != nil { // its lease spares it
		t.Fatal(ok, err)
	}
	poll := func(when string, want bool) {
		t.Helper()
		if got, err := f.PollRemoveAll(ctx, owner(1)); got != want || err != nil {
			t.Errorf("%s: got %t, %v; want %t", when, got, err, want)
		}
	}
	poll("before", false)
	if _, err := f.RemoveAll(ctx, service.RemoveRequest{Tenant: "default"}); err != nil {
		t.Fatal(err)
	}
	poll("after RemoveAll", true)
	poll("once more", false)
	want(t, "a copy from before", f.NotifyOffloaded(ctx, owner(1), copied("kept")), errs.OK)
	if got := f.onDisk("kept"); len(got) > 0 {
		t.Errorf("a copy from before, which the client has deleted: got owners %v, want none", got)
	}
}

// Between RemoveAll and the answer that has a client delete all its files, nothing is
// copied there that was put since: it would go with them.
func TestNothingIsCopiedToAnSSDThatIsToBeWiped(t *testing.T) {
	for name, asked := range map[string]bool{"a client that has asked before": true, "one that has not, as in a new term": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, offloading(10))
			ctx := t.Context()
			f.mountDisk(t, 1, true)
			poll := func(want bool) {
				t.Helper()
				if wipe, err := f.PollRemoveAll(ctx, owner(1)); wipe != want || err != nil {
					t.Fatalf("PollRemoveAll: got %t, %v; want %t", wipe, err, want)
				}
			}
			f.put(t, "kept")
			if asked {
				wantKeys(t, "before", tasks(t, f.Master), "kept")
				poll(false)
			}
			if ok, err := f.ExistKey(ctx, "default", "kept"); !ok || err != nil { // its lease spares it
				t.Fatal(ok, err)
			}
			f.removeAll(t)
			f.put(t, "k")
			want(t, "a copy of what was kept", f.NotifyOffloaded(ctx, owner(1), copied("kept")), errs.OK)
			wantKeys(t, "until the files are deleted", tasks(t, f.Master))
			want(t, "a copy without a task", f.NotifyOffloaded(ctx, owner(1), copied("k")), errs.OK)
			for _, key := range []string{"kept", "k"} {
				if got := f.onDisk(key); len(got) > 0 {
					t.Errorf("a copy of %s that is about to be deleted: got owners %v, want none", key, got)
				}
			}
			poll(true)
			if got := tasks(t, f.Master); !slices.Contains(got, "k") {
				t.Errorf("then: got tasks %v, want k among them", got)
			}
			want(t, "its copy", f.NotifyOffloaded(ctx, owner(1), copied("k")), errs.OK)
			f.p.Pass(time.Minute)
			f.p.Commit(eviction.Select(f.Store, eviction.Bounds{Objects: 100}).Cutoff)
			if list, err := f.GetReplicaList(ctx, "default", "k"); err != nil || len(list.Replicas) != 1 || list.Replicas[0].Kind != metadata.LocalDisk {
				t.Errorf("after its memory was evicted: got %+v, %v; want the copy on the SSD", list.Replicas, err)
			}
		})
	}
}

// Clients whose protocol has no PollRemoveAll keep their files, and go on to copy.
func TestClientsThatNeverAskGoOnToCopy(t *testing.T) {
	f := newFixture(t, offloading(10))
	f.mountDisk(t, 1, true)
	wantKeys(t, "before", tasks(t, f.Master))
	f.removeAll(t)
	f.put(t, "k")
	wantKeys(t, "after RemoveAll", tasks(t, f.Master), "k")
	want(t, "its copy", f.NotifyOffloaded(t.Context(), owner(1), copied("k")), errs.OK)
	if got := f.onDisk("k"); len(got) != 1 {
		t.Errorf("got owners %v of its copy, want one", got)
	}
	next := f.nextTerm()
	f.put(t, "l")
	if err := next.RefillOffloads(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, "the first heartbeat of the next term", tasks(t, next))
	wantKeys(t, "the second", tasks(t, next), "l")
}

func (f *fixture) removeAll(t *testing.T) {
	t.Helper()
	if _, err := f.RemoveAll(t.Context(), service.RemoveRequest{}); err != nil {
		t.Fatal(err)
	}
}

// With local_first, a put of one replica goes to its writer's host while there is
// room, and elsewhere then.
func TestLocalFirst(t *testing.T) {
	f := newFixture(t, func(c *service.Master) { c.LocalFirst = true })
	for i, host := range []string{"h1", "h2", "h3"} {
		if err := f.MountSegment(t.Context(), segment.Spec{
			ID: segment.ID{byte(10 + i)}, Name: host, Base: 1 << 40, Size: 1 << 10, Endpoint: host + ":1", HostID: "id-" + host, Client: owner(2),
		}); err != nil {
			t.Fatal(err)
		}
	}
	put := func(key string, config service.PutConfig) string {
		t.Helper()
		config.Replicas = 1
		r, err := f.PutStart(t.Context(), service.PutRequest{Tenant: "default", Client: owner(2), Config: config}, service.PutItem{Key: key, Size: 512})
		if err != nil || len(r.Replicas) != 1 {
			t.Fatalf("%s: got %+v, %v; want one replica", key, r, err)
		}
		return r.Replicas[0].Segment
	}
	for _, c := range []struct {
		key, want string
		config    service.PutConfig
	}{
		{"first", "h2", service.PutConfig{HostID: "id-h2"}},
		{"preferred", "h3", service.PutConfig{HostID: "id-h2", Preferred: []string{"h3"}}},
		{"second", "h2", service.PutConfig{HostID: "id-h2"}},
	} {
		if got := put(c.key, c.config); got != c.want {
			t.Errorf("%s: got segment %s, want %s", c.key, got, c.want)
		}
	}
	if got := put("of the client's newest segment", service.PutConfig{}); got != "h3" {
		t.Errorf("without a host: got segment %s, want that of the client's newest segment, h3", got)
	}
	if got := put("full", service.PutConfig{HostID: "id-h2"}); got == "h2" {
		t.Error("a put went to a full host, want it elsewhere")
	}
	for i := range 100 {
		if err := f.MountSegment(t.Context(), segment.Spec{
			ID: segment.ID{100, byte(i)}, Name: fmt.Sprint("many", i), Base: uint64(i+1) << 40, Size: 1 << 10, Endpoint: "many:1", HostID: "many", Client: owner(3),
		}); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(f.Store.NamesOnHost(owner(3), "")); got != 64 {
		t.Errorf("of a host with 100 segments: got %d to try first, want 64", got)
	}
}
