package eviction_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/metadata"
)

// A tenantJournal commits what a TenantLoop decides.
type tenantJournal struct {
	p       *lonetest.Primary
	mu      sync.Mutex // Alone
	fails   int        // how many of the next evictions fail
	commits int
}

func (j *tenantJournal) Alone(ctx context.Context, f func(context.Context) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return f(ctx)
}

func (j *tenantJournal) Evict(ctx context.Context, _ string, next func(int) ([]metadata.Drop, uint64)) (uint64, error) {
	if j.fails > 0 {
		j.fails--
		return 0, errs.Unavailable
	}
	drops, freed := next(9)
	if len(drops) == 0 {
		return 0, nil
	}
	j.commits++
	_, err := j.p.Queue.Submit(ctx, changesOf(drops)...)
	return freed, err
}

func changesOf(drops []metadata.Drop) []metadata.Change {
	changes := make([]metadata.Change, len(drops))
	for i, d := range drops {
		if changes[i] = d.Partial; d.Removal != nil {
			changes[i] = deleteevents.Of(deleteevents.EvictTenant, d.Removal)
		}
	}
	return changes
}

// tenants returns a primary on which the default tenant has a quota of 1,000 bytes, and a loop
// that keeps tenants below nine tenths of theirs.
func tenants(t *testing.T) (*lonetest.Primary, *tenantJournal, *eviction.TenantLoop) {
	t.Helper()
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Commit(&metadata.SetQuota{Tenant: metadata.DefaultTenant, Bytes: 1000})
	j := &tenantJournal{p: p}
	return p, j, eviction.NewTenantLoop(&eviction.TenantLoop{Store: p.Store, Journal: j, Now: p.Now, Watermark: 0.9, Ratio: 0.1})
}

// putFor puts objects of a tenant.
func putFor(p *lonetest.Primary, tenant string, keys ...string) {
	for _, key := range keys {
		p.Commit(p.PutStart(func(put *metadata.Put) { put.Tenant = tenant }, key))
		ref := p.Ref(key)
		ref.Tenant = tenant
		e, _, _ := p.Store.PreparePutEnd(ref, nil)
		p.Commit(e)
	}
}

func charged(p *lonetest.Primary, tenant string) uint64 {
	q, _ := p.Store.Quota(tenant)
	return q.Charged
}

// retry has a put of 100 bytes that was refused tried again for as long as it is, and returns how
// often it was.
func retry(t *testing.T, l *eviction.TenantLoop, tenant string, refused func() bool) (n int) {
	t.Helper()
	l.Retry(t.Context(), tenant, func(uint64) (uint64, metadata.ObjectID) {
		if refused() {
			return 100, 0
		}
		return 0, 0
	}, func() { n++ })
	return n
}

func always() bool { return true }

// A tenant above its watermark loses objects each second, down to the ratio below it. An error in
// between is made good a second later. One that is at its watermark loses nothing.
func TestTenantsStayBelowTheirWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, j, l := tenants(t)
		p.Commit(&metadata.SetQuota{Tenant: "blue", Bytes: 1000})
		p.Put(nil, lonetest.Keys("k", 10)...)
		putFor(p, "blue", lonetest.Keys("k", 9)...)
		p.Pass(time.Minute)
		j.fails = 1
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx, zerolog.Nop()) }()
		for _, want := range []uint64{1000, 800, 800} {
			time.Sleep(time.Second) // of the bubble
			synctest.Wait()
			if got := charged(p, metadata.DefaultTenant); got != want {
				t.Errorf("%d bytes are left, want %d", got, want)
			}
		}
		if got := charged(p, "blue"); got != 900 {
			t.Errorf("of a tenant at its watermark %d bytes are left, want all 900", got)
		}
		cancel()
		if err := <-done; err == nil {
			t.Error("the loop ended before its context")
		}
	})
}

// What a quota refused is tried again twice, each time after an eviction, and no more when it is
// refused no longer.
func TestARefusedPutIsTriedTwiceMore(t *testing.T) {
	p, j, l := tenants(t)
	keys := lonetest.Keys("k", 10)
	p.Put(nil, keys...)
	p.Pass(time.Minute)
	if n := retry(t, l, metadata.DefaultTenant, func() bool { return j.commits == 0 }); n != 1 || p.Alive(keys...) != 9 {
		t.Errorf("it was tried %d times again, and %d objects are left; want once, and 9", n, p.Alive(keys...))
	}
	if n := retry(t, l, metadata.DefaultTenant, always); n != 2 || j.commits != 1 {
		t.Errorf("it was tried %d times again after %d evictions; want twice, and one eviction as there is room", n, j.commits)
	}
	j.fails = 1
	p.Put(nil, "new")
	if n := retry(t, l, metadata.DefaultTenant, always); n != 0 {
		t.Errorf("it was tried %d times again after no eviction, want none", n)
	}
}

// A tenant all of whose objects are kept is not looked through for each put.
func TestFutileSearchesAreApart(t *testing.T) {
	p, _, l := tenants(t)
	p.Commit(&metadata.SetQuota{Tenant: metadata.DefaultTenant, Bytes: 100_000})
	p.Put(inGroup("g"), lonetest.Keys("member", 1000)...)
	p.Pass(time.Minute)
	p.Get("member7")
	if n := retry(t, l, metadata.DefaultTenant, always); n != 0 {
		t.Errorf("while all objects are kept, it was tried %d times again, want none", n)
	}
	p.Commit(&metadata.SetQuota{Tenant: metadata.DefaultTenant, Bytes: 100_100})
	p.Put(nil, "old")
	if retry(t, l, metadata.DefaultTenant, always); p.Alive("old") != 1 {
		t.Error("an object was searched for right after a search through 1,000 objects")
	}
	p.Pass(2 * time.Millisecond)
	if n := retry(t, l, metadata.DefaultTenant, always); n == 0 || p.Alive("old") != 0 {
		t.Error("2 ms after the search through 1,000 objects no other object was evicted")
	}
}
