package service

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/metadata"
)

// Tenants says whether calls are about the tenants that they name, and whether
// quotas bind those. Else every call is about the default tenant.
type Tenants bool

// Of returns the tenant whose keys a call is about; named is the one that it names, if any.
func (on Tenants) Of(named string) string {
	if !on || named == "" {
		return metadata.DefaultTenant
	}
	return named
}

// CheckTenant refuses a name that no tenant can have: one that begins with an underscore,
// or has control characters (C++ master), or is not UTF-8, which gRPC could not carry.
func CheckTenant(op, name string) error {
	if len(name) > metadata.MaxTenantBytes {
		return errs.New(errs.InvalidParams, op, "the tenant's name has %d bytes, at most %d are possible", len(name), metadata.MaxTenantBytes)
	}
	reserved := name != "" && name[0] == '_'
	for i := range len(name) {
		reserved = reserved || name[i] < 0x20 || name[i] == 0x7f
	}
	if reserved || !utf8.ValidString(name) {
		return errs.New(errs.InvalidParams, op, "the tenant's name is %q; it must be UTF-8, not begin with '_', and have no control characters", name)
	}
	return nil
}

// errTenantsOff is the answer about quotas while multi-tenancy is off.
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
		return commitOne(ctx, m, 16+len(tenant), func() (*metadata.SetQuota, error) { return m.Store.PrepareSetQuota(tenant, bytes) })
	})
}

// NeedsQuotas reports whether those of the policy file are still to be set.
func (m *Master) NeedsQuotas() bool {
	return len(m.InitialQuotas) > 0 && (!m.Store.HasQuotas() || m.Store.MoreQuotas())
}

// SeedQuotas sets quotas if there are none yet, or if a primary before has begun to. It
// waits for rules that know them, and goes on until all are set.
func (m *Master) SeedQuotas(ctx context.Context, log zerolog.Logger) error {
	if !m.NeedsQuotas() {
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

// seedQuotas sets those of the quotas that are not set. They may take several commits:
// until the last one the next primary goes on with them.
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
			if e != nil {
				e.More = true
			}
			return decided(e, nil, err)
		})
		if err := errors.Join(errorsOf(outcomes)...); err != nil {
			return err
		}
		return commitOne(ctx, m, 16+longest, func() (*metadata.SetQuota, error) {
			first, _ := m.Store.Quota(m.InitialQuotas[0].Tenant)
			return &metadata.SetQuota{Tenant: first.Tenant, Bytes: first.Requested}, nil
		})
	})
}

// EvictTenants evicts objects of each tenant that has more of its quota than
// TenantWatermark. It works until the context ends; without tenants it returns at once.
func (m *Master) EvictTenants(ctx context.Context, log zerolog.Logger) error {
	if !m.Tenants {
		return nil
	}
	return m.evictions.Run(ctx, log)
}

// quotaEvictions commits evictions for quotas as removals, see eviction.TenantJournal.
type quotaEvictions struct {
	m     *Master
	place *share.Budget // held while objects of a tenant are evicted, until that is applied
}

func (q quotaEvictions) Alone(ctx context.Context, f func(context.Context) error) error {
	return alone(ctx, "evictions for quotas", q.place, f)
}

func (q quotaEvictions) Evict(ctx context.Context, tenant string, next func(most int) ([]metadata.Drop, uint64)) (freed uint64, err error) {
	const each = 128 // bytes of one object in the journal, at most
	ticket, err := q.m.Queue.Admit(ctx, roundBytes)
	if err != nil {
		return 0, err
	}
	defer ticket.Release()
	drops, freed := next(roundBytes / each)
	if len(drops) == 0 {
		return 0, nil
	}
	changes := make([]metadata.Change, len(drops))
	for i, d := range drops {
		if changes[i] = d.Partial; d.Removal != nil {
			changes[i] = deleteevents.Of(deleteevents.EvictTenant, d.Removal)
		}
	}
	if _, err := ticket.Submit(ctx, changes...); err != nil {
		return 0, err
	}
	for _, c := range changes {
		q.m.Counters.committed(c)
	}
	q.m.Counters.Tenants.evicted(tenant, freed)
	return freed, nil
}

// TenantCounters count, on this node, ever, what quotas did to each tenant. They count the
// first maxCounted tenants each, and all others together, since tenants may come and go.
type TenantCounters struct {
	mu sync.Mutex // guards all
	by map[string]TenantCounts
}

const (
	maxCounted   = 1000
	otherTenants = "(others)" // as metrics call them
)

// TenantCounts are the counters of one tenant.
type TenantCounts struct {
	Rejected int64 // puts and copies
	Evicted  int64 // bytes
}

// All returns the counters of all tenants for which something was counted.
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
	if _, known := c.by[tenant]; !known && len(c.by) >= maxCounted {
		tenant = otherTenants
	}
	n := c.by[tenant]
	c.by[tenant] = TenantCounts{n.Rejected + more.Rejected, n.Evicted + more.Evicted}
}
