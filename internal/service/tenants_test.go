package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

func wantKind(t *testing.T, err error, want errs.Kind) {
	t.Helper()
	if errs.KindOf(err) != want {
		t.Errorf("got %v, want %v", err, want)
	}
}

func withTenants(m *service.Master) { m.Tenants, m.EvictSoftPinned = true, true }

func (f *fixture) putFor(t testing.TB, tenant string, size uint64, keys ...string) error {
	t.Helper()
	p, items := start(1), make([]service.PutItem, len(keys))
	p.Tenant = tenant
	for i, key := range keys {
		items[i] = service.PutItem{Key: key, Size: size}
	}
	_, failed, err := f.BatchPutStart(t.Context(), p, items)
	if err != nil {
		return err
	}
	u, ends := update(1), []service.UpdateItem{}
	u.Tenant = tenant
	for i, e := range failed {
		if e == nil {
			ends = append(ends, service.UpdateItem{Key: keys[i]})
		} else {
			err = e
		}
	}
	if len(ends) > 0 {
		if _, e := f.BatchPutEnd(t.Context(), u, ends); e != nil {
			return e
		}
	}
	return err
}

func (f *fixture) quota(t testing.TB, tenant string, bytes uint64) {
	t.Helper()
	if err := f.SetQuota(t.Context(), tenant, bytes); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) left(t *testing.T, tenant string, keys ...string) (left []string) {
	t.Helper()
	for _, key := range keys {
		if _, err := f.Inspect(t.Context(), tenant, key); err == nil {
			left = append(left, key)
		}
	}
	return left
}

func TestQuotasEvictAndReject(t *testing.T) {
	f := newFixture(t, withTenants)
	wantKind(t, f.putFor(t, "red", 100, "k"), errs.TenantNotRegistered)
	f.quota(t, "red", 1000)
	f.quota(t, "blue", 1000)
	keys := make([]string, 10)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
		if err := f.putFor(t, "red", 100, keys[i]); err != nil {
			t.Fatal(err)
		}
		f.p.Idle(time.Millisecond)
	}
	if err := f.putFor(t, "blue", 100, keys...); err != nil {
		t.Fatal(err)
	}
	f.p.Pass(time.Minute)
	if err := f.putFor(t, "red", 150, "new"); err != nil {
		t.Fatalf("a put that needs the room of others: got %v, want an eviction and no error", err)
	}
	if left := f.left(t, "red", keys...); len(left) != 8 || left[0] != "k2" {
		t.Errorf("of the tenant's objects there are left %v, want all but the two oldest", left)
	}
	if left := f.left(t, "blue", keys...); len(left) != 10 {
		t.Errorf("of the other tenant's objects there are left %v, want all", left)
	}
	wantKind(t, f.putFor(t, "red", 1001, "large"), errs.TenantQuotaExceeded)
	if left := f.left(t, "red", keys...); len(left) != 8 {
		t.Errorf("a put that can never fit evicted objects: got %v, want all 8", left)
	}
	for _, key := range keys { // leases
		_, _ = f.GetReplicaList(t.Context(), "red", key)
	}
	if err := f.putFor(t, "red", 100, "a", "b", "c"); errs.KindOf(err) != errs.TenantQuotaExceeded {
		t.Errorf("all but one object are leased: got %v, want TenantQuotaExceeded", err)
	}
	got := f.Counters.Tenants.All()
	if got["red"].Evicted != 350 || got["red"].Rejected != 2 || got["blue"] != (service.TenantCounts{}) {
		t.Errorf("got the counters %+v, want 350 bytes evicted and 2 puts rejected of one tenant", got)
	}
}

func TestCallsOfTenants(t *testing.T) {
	f := newFixture(t)
	if err := f.SetQuota(t.Context(), "red", 1); errs.KindOf(err) != errs.NotSupported {
		t.Errorf("a quota while tenants are off: got %v, want NotSupported", err)
	}
	f = newFixture(t, withTenants)
	for _, name := range []string{"_red", "re\x00d", "\x7f", "m\xfcnchen"} {
		if err := f.SetQuota(t.Context(), name, 1); errs.KindOf(err) != errs.InvalidParams {
			t.Errorf("tenant %q: got %v, want InvalidParams", name, err)
		}
	}
	f.quota(t, "red", 1000)
	f.quota(t, "blue", 1000)
	for _, tenant := range []string{"red", "blue"} {
		if err := f.putFor(t, tenant, 100, "a1", "a2", "b"); err != nil {
			t.Fatal(err)
		}
	}
	keys, _, err := f.Keys(t.Context(), "red", "^a", true, service.Page{Size: 10})
	if err != nil || len(keys) != 2 {
		t.Errorf("got the keys %v, %v; want those of one tenant", keys, err)
	}
	if n, err := f.RemoveByRegex(t.Context(), service.RemoveRequest{Tenant: "red"}, "^a"); n.Removed != 2 || err != nil {
		t.Errorf("got %+v removed, %v; want 2 of one tenant", n, err)
	}
	if n, err := f.RemoveAll(t.Context(), service.RemoveRequest{Tenant: "red", Force: true}); n.Removed != 1 || err != nil {
		t.Errorf("got %+v removed, %v; want 1 of one tenant", n, err)
	}
	if left := f.left(t, "blue", "a1", "a2", "b"); len(left) != 3 {
		t.Errorf("of the other tenant there are left %v, want all", left)
	}
	f.quota(t, "red", 0)
	if err := f.SetQuota(t.Context(), "blue", 0); errs.KindOf(err) != errs.TenantNotEmpty {
		t.Errorf("the end of a quota in use: got %v, want TenantNotEmpty", err)
	}
	if n, err := f.RemoveAll(t.Context(), service.RemoveRequest{Force: true}); n.Removed != 3 || err != nil {
		t.Errorf("got %+v removed of all tenants, %v; want 3", n, err)
	}
}

// A removal of many objects is reported if it removed any.
func TestRemovalsAreReported(t *testing.T) {
	var reported []int
	f := newFixture(t, func(m *service.Master) {
		m.RemovedMany = func(_ service.RemoveRequest, _, _ string, n deleteevents.Result, _ error) {
			reported = append(reported, n.Removed)
		}
	})
	for range 2 {
		if _, err := f.RemoveAll(t.Context(), service.RemoveRequest{Force: true, From: "a host"}); err != nil {
			t.Fatal(err)
		}
		f.put(t, "a", "b")
	}
	if !slices.Equal(reported, []int{2}) {
		t.Errorf("removals of %v objects were reported, want one of 2", reported)
	}
}

// Quotas of the policy file are set once: what the API says later stays.
func TestInitialQuotas(t *testing.T) {
	f := newFixture(t, withTenants, func(m *service.Master) {
		m.InitialQuotas = []metadata.TenantQuota{{Tenant: "red", Requested: 100}, {Tenant: "blue", Requested: 200}}
	})
	for _, want := range []int{2, 1} {
		if err := f.SeedQuotas(t.Context(), zerolog.Nop()); err != nil {
			t.Fatal(err)
		}
		quotas, err := f.Quotas(t.Context())
		if err != nil || len(quotas) != want || quotas[0].Tenant != "blue" || quotas[0].Requested != 200 {
			t.Fatalf("got %+v, %v; want %d quotas", quotas, err, want)
		}
		if want == 2 {
			f.quota(t, "red", 0)
		}
	}
}

// A primary that ends between two commits of a long policy file leaves the rest to the
// next one.
func TestInitialQuotasAreSetInParts(t *testing.T) {
	quotas := make([]metadata.TenantQuota, 1000)
	for i := range quotas {
		quotas[i] = metadata.TenantQuota{Tenant: fmt.Sprint(strings.Repeat("t", 250), i), Requested: 100}
	}
	f := newFixture(t, withTenants, func(m *service.Master) { m.InitialQuotas = quotas })
	f.p.Commit(&metadata.SetQuota{Tenant: quotas[0].Tenant, Bytes: 100, More: true}, &metadata.SetQuota{Tenant: quotas[1].Tenant, Bytes: 7, More: true})
	for _, want := range []int{1000, 999} {
		if err := f.SeedQuotas(t.Context(), zerolog.Nop()); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Quotas(t.Context()); err != nil || len(got) != want || got[1].Requested != 7 {
			t.Fatalf("got %d quotas, %v; want %d, the second one of 7 bytes as it was set before", len(got), err, want)
		}
		if want == 1000 {
			f.quota(t, quotas[999].Tenant, 0)
		}
	}
}

// A failure in between leaves no tenant of the policy file without its quota.
func TestInitialQuotasAreSetTogether(t *testing.T) {
	var fences atomic.Int32
	f := newFixture(t, withTenants, func(m *service.Master) {
		m.InitialQuotas = []metadata.TenantQuota{{Tenant: "red", Requested: 100}, {Tenant: "blue", Requested: 200}}
		m.Fence = func(context.Context) error {
			if fences.Add(1) == 2 {
				return errs.Unavailable
			}
			return nil
		}
	})
	if err := f.SeedQuotas(t.Context(), zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	if quotas, err := f.Quotas(t.Context()); err == nil && len(quotas) != 2 {
		t.Errorf("got %+v, want two quotas", quotas)
	}
}

// Puts that are decided at the same time do not pass a quota together, whether they
// evict each other's objects or not.
func TestPutsAtOnceKeepToTheQuota(t *testing.T) {
	f := newFixture(t, withTenants)
	f.quota(t, "red", 1000)
	batch := make([]string, 20)
	for i := range batch {
		batch[i] = fmt.Sprint("batch", i)
	}
	wantKind(t, f.putFor(t, "red", 100, batch...), errs.TenantQuotaExceeded)
	if q, _ := f.Store.Quota("red"); q.Charged != 1000 {
		t.Errorf("a batch of twice the quota: the tenant has %d bytes, want 1000", q.Charged)
	}
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range 20 {
				key := fmt.Sprint(w, "-", i)
				if err := f.putFor(t, "red", 100, key, key+"a", key+"b", key+"c"); err != nil && errs.KindOf(err) != errs.TenantQuotaExceeded {
					t.Errorf("got %v, want no error or TenantQuotaExceeded", err)
				}
				f.p.Idle(time.Millisecond)
			}
		})
	}
	writers.Wait()
	if q, _ := f.Store.Quota("red"); q.Charged < 600 || q.Charged > 1000 {
		t.Errorf("the tenant has %d bytes in the end, want most of 1000", q.Charged)
	}
}
