package eviction

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
)

const (
	// tenantTick is how often tenants above their watermark are looked for.
	tenantTick = time.Second
	// tenantRounds is how often room is made for what a quota refused, and that is tried
	// again (C++ master).
	tenantRounds = 2
	// looksPerMilli is how many objects of a tenant that has nothing to evict are looked at
	// in a millisecond, on average. A look takes a tenth of a microsecond or two, so a
	// client that repeats its put costs less than a tenth of a processor.
	looksPerMilli = 500
)

// A TenantLoop evicts for the quotas of tenants, on a primary: for what a quota refused,
// and above the tenants' watermark.
type TenantLoop struct {
	Store   *metadata.Store
	Journal TenantJournal
	Now     func() metadata.Time
	// A tenant that uses more than Watermark of its quota (0 for no such bound) loses
	// objects until it uses Ratio less; it loses softly pinned ones only with SoftPins.
	Watermark float64
	Ratio     float64
	SoftPins  bool

	restUntil map[string]metadata.Time // when the next search for a tenant may begin; guarded by Journal.Alone
}

// A TenantJournal commits evictions for tenants.
type TenantJournal interface {
	// Alone runs f while it runs no other. What has begun goes on to its end when the
	// context ends: what it evicts then must count for the next.
	Alone(ctx context.Context, f func(context.Context) error) error
	// Evict waits for room in the journal, calls next for the evictions of at most most
	// objects of a tenant, and commits them as one submission. It returns the bytes of
	// memory that they give up.
	Evict(ctx context.Context, tenant string, next func(most int) (drops []metadata.Drop, bytes uint64)) (freed uint64, err error)
}

// NewTenantLoop returns a loop that is ready to run.
func NewTenantLoop(l *TenantLoop) *TenantLoop {
	l.restUntil = make(map[string]metadata.Time)
	return l
}

// Run evicts objects of tenants above their watermark until the context ends. Without a
// watermark it has nothing to do and returns at once.
func (l *TenantLoop) Run(ctx context.Context, log zerolog.Logger) error {
	if l.Watermark == 0 {
		return nil
	}
	for {
		if err := clock.Sleep(ctx, tenantTick); err != nil {
			return err
		}
		for _, q := range l.Store.Quotas() {
			if err := l.keepBelow(ctx, q); err != nil && errs.KindOf(err) != errs.NotLeader && ctx.Err() == nil {
				log.Warn().Err(err).Str("tenant", q.Tenant).Msg("eviction for a quota failed and will be tried again")
			}
		}
	}
}

func (l *TenantLoop) keepBelow(ctx context.Context, q metadata.TenantQuota) error {
	if !q.Registered() || float64(q.Charged) <= l.Watermark*float64(q.Effective) {
		return nil
	}
	aim := uint64(max(0, l.Watermark-l.Ratio) * float64(q.Effective))
	return l.Journal.Alone(ctx, func(ctx context.Context) error {
		_, err := l.evict(ctx, q.Tenant, q.Charged-aim, 0)
		return err
	})
}

// Retry makes room for what a tenant's quota refused, and has it tried again, twice at
// most. wanted returns how many bytes that needs, 0 if nothing was refused that a quota
// could have room for, and the object that must stay, 0 for none.
func (l *TenantLoop) Retry(ctx context.Context, tenant string, wanted func(quota uint64) (bytes uint64, spare metadata.ObjectID), again func()) {
	for range tenantRounds {
		quota, _ := l.Store.Quota(tenant)
		bytes, spare := wanted(quota.Effective)
		if bytes == 0 || l.makeRoom(ctx, tenant, bytes, spare) != nil {
			return
		}
		again()
	}
}

// makeRoom evicts objects of a tenant, but for one to spare, until its quota has room for
// more bytes. It fails with TenantQuotaExceeded if there is nothing to evict.
func (l *TenantLoop) makeRoom(ctx context.Context, tenant string, bytes uint64, spare metadata.ObjectID) error {
	return l.Journal.Alone(ctx, func(ctx context.Context) error {
		q, _ := l.Store.Quota(tenant)
		if q.Charged+bytes <= q.Effective {
			return nil // somebody else's eviction did
		}
		freed, err := l.evict(ctx, tenant, q.Charged+bytes-q.Effective, spare)
		if freed == 0 && err == nil {
			return errs.TenantQuotaExceeded
		}
		return err
	})
}

// evict evicts objects of a tenant that hold so many bytes, if there are such. After it
// has looked at many objects and found too few, it does not search for a while: leases of
// their groups may keep them all.
func (l *TenantLoop) evict(ctx context.Context, tenant string, bytes uint64, spare metadata.ObjectID) (freed uint64, err error) {
	if l.Now() < l.restUntil[tenant] {
		return 0, nil
	}
	delete(l.restUntil, tenant)
	search := TenantSearch{Store: l.Store, Tenant: tenant, SoftPins: l.SoftPins, Spare: spare}
	for freed < bytes && !search.Done && err == nil {
		var n uint64
		n, err = l.Journal.Evict(ctx, tenant, func(most int) ([]metadata.Drop, uint64) { return search.Next(bytes-freed, most, l.Now()) })
		freed += n
	}
	if rest := search.Looked / looksPerMilli; freed < bytes && rest > 0 {
		l.restUntil[tenant] = l.Now() + metadata.Time(rest)
	}
	return freed, err
}
