package service_test

import (
	"testing"

	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// A client that never asks for promotions takes no room from those that do.
func TestNothingWaitsForClientsThatDoNotPromote(t *testing.T) {
	f := newFixture(t, offloading(100), func(m *service.Master) {
		m.Promotion = service.Promotion{On: true, Threshold: 1, Limit: 1, PerHeartbeat: 1, Watermark: 1}
	})
	ctx := t.Context()
	f.mountDisk(t, 1, true)
	f.put(t, "a")
	if err := f.NotifyOffloaded(ctx, owner(1), copied(tasks(t, f.Master)...)); err != nil {
		t.Fatal(err)
	}
	name := f.Store.Segments()[0].Name
	if _, err := f.BatchReplicaClear(ctx, metadata.DefaultTenant, []string{"a"}, owner(1), name); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := f.GetReplicaList(ctx, metadata.DefaultTenant, "a"); err != nil || len(got.Replicas) != 1 {
			t.Fatalf("got %+v, %v; want the SSD alone", got, err)
		}
		if n := f.Counters.Promotions.InFlight.Load(); n != 0 {
			t.Errorf("%d promotions wait for a client that asks for none", n)
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
