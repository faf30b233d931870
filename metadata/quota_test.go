package metadata_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/metadata"
)

// setQuota commits a tenant's quota.
func (c *cluster) setQuota(tenant string, bytes uint64) error {
	c.t.Helper()
	e, err := c.primary.PrepareSetQuota(tenant, bytes)
	if err != nil {
		return err
	}
	return c.commit(e)[0]
}

func of(tenant string) func(*metadata.Put) {
	return func(p *metadata.Put) { p.Tenant, p.Metered = tenant, true }
}

func sized(n uint64) func(*metadata.Put) { return func(p *metadata.Put) { p.Size = n } }

func (c *cluster) endOf(tenant, key string) {
	c.t.Helper()
	ref := c.putRef(key)
	ref.Tenant = tenant
	c.must([]error{c.putEndAs(ref)})
}

func (c *cluster) wantCharged(tenant string, want uint64) {
	c.t.Helper()
	for what, s := range map[string]*metadata.Store{"primary": c.primary, "follower": c.follower} {
		if got, _ := s.Quota(tenant); got.Charged != want {
			c.t.Fatalf("%s: tenant %s is charged %d bytes, want %d", what, tenant, got.Charged, want)
		}
		if faults := s.ChargeFaults(); faults != nil {
			c.t.Fatalf("%s: got %v, want each tenant charged what its objects take", what, faults)
		}
	}
}

func TestQuotasAdmitPuts(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	wantKind(t, "no quota", c.putStart("k", of("red")), errs.TenantNotRegistered)
	c.must([]error{c.setQuota("red", 250), c.setQuota("blue", 100)})
	c.must([]error{c.putStart("k", of("red")), c.putStart("k", of("blue")), c.putStart("l", of("red"))})
	wantKind(t, "over the quota", c.putStart("m", of("red")), errs.TenantQuotaExceeded)
	wantKind(t, "more than can be", c.putStart("m", of("red"), func(p *metadata.Put) { p.Size, p.Replicas = 1<<62, 8 }), errs.TenantQuotaExceeded)
	c.must([]error{c.putStart("m", of("red"), sized(50))})
	c.wantCharged("red", 250)
	c.wantCharged("blue", 100)

	c.endOf("red", "k")
	ref := c.putRef("l")
	ref.Tenant = "red"
	c.must([]error{c.revokeAs(ref)})
	c.wantCharged("red", 150)
	up := func(p *metadata.Put) { p.Upsert = true }
	c.must([]error{c.putStart("k", of("red"), up)}) // in place
	c.endOf("red", "k")
	c.must([]error{c.putStart("k", of("red"), up, sized(200))}) // what goes is free for what comes
	c.wantCharged("red", 250)
	wantKind(t, "one byte more", c.putStart("k", of("red"), up, sized(201)), errs.TenantQuotaExceeded)
	c.must([]error{c.putStart("k")}) // the default tenant, not metered
	if got, _ := c.primary.Quota("default"); got.Charged != 100 || got.Registered() {
		t.Errorf("the default tenant: got %+v, want 100 bytes without a quota", got)
	}
}

// Prepared puts count for the quota before they are committed, until they are aborted.
func TestPreparedPutsHoldTheirQuota(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.must([]error{c.setQuota("red", 200)})
	first, err := c.preparePut("k", of("red"))
	c.must([]error{err})
	second, err := c.preparePut("l", of("red"))
	c.must([]error{err})
	_, err = c.preparePut("m", of("red"))
	wantKind(t, "two are prepared", err, errs.TenantQuotaExceeded)
	second.Abort(c.primary)
	c.must(c.commit(first))
	c.endOf("red", "k")

	c.mount(2, "b", 1<<20)
	copying := metadata.Transfer{Tenant: "red", Key: "k", Client: client(1), Source: "a", Targets: []string{"b"}, Metered: true}
	e, _, err := c.primary.PrepareTransfer(&copying)
	c.must([]error{err})
	wantKind(t, "a copy is prepared", c.putStart("m", of("red")), errs.TenantQuotaExceeded)
	c.must(c.commit(e))
	c.wantCharged("red", 200)
	end, _, err := c.primary.PrepareTransferEnd(&copying, false, c.now)
	c.must([]error{err})
	c.must(c.commit(end))
	c.must([]error{c.putStart("m", of("red"))})
	_, _, err = c.primary.PrepareTransfer(&copying)
	wantKind(t, "no room for a copy", err, errs.TenantQuotaExceeded)
	if n := c.primary.Prepared(); n != 0 {
		t.Errorf("got %d bytes prepared in the end, want none", n)
	}
	c.wantCharged("red", 200)
}

// An object may be evicted while the put that replaces it waits for its commit. The quota that it
// gives back belongs to the put.
func TestAPutKeepsWhatItReplaces(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.must([]error{c.setQuota("red", 200), c.putStart("k", of("red"))})
	c.endOf("red", "k")
	c.pass(time.Minute)
	c.must([]error{c.setQuota("red", 200)}) // a commit
	e, err := c.preparePut("k", of("red"), sized(150), func(p *metadata.Put) { p.Upsert = true })
	c.must([]error{err})
	if n := c.evict(eviction.Bounds{Objects: 1}); n != 1 {
		t.Fatalf("got %d objects evicted, want the one that is to be replaced", n)
	}
	wantKind(t, "what was evicted is spoken for", c.putStart("l", of("red"), sized(51)), errs.TenantQuotaExceeded)
	c.must([]error{c.putStart("l", of("red"), sized(50))})
	c.must(c.commit(e))
	c.wantCharged("red", 200)
}

func TestQuotasAreState(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.must([]error{c.setQuota("red", 300), c.setQuota("blue", 100), c.setQuota("blue", 200), c.setQuota("gone", 1), c.setQuota("gone", 0)})
	c.must(c.commit(&metadata.SetQuota{Tenant: "blue", Bytes: 200, More: true}))
	c.must([]error{c.putStart("k", of("red"))})
	c.endOf("red", "k")
	want := c.primary.Quotas()
	loaded, err := c.load(c.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]*metadata.Store{"follower": c.follower, "snapshot": loaded} {
		if got := s.Quotas(); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
		if !s.MoreQuotas() {
			t.Errorf("%s: got all quotas, want more to follow", what)
		}
	}
	c.takeOver(time.Second)
	c.must([]error{c.putStart("k", of("blue")), c.putStart("l", of("red"), sized(200))})
	wantKind(t, "after a takeover", c.putStart("m", of("red"), sized(1)), errs.TenantQuotaExceeded)
	c.unmount([16]byte{15: 1})
	for _, s := range []*metadata.Store{c.primary, c.follower} {
		s.Sweep(metadata.ShardCount)
	}
	c.wantCharged("red", 0)
}

func TestEffectiveQuotasShareTheMemory(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1000)
	c.must([]error{c.setQuota("a", 1000), c.setQuota("b", 1000), c.setQuota("c", 1000)})
	effective := func() (list []uint64) {
		for _, q := range c.primary.Quotas() {
			list = append(list, q.Effective)
		}
		return list
	}
	if got := effective(); got[0] != 334 || got[1] != 333 || got[2] != 333 {
		t.Errorf("three quotas of 1000 bytes, with 1000 in all: got %d, want 334, 333 and 333", got)
	}
	c.mount(2, "b", 2000)
	if got := effective(); got[0] != 1000 || got[2] != 1000 {
		t.Errorf("three quotas of 1000 bytes, with 3000 in all: got %d, want 1000 each", got)
	}
	c.must([]error{c.setQuota("a", metadata.MaxQuota), c.setQuota("b", metadata.MaxQuota), c.setQuota("c", metadata.MaxQuota)})
	sum := uint64(0)
	for _, n := range effective() {
		sum += n
	}
	if sum != c.primary.QuotaCapacity() || sum != 3000 {
		t.Errorf("the largest quotas: %d bytes in all, want 3000", sum)
	}
}

func TestQuotaRemoval(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	wantKind(t, "no quota", c.setQuota("red", 0), errs.ObjectNotFound)
	wantKind(t, "too large", c.setQuota("red", metadata.MaxQuota+1), errs.InvalidParams)
	c.must([]error{c.setQuota("red", 300), c.putStart("k", of("red"))})
	wantKind(t, "it has an object", c.setQuota("red", 0), errs.TenantNotEmpty)
	c.endOf("red", "k")
	removal, _, err := deleteevents.Prepare(c.primary, deleteevents.Request{Tenant: "red", Key: "k"}, c.now)
	c.must([]error{err})
	c.must(c.commit(removal))
	prepared, err := c.preparePut("l", of("red"))
	c.must([]error{err})
	wantKind(t, "a put is prepared", c.setQuota("red", 0), errs.TenantNotEmpty)
	prepared.Abort(c.primary)
	e, err := c.primary.PrepareSetQuota("red", 0)
	c.must([]error{err})
	wantKind(t, "the removal is prepared", c.putStart("l", of("red")), errs.TenantNotRegistered)
	e.Abort(c.primary)
	c.must([]error{c.putStart("l", of("red"))})
}

// There are no quotas under older rules, since older nodes could not read them.
func TestQuotasWaitForTheirRules(t *testing.T) {
	c := &cluster{t: t, primary: metadata.New(metadata.Options{}), follower: metadata.New(metadata.Options{}), now: 1000, term: 1}
	c.must(c.commit(&metadata.TermStart{Term: 1, Params: params}))
	c.must(c.commit(&metadata.UseRules{Version: 5}))
	wantKind(t, "rules 5", c.setQuota("red", 1), errs.Unavailable)
	if _, err := c.load(c.snapshot()); err != nil {
		t.Error(err)
	}
}
