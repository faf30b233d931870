package service_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// A client that never asks for promotions takes no room from those that do.
func TestNothingWaitsForClientsThatDoNotPromote(t *testing.T) {
	f := newFixture(t, offloading(100), func(m *service.Master) {
		m.Promotion = service.Promotion{On: true, Threshold: 1, Limit: 1, PerHeartbeat: 1, Watermark: 1}
	})
	ctx := t.Context()
	f.putOnSSD(t, "a")
	for range 2 {
		if got, err := f.GetReplicaList(ctx, metadata.DefaultTenant, "a"); err != nil || len(got.Replicas) != 1 {
			t.Fatalf("got %+v, %v; want the SSD alone", got, err)
		}
		if n := f.Counters.Promotions.InFlight.Load(); n != 0 {
			t.Errorf("a client that never asks for promotions: got %d in flight for it, want 0", n)
		}
	}
	for _, want := range []int{0, 1} {
		list, err := f.PromotionHeartbeat(ctx, owner(1))
		if err != nil || len(list) != want {
			t.Errorf("got %+v, %v; want %d tasks", list, err, want)
		}
		_, _ = f.GetReplicaList(ctx, metadata.DefaultTenant, "a")
	}
}

// A client that asked once and asks no more holds no room for good.
func TestPromotionsThatWaitExpire(t *testing.T) {
	f := newFixture(t, offloading(100), func(m *service.Master) {
		m.Promotion = service.Promotion{On: true, Threshold: 1, Limit: 1, PerHeartbeat: 1, Watermark: 1}
	})
	ctx := t.Context()
	f.putOnSSD(t, "a", "b")
	if _, err := f.PromotionHeartbeat(ctx, owner(1)); err != nil {
		t.Fatal(err)
	}
	read := func(key string) {
		if _, err := f.GetReplicaList(ctx, metadata.DefaultTenant, key); err != nil {
			t.Fatal(err)
		}
	}
	read("a")
	f.p.Pass(params.ReleaseTimeout - time.Second)
	read("b")
	c := &f.Counters.Promotions
	if admitted, rejected := c.Admitted.Load(), c.RejectedCap.Load(); admitted != 1 || rejected != 1 {
		t.Fatalf("%d promotions admitted and %d rejected, want one each: there is room for one", admitted, rejected)
	}
	f.p.Pass(2 * time.Second)
	read("b")
	if admitted, expired, inFlight := c.Admitted.Load(), c.Expired.Load(), c.InFlight.Load(); admitted != 2 || expired != 1 || inFlight != 1 {
		t.Errorf("%d promotions admitted, %d expired, %d in flight; want 2, 1, 1: the first has waited for too long", admitted, expired, inFlight)
	}
}

// Where an object lives as long as its lease, a promoted one has one, as after a put.
func TestAPromotedObjectLivesUnderTheExpiryPolicy(t *testing.T) {
	life := params
	life.LeaseOnPutEnd = true
	f := newFixtureOf(t, life, offloading(100), func(m *service.Master) {
		m.Promotion = service.Promotion{On: true, Threshold: 1, Limit: 1, PerHeartbeat: 1, Watermark: 1}
	})
	ctx := t.Context()
	f.mountDisk(t, 1, true)
	f.put(t, "a")
	if err := f.NotifyOffloaded(ctx, owner(1), copied(tasks(t, f.Master)...)); err != nil {
		t.Fatal(err)
	}
	loop := eviction.NewLoop(&eviction.Loop{
		Store: f.Store, Journal: f.p.Queue, Policy: eviction.Expiry{}, Now: f.Now, Counters: new(eviction.Counters),
	})
	round := func() int {
		n, err := loop.Round(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	f.p.Pass(time.Minute)
	if n := round(); n != 1 {
		t.Fatalf("%d evicted, want the object from memory", n)
	}
	if _, err := f.PromotionHeartbeat(ctx, owner(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.GetReplicaList(ctx, metadata.DefaultTenant, "a"); err != nil {
		t.Fatal(err)
	}
	list, err := f.PromotionHeartbeat(ctx, owner(1))
	if err != nil || len(list) != 1 {
		t.Fatalf("got %+v, %v; want a task", list, err)
	}
	if _, _, err := f.PromotionStart(ctx, metadata.Promotion{Tenant: metadata.DefaultTenant, Key: "a", Client: owner(1), Size: 100}); err != nil {
		t.Fatal(err)
	}
	f.p.Pass(time.Minute) // the copy takes longer than the reader's lease
	want(t, "the end of the promotion", f.PromotionEnd(ctx, metadata.DefaultTenant, "a", owner(1), true), errs.OK)
	f.p.Pass(time.Second)
	if n := round(); n != 0 {
		t.Errorf("a promoted object, one second later: got %d evicted, want 0: it has a lease, as after a put", n)
	}
	f.p.Pass(time.Minute)
	if n := round(); n != 1 {
		t.Errorf("%d evicted when the lease has ended, want the object", n)
	}
}

// putOnSSD puts objects that lie on the SSD of client 1 alone.
func (f *fixture) putOnSSD(t *testing.T, keys ...string) {
	t.Helper()
	f.mountDisk(t, 1, true)
	f.put(t, keys...)
	if err := f.NotifyOffloaded(t.Context(), owner(1), copied(tasks(t, f.Master)...)); err != nil {
		t.Fatal(err)
	}
	name := f.Store.Segments()[0].Name
	if _, err := f.BatchReplicaClear(t.Context(), metadata.DefaultTenant, keys, owner(1), name); err != nil {
		t.Fatal(err)
	}
}

// A read of an object that might be promoted does not wait while a commit is applied: reads are
// answered on the loops of connections.
func TestReadsThatMayPromoteWaitForNoCommit(t *testing.T) {
	f := newFixture(t, offloading(100), func(m *service.Master) {
		m.Promotion = service.Promotion{On: true, Threshold: 1, Limit: 1, PerHeartbeat: 1, Watermark: 1}
	})
	f.putOnSSD(t, "a")
	f.Store.WithEvictable(func(metadata.Evictable) { // as while a commit is applied
		done := make(chan error, 1)
		go func() {
			_, err := f.GetReplicaList(t.Context(), metadata.DefaultTenant, "a")
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the read waits for the commit, want it answered")
		}
	})
}
