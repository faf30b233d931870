package service

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
)

// quotaRounds is how often a put that breaks its tenant's quota has objects of the
// tenant evicted and is tried again (C++ master).
const quotaRounds = 2

// retryOverQuota evicts objects of a tenant for puts that broke its quota, and makes
// those puts again.
func (m *Master) retryOverQuota(ctx context.Context, p PutRequest, items []PutItem, outcomes []outcome, reserve prepare) {
	if !m.Tenants {
		return
	}
	tenant := p.Tenant
	for range quotaRounds {
		quota, _ := m.Store.Quota(tenant)
		var over []int
		wanted := uint64(0)
		for i := range outcomes {
			if n := metadata.MemoryOf(items[i].Size, uint64(p.Config.Replicas)); errs.KindOf(outcomes[i].err) == errs.TenantQuotaExceeded && n <= quota.Effective {
				over = append(over, i)
				wanted = min(wanted+n, quota.Effective)
			}
		}
		if len(over) == 0 || m.makeRoom(ctx, tenant, wanted, 0) != nil {
			break
		}
		again := func(k int, now metadata.Time) (metadata.Change, <-chan struct{}, error) { return reserve(over[k], now) }
		for k, o := range m.commit(ctx, len(over), m.putBytes(p, items), again) {
			outcomes[over[k]] = o
		}
	}
	for i := range outcomes {
		if errs.KindOf(outcomes[i].err) == errs.TenantQuotaExceeded {
			m.Counters.Tenants.rejected(tenant)
		}
	}
}

// startWithRoom commits the start of a transfer. When it breaks its tenant's quota, other
// objects of the tenant are evicted and it is tried again, as a put is. Nothing is evicted
// for a transfer for which there would be no room either if its object were alone.
func (m *Master) startWithRoom(ctx context.Context, tenant string, bytes int, start func() (*metadata.StartTransfer, <-chan struct{}, error)) outcome {
	commit := func() outcome {
		asOf := m.Store.Time()
		return m.commit(ctx, 1, bytes, func(int, metadata.Time) (metadata.Change, <-chan struct{}, error) {
			e, wait, err := start()
			m.noteTransfer(err, asOf)
			return decided(e, wait, err)
		})[0]
	}
	o := commit()
	for range quotaRounds {
		var no *metadata.NoRoomError
		if errs.KindOf(o.err) != errs.TenantQuotaExceeded || !errors.As(o.err, &no) {
			return o
		}
		quota, _ := m.Store.Quota(tenant)
		if no.Wanted > quota.Effective || no.Kept > quota.Effective-no.Wanted || m.makeRoom(ctx, tenant, no.Wanted, no.ID) != nil {
			break
		}
		o = commit()
	}
	if errs.KindOf(o.err) == errs.TenantQuotaExceeded {
		m.Counters.Tenants.rejected(tenant)
	}
	return o
}

// noteTransfer asks for an eviction pass, as a put does, if a transfer found no memory. If
// another segment has room for a copy, it does not: a pass goes by age, and would take
// objects everywhere until one segment has room.
func (m *Master) noteTransfer(err error, asOf metadata.Time) {
	if no, ok := errors.AsType[*metadata.NoRoomError](err); ok && errs.KindOf(err) == errs.NoAvailableHandle && m.Store.CouldHold(no.Size, 1) && !m.Store.HasRoom(no.Size) {
		m.AllocationFailed(no.Size, asOf)
	}
}

// makeRoom evicts objects of a tenant, but for one to spare, until its quota has room for
// more bytes. It fails with TenantQuotaExceeded if there is nothing to evict.
func (m *Master) makeRoom(ctx context.Context, tenant string, bytes uint64, spare metadata.ObjectID) error {
	return alone(ctx, "evictions for quotas", m.evictions, func(ctx context.Context) error {
		q, _ := m.Store.Quota(tenant)
		if q.Charged+bytes <= q.Effective {
			return nil // somebody else's eviction did
		}
		freed, err := m.evictTenant(ctx, tenant, q.Charged+bytes-q.Effective, spare)
		if freed == 0 && err == nil {
			return errs.TenantQuotaExceeded
		}
		return err
	})
}

// looksPerMilli is how many objects of a tenant that has nothing to evict are looked at
// in a millisecond, on average. A look takes a tenth of a microsecond or two, so a
// client that repeats its put costs less than a tenth of a processor.
const looksPerMilli = 500

// evictTenant evicts objects of a tenant that hold so many bytes, if there are such. After it
// has looked at many objects and found too few, it does not search for a while: leases of
// their groups may keep them all.
func (m *Master) evictTenant(ctx context.Context, tenant string, bytes uint64, spare metadata.ObjectID) (freed uint64, err error) {
	if m.Now() < m.restUntil[tenant] {
		return 0, nil
	}
	delete(m.restUntil, tenant)
	search := eviction.TenantSearch{Store: m.Store, Tenant: tenant, SoftPins: m.EvictSoftPinned, Spare: spare}
	for freed < bytes && !search.Done && err == nil {
		var n uint64
		n, err = m.evictSome(ctx, &search, bytes-freed)
		freed += n
	}
	if rest := search.Looked / looksPerMilli; freed < bytes && rest > 0 {
		m.restUntil[tenant] = m.Now() + metadata.Time(rest)
	}
	m.Counters.Tenants.evicted(tenant, freed)
	return freed, err
}

// evictSome evicts the objects that a search finds next, as one submission.
func (m *Master) evictSome(ctx context.Context, search *eviction.TenantSearch, bytes uint64) (freed uint64, err error) {
	const each = 128 // bytes of one object in the journal, at most
	ticket, err := m.Queue.Admit(ctx, roundBytes)
	if err != nil {
		return 0, err
	}
	defer ticket.Release()
	drops, freed := search.Next(bytes, roundBytes/each, m.Now())
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
		m.Counters.committed(c)
	}
	return freed, nil
}

// tenantTick is how often tenants above their watermark are looked for.
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
		_, err := m.evictTenant(ctx, q.Tenant, q.Charged-aim, 0)
		return err
	})
}
