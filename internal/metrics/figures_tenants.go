package metrics

import (
	"strings"

	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// tenant has the figures of one tenant, or the sums of several.
type tenant struct {
	requested, effective, charged uint64 // bytes
	closed, over, registered      uint64 // 0 or 1 for one tenant; of several, how many are so
}

func (t tenant) plus(u tenant) tenant {
	return tenant{
		t.requested + u.requested, t.effective + u.effective, t.charged + u.charged,
		t.closed + u.closed, t.over + u.over, t.registered + u.registered,
	}
}

// tenantsOf returns tenants by their value in a label, which several may share.
func tenantsOf(all []metadata.TenantQuota) map[string]tenant {
	by := make(map[string]tenant, len(all))
	for _, t := range all {
		name := strings.ToValidUTF8(t.Tenant, "\uFFFD")
		by[name] = by[name].plus(tenant{
			requested: t.Requested, effective: t.Effective, charged: t.Charged,
			closed: uint64(flag(!t.Registered())), over: uint64(flag(t.Over())), registered: uint64(flag(t.Registered())),
		})
	}
	return by
}

// countsByLabel returns counters by the value of their tenants in a label.
func countsByLabel(all map[string]service.TenantCounts) map[string]service.TenantCounts {
	by := make(map[string]service.TenantCounts, len(all))
	for name, n := range all {
		name = strings.ToValidUTF8(name, "\uFFFD")
		by[name] = service.TenantCounts{Rejected: by[name].Rejected + n.Rejected, Evicted: by[name].Evicted + n.Evicted}
	}
	return by
}

// quotas shows the quotas of tenants and what they use, under upstream's names. It shows
// nothing if no tenant has a quota.
func (s *scrape) quotas(to sink) {
	var all tenant
	for _, t := range s.tenants {
		all = all.plus(t)
	}
	for name, t := range largest(s.tenants, func(t tenant) uint64 { return max(t.requested, t.charged) }, tenant.plus) {
		by := func(figure, help string, v uint64) {
			gaugeBy(to, "mooncake_tenant_quota_"+figure, "tenant_id", name, help, v)
		}
		by("requested_bytes", "The tenant's quota, as it was set; the smallest of more than 1,000 tenants are summed up as (others), in all figures.", t.requested)
		by("effective_bytes", "The tenant's quota, less where all quotas together exceed the memory.", t.effective)
		by("charged_bytes", "Bytes of the tenant's objects in memory, each replica counted, reservations included.", t.charged)
		by("admission_closed", "1 for a tenant that may not write: it has objects, but no quota.", t.closed)
		by("over_quota", "1 for a tenant that has more than its effective quota.", t.over)
		by("explicit_policy", "1 for a tenant that has a quota.", t.registered)
	}
	gauge(to, "mooncake_tenant_quota_allocatable_capacity_bytes", "Bytes of all mounted segments, which the quotas share.", s.quotaCapacity)
	gauge(to, "mooncake_tenant_quota_requested_bytes_sum", "Sum of mooncake_tenant_quota_requested_bytes.", all.requested)
	gauge(to, "mooncake_tenant_quota_effective_bytes_sum", "Sum of mooncake_tenant_quota_effective_bytes.", all.effective)
	for name, n := range s.tenantCounts {
		show(to, Family{"mooncake_tenant_quota_reject_total", Counter, "Puts and copies that a quota refused; tenants beside the first 1,000 are counted together as (others).", []string{"tenant_id", "reason"}},
			n.Rejected, name, "quota_exceeded")
		counterBy(to, "mooncake_tenant_evict_bytes_total", "tenant_id", name, "Bytes of objects that were evicted for a quota, as above.", n.Evicted)
	}
}
