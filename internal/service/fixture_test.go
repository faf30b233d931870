package service_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/lab/lonetest"
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

func newFixture(t testing.TB, change ...func(*service.Master)) *fixture {
	t.Helper()
	return newFixtureOf(t, params, change...)
}

// newFixtureOf is newFixture for other parameters of the term.
func newFixtureOf(t testing.TB, params metadata.Params, change ...func(*service.Master)) *fixture {
	t.Helper()
	f := &fixture{p: lonetest.Start(t, metadata.Options{}, params, 1<<20)}
	c := service.Master{
		Settings: service.Settings{ClusterID: "c", SoftPinTTL: 30 * time.Minute, MaxSoftPin: 24 * time.Hour, Version: "test"},
		Term:     1, Store: f.p.Store, Leases: f.p.Leases, Queue: f.p.Queue, Now: f.p.Now,
		Fence: func(context.Context) error {
			if f.fenced.Load() {
				return errs.NotLeader
			}
			return nil
		},
		Answers:  func() bool { return !f.fenced.Load() },
		Liveness: service.NewLiveness(10*time.Second, 0, func() time.Duration { return time.Duration(f.clock.Load()) }, f.p.Store),
		Counters: service.NewCounters(), AllocationFailed: func(_ uint64, asOf metadata.Time) {
			f.failed.Add(1)
			if asOf == 0 || asOf > f.p.Store.Time() {
				t.Errorf("a put was tried on the store as of %d, which is at %d; want no later time, above 0", asOf, f.p.Store.Time())
			}
		},
	}
	for _, fn := range change {
		fn(&c)
	}
	f.Master = service.NewMaster(c)
	return f
}

func owner(n byte) segment.ClientID { return segment.ClientID{n} }

func start(n byte) service.PutRequest {
	return service.PutRequest{Tenant: "default", Client: owner(n), Config: service.PutConfig{Replicas: 1}}
}

func update(n byte) service.UpdateRequest {
	return service.UpdateRequest{Tenant: "default", Client: owner(n), Selector: metadata.SelectMemory}
}

func (f *fixture) put(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if _, err := f.PutStart(t.Context(), start(1), service.PutItem{Key: key, Size: 100}); err != nil {
			t.Fatal(err)
		}
		if err := f.PutEnd(t.Context(), update(1), service.UpdateItem{Key: key}); err != nil {
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
