package service_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// atQuota returns a master with the segments x and y and a tenant that has used up its
// quota of 1,000 bytes, with objects on x that nobody has a lease on.
func atQuota(t *testing.T, items []service.PutItem) *fixture {
	t.Helper()
	f := newFixture(t, withTenants)
	f.mountNamed(t, 10, "x")
	f.mountNamed(t, 11, "y")
	f.quota(t, "default", 1000)
	for _, it := range items {
		p := start(1)
		p.Config.Preferred = []string{"x"}
		if _, err := f.PutStart(t.Context(), p, it); err != nil {
			t.Fatal(err)
		}
		if err := f.PutEnd(t.Context(), update(1), service.UpdateItem{Key: it.Key}); err != nil {
			t.Fatal(err)
		}
		f.p.Idle(time.Millisecond)
	}
	f.p.Pass(time.Minute)
	return f
}

func numbered(n int) (keys []string, items []service.PutItem) {
	for i := range n {
		keys = append(keys, fmt.Sprint("k", i))
		items = append(items, service.PutItem{Key: keys[i], Size: 100})
	}
	return keys, items
}

// A copy or a move for which its tenant's quota has no room makes room, as a put does. Its own
// object stays, also when it is the oldest.
func TestTransfersMakeRoomInTheQuota(t *testing.T) {
	keys, items := numbered(10)
	f := atQuota(t, items)
	_, err := f.MoveStart(t.Context(), transferOf(10, "k0", "x", "y"))
	want(t, "MoveStart of the oldest object", err, errs.OK)
	want(t, "MoveEnd", f.MoveEnd(t.Context(), transferOf(10, "k0", "")), errs.OK)
	if left := f.left(t, "default", keys...); !slices.Equal(left, slices.Delete(slices.Clone(keys), 1, 2)) {
		t.Errorf("after a move of k0 there are left %v, want all but k1", left)
	}
	f.p.Pass(time.Minute)
	want(t, "a copy of the oldest object", f.copyOf("k2", 10, "x", "y"), errs.OK) // into the room that the move has left
	want(t, "another copy", f.copyOf("k3", 10, "x", "y"), errs.OK)
	if left := f.left(t, "default", "k2", "k3", "k4", "k5"); !slices.Equal(left, []string{"k2", "k3", "k5"}) {
		t.Errorf("after copies of k2 and k3 there are left %v, want k4 gone, which is older than k2 by now", left)
	}
}

// Nothing is evicted for a move that does not fit beside its own object, nor from the group
// of that object.
func TestMovesThatNeverFitEvictNothing(t *testing.T) {
	for name, items := range map[string][]service.PutItem{
		"more than half of the quota": {{Key: "k0", Size: 600}, {Key: "k1", Size: 400}},
		"one group":                   {{Key: "k0", Size: 300, Group: "g"}, {Key: "k1", Size: 600, Group: "g"}},
	} {
		f := atQuota(t, items)
		_, err := f.MoveStart(t.Context(), transferOf(10, "k0", "x", "y"))
		want(t, name, err, errs.TenantQuotaExceeded)
		if left := f.left(t, "default", "k0", "k1"); len(left) != 2 {
			t.Errorf("%s: there are left %v, want both objects", name, left)
		}
		if got := f.Counters.Tenants.All()["default"]; got.Rejected != 1 || got.Evicted != 0 {
			t.Errorf("%s: got the counters %+v, want one rejection", name, got)
		}
	}
}

// The promotion of an object that is read again makes room in its tenant's quota.
func TestPromotionsMakeRoomInTheQuota(t *testing.T) {
	f := newFixture(t, withTenants, offloading(100), func(m *service.Master) {
		m.Promotion = service.Promotion{On: true, Threshold: 1, Limit: 1, PerHeartbeat: 1, Watermark: 1}
	})
	f.quota(t, "default", 1000)
	ctx := t.Context()
	f.putOnSSD(t, "a")
	keys, _ := numbered(10)
	f.put(t, keys...)
	f.p.Pass(time.Minute)
	for range 2 {
		if _, err := f.PromotionHeartbeat(ctx, owner(1)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.GetReplicaList(ctx, "default", "a"); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := f.PromotionStart(ctx, metadata.Promotion{Tenant: "default", Key: "a", Client: owner(1), Size: 100})
	want(t, "PromotionStart", err, errs.OK)
	if left := f.left(t, "default", keys...); len(left) != 9 {
		t.Errorf("there are left %v, want 9 of the other objects", left)
	}
}

// A drain of a tenant at its quota ends well.
func TestDrainOfATenantAtItsQuota(t *testing.T) {
	draining(t, func(t *testing.T, f *fixture) {
		f.quota(t, "default", 1000)
		keys, _ := numbered(10)
		f.putOn(t, "x", keys...)
		f.p.Pass(time.Minute)
		id, err := f.CreateDrainJob(t.Context(), metadata.Drain{Segments: []string{"x"}, Targets: []string{"y"}, Concurrency: 1})
		want(t, "CreateDrainJob", err, errs.OK)
		for f.drainJob(t, id).Status == metadata.DrainRunning {
			f.work(t, 10, false)
			time.Sleep(time.Second) // of the bubble: the job goes on
		}
		if d := f.drainJob(t, id); d.Status != metadata.DrainSucceeded || d.Succeeded != 9 {
			t.Errorf("got %+v, want it succeeded with 9 of 10 objects moved", d)
		}
		if left := f.left(t, "default", keys...); len(left) != 9 {
			t.Errorf("there are left %v, want all but the one that made room", left)
		}
	}, withTenants)
}

// A copy for which no segment has room asks for an eviction pass, as a put does. One for which
// another segment has room does not: objects everywhere would go.
func TestTransfersThatFindNoMemoryAskForEviction(t *testing.T) {
	f := newFixture(t)
	f.mountNamed(t, 10, "x")
	f.mountNamed(t, 11, "y")
	fill := func(name string) {
		p := start(1)
		p.Config.Preferred = []string{name}
		for i, size := range []uint64{1 << 18, 1 << 12, 100} {
			for n := 0; f.Store.HasRoom(size); n++ {
				got, err := f.PutStart(t.Context(), p, service.PutItem{Key: fmt.Sprint(name, i, "-", n), Size: size})
				if err != nil {
					t.Fatal(err)
				}
				if got.Replicas[0].Segment != name {
					break // it is full
				}
			}
		}
	}
	f.putOn(t, "x", "k")
	fill("y")
	want(t, "a copy to a full segment", f.copyOf("k", 10, "x", "y"), errs.NoAvailableHandle)
	if n := f.failed.Load(); n != 0 {
		t.Errorf("%d evictions were asked for while other segments have room, want none", n)
	}
	fill("a")
	fill("x")
	want(t, "a copy while all memory is full", f.copyOf("k", 10, "x", "y"), errs.NoAvailableHandle)
	if n := f.failed.Load(); n != 1 {
		t.Errorf("%d evictions were asked for, want 1", n)
	}
}
