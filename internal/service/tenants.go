package service

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
)

// Tenants says whether calls are about the tenants that they name, and whether
// quotas bind those. Else every call is about the default tenant.
type Tenants bool

// Of returns whose keys a call is about that names a tenant, or none.
func (on Tenants) Of(named string) string {
	if !on || named == "" {
		return metadata.DefaultTenant
	}
	return named
}

// CheckTenant refuses a name that no tenant can have (C++ master): one that begins
// with an underscore, or has control characters.
func CheckTenant(op, name string) error {
	if len(name) > metadata.MaxTenantBytes {
		return errs.New(errs.InvalidParams, op, "the tenant's name has %d bytes, at most %d are possible", len(name), metadata.MaxTenantBytes)
	}
	reserved := name != "" && name[0] == '_'
	for i := range len(name) {
		reserved = reserved || name[i] < 0x20 || name[i] == 0x7f
	}
	if reserved {
		return errs.New(errs.InvalidParams, op, "the tenant's name is %q; it must not begin with '_', nor have control characters", name)
	}
	return nil
}

// quotaRounds is how often a put that breaks its tenant's quota has objects of the
// tenant evicted and is tried again (C++ master).
const quotaRounds = 2

// errTenantsOff is the answer about quotas while multi-tenancy is off. Its number
// is that of the C++ master's UNAVAILABLE_IN_CURRENT_MODE.
var errTenantsOff = errs.New(errs.NotSupported, "Quotas", "multi-tenancy is off (--enable_multi_tenants)")

// Quotas returns the tenants that have a quota, or objects in memory, by name. It
// fails with NotSupported while multi-tenancy is off.
func (m *Master) Quotas(ctx context.Context) ([]metadata.TenantQuota, error) {
	if !m.Tenants {
		return nil, errTenantsOff
	}
	return m.Store.Quotas(), m.Fence(ctx)
}

// SetQuota lets a tenant have so many bytes in memory, or makes it unknown for 0.
// Objects that are there already stay until they are evicted. Errors: NotSupported
// while multi-tenancy is off, and those of metadata.Store.PrepareSetQuota.
func (m *Master) SetQuota(ctx context.Context, tenant string, bytes uint64) error {
	if !m.Tenants {
		return errTenantsOff
	}
	if err := m.Fence(ctx); err != nil {
		return err
	}
	if err := CheckTenant("SetQuota", tenant); err != nil {
		return err
	}
	return alone(ctx, "quotas", m.quotas, func(ctx context.Context) error {
		return m.commitOne(ctx, 16+len(tenant), func() (metadata.Change, error) {
			e, err := m.Store.PrepareSetQuota(tenant, bytes)
			if e == nil {
				return nil, err
			}
			return e, nil
		})
	})
}

// SeedQuotas sets quotas if there are none yet. It waits for rules that know them, and
// once it has begun it goes on until all are set.
func (m *Master) SeedQuotas(ctx context.Context, log zerolog.Logger) error {
	if len(m.InitialQuotas) == 0 || m.Store.HasQuotas() {
		return nil
	}
	for {
		err := m.seedQuotas(ctx)
		if err == nil {
			log.Info().Int("tenants", len(m.InitialQuotas)).Msg("set the quotas of the policy file, as there were none")
			return nil
		}
		if err := clock.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// seedQuotas sets those of the quotas that are not set, as one submission if they fit:
// the next primary would not go on where there are some.
func (m *Master) seedQuotas(ctx context.Context) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	longest := 0
	for _, q := range m.InitialQuotas {
		if err := CheckTenant("SetQuota", q.Tenant); err != nil {
			return err
		}
		longest = max(longest, len(q.Tenant))
	}
	return alone(ctx, "quotas", m.quotas, func(ctx context.Context) error {
		outcomes := m.commit(ctx, len(m.InitialQuotas), 16+longest, func(i int, _ metadata.Time) (metadata.Change, <-chan struct{}, error) {
			q := m.InitialQuotas[i]
			if now, _ := m.Store.Quota(q.Tenant); now.Registered() {
				return nil, nil, nil
			}
			e, err := m.Store.PrepareSetQuota(q.Tenant, q.Requested)
			return decided(e, nil, err)
		})
		return errors.Join(errorsOf(outcomes)...)
	})
}

// retryOverQuota evicts objects of a tenant for puts that broke its quota, and makes
// those puts again. want returns the bytes of an item.
func (m *Master) retryOverQuota(ctx context.Context, tenant string, outcomes []outcome, want func(i int) uint64, again func(items []int) []outcome) {
	if !m.Tenants {
		return
	}
	for range quotaRounds {
		quota, _ := m.Store.Quota(tenant)
		var over []int
		wanted := uint64(0)
		for i := range outcomes {
			if n := want(i); errs.KindOf(outcomes[i].err) == errs.TenantQuotaExceeded && n <= quota.Effective {
				over = append(over, i)
				wanted = min(wanted+n, quota.Effective)
			}
		}
		if len(over) == 0 || m.makeRoom(ctx, tenant, wanted) != nil {
			break
		}
		for k, o := range again(over) {
			outcomes[over[k]] = o
		}
	}
	for i := range outcomes {
		if errs.KindOf(outcomes[i].err) == errs.TenantQuotaExceeded {
			m.Counters.Tenants.rejected(tenant)
		}
	}
}

// makeRoom evicts objects of a tenant until its quota has room for more bytes.
func (m *Master) makeRoom(ctx context.Context, tenant string, bytes uint64) error {
	return alone(ctx, "evictions for quotas", m.evictions, func(ctx context.Context) error {
		q, _ := m.Store.Quota(tenant)
		if q.Charged+bytes <= q.Effective {
			return nil // somebody else's eviction did
		}
		_, err := m.evictTenant(ctx, tenant, q.Charged+bytes-q.Effective)
		return err
	})
}

// maxSpares bounds the objects that are chosen from for one eviction.
const maxSpares = 1 << 15

// evictTenant evicts objects of a tenant that hold so many bytes, if there are. It
// looks for some more, in shards from a random one on, and takes those whose leases
// ended first; softly pinned ones only where the others do not
// suffice.
func (m *Master) evictTenant(ctx context.Context, tenant string, bytes uint64) (freed uint64, err error) {
	const choice, least = 4, 64 // times as many bytes, and objects
	now, first := m.Now(), rand.IntN(metadata.ShardCount)
	var spares []metadata.Spare
	plain := uint64(0)
	for i := 0; i < metadata.ShardCount && (plain/choice < bytes || len(spares) < least) && len(spares) < maxSpares; i++ {
		seen := len(spares)
		spares = m.Store.Spares(spares, tenant, (first+i)%metadata.ShardCount, now)
		for _, s := range spares[seen:] {
			if !s.SoftPinned {
				plain += s.Bytes
			}
		}
	}
	slices.SortFunc(spares, func(a, b metadata.Spare) int {
		if a.SoftPinned != b.SoftPinned {
			if a.SoftPinned {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(a.KeptUntil, b.KeptUntil), cmp.Compare(a.ID, b.ID))
	})
	if !m.EvictSoftPinned {
		spares = slices.DeleteFunc(spares, func(s metadata.Spare) bool { return s.SoftPinned })
	}
	for freed < bytes && len(spares) > 0 && err == nil {
		var n uint64
		spares, n, err = m.evictSome(ctx, spares, bytes-freed)
		freed += n
	}
	m.Counters.Tenants.evicted(tenant, freed)
	return freed, err
}

// evictSome evicts the first of some objects, with their groups, as one submission. It
// returns those that it has not looked at.
func (m *Master) evictSome(ctx context.Context, spares []metadata.Spare, bytes uint64) (rest []metadata.Spare, freed uint64, err error) {
	const each = 128 // bytes of one object in the journal, at most
	ticket, err := m.Queue.Admit(ctx, roundBytes)
	if err != nil {
		return spares, 0, err
	}
	defer ticket.Release()
	now := m.Now()
	var changes []metadata.Change
	for freed < bytes && len(spares) > 0 && len(changes) < roundBytes/each/2 {
		s := spares[0]
		spares = spares[1:]
		drops, n := m.Store.PrepareEvict(s.Ref, s.SoftPinned, roundBytes/each-len(changes), now)
		for _, d := range drops {
			if d.Removal != nil {
				changes = append(changes, deleteevents.Of(deleteevents.EvictTenant, d.Removal))
			} else {
				changes = append(changes, d.Partial)
			}
		}
		freed += n
	}
	if len(changes) == 0 {
		return spares, 0, nil
	}
	if _, err := ticket.Submit(ctx, changes...); err != nil {
		return spares, 0, err
	}
	for _, c := range changes {
		m.Counters.committed(c)
	}
	return spares, freed, nil
}

// tenantTick is how often tenants are looked at that have much of their quota.
const tenantTick = time.Second

// EvictTenants evicts objects of each tenant that has more of its quota than
// TenantWatermark, down to TenantRatio below that. It works until the context ends.
func (m *Master) EvictTenants(ctx context.Context, log zerolog.Logger) error {
	if !m.Tenants || m.TenantWatermark == 0 {
		return nil
	}
	for {
		if err := clock.Sleep(ctx, tenantTick); err != nil {
			return err
		}
		for _, q := range m.Store.Quotas() {
			if err := m.keepBelow(ctx, q); err != nil && errs.KindOf(err) != errs.NotLeader && ctx.Err() == nil {
				log.Warn().Err(err).Str("tenant", q.Tenant).Msg("eviction for a quota failed and will be tried again")
			}
		}
	}
}

func (m *Master) keepBelow(ctx context.Context, q metadata.TenantQuota) error {
	if !q.Registered() || float64(q.Charged) <= m.TenantWatermark*float64(q.Effective) {
		return nil
	}
	aim := uint64(max(0, m.TenantWatermark-m.TenantRatio) * float64(q.Effective))
	return alone(ctx, "evictions for quotas", m.evictions, func(ctx context.Context) error {
		_, err := m.evictTenant(ctx, q.Tenant, q.Charged-aim)
		return err
	})
}

// memoryOf returns the bytes that replicas of a size take, at most metadata.MaxQuota.
func memoryOf(size uint64, replicas int) uint64 {
	hi, lo := bits.Mul64(size, uint64(replicas))
	if hi > 0 {
		return metadata.MaxQuota
	}
	return min(lo, metadata.MaxQuota)
}

// TenantCounters count, on this node, ever, what quotas did to each tenant.
type TenantCounters struct {
	mu sync.Mutex // guards all
	by map[string]TenantCounts
}

// TenantCounts are the counters of one tenant.
type TenantCounts struct {
	Rejected int64 // puts and copies
	Evicted  int64 // bytes
}

// All returns the counters of all tenants that there is something to count of.
func (c *TenantCounters) All() map[string]TenantCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.by)
}

func (c *TenantCounters) rejected(tenant string) { c.count(tenant, TenantCounts{Rejected: 1}) }

func (c *TenantCounters) evicted(tenant string, bytes uint64) {
	if bytes > 0 {
		c.count(tenant, TenantCounts{Evicted: int64(bytes)})
	}
}

func (c *TenantCounters) count(tenant string, more TenantCounts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = make(map[string]TenantCounts)
	}
	n, known := c.by[tenant]
	if !known && len(c.by) >= metadata.MaxQuotas {
		return // of tenants that come and go
	}
	c.by[tenant] = TenantCounts{n.Rejected + more.Rejected, n.Evicted + more.Evicted}
}
