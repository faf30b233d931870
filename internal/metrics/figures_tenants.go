package metrics

import "strings"

// quotas shows what tenants may have, and have, in upstream's names. They are left
// out where no tenant has a quota.
func (s *scrape) quotas(to sink) {
	requested, effective := uint64(0), uint64(0)
	for _, t := range s.tenants {
		requested, effective = requested+t.Requested, effective+t.Effective
		by := func(name, help string, v uint64) {
			gaugeBy(to, "mooncake_tenant_quota_"+name, "tenant_id", strings.ToValidUTF8(t.Tenant, "\uFFFD"), help, v)
		}
		by("requested_bytes", "The tenant's quota, as it was set.", t.Requested)
		by("effective_bytes", "The tenant's quota, less where all quotas together exceed the memory.", t.Effective)
		by("charged_bytes", "Bytes of the tenant's objects in memory, each replica counted, reservations included.", t.Charged)
		by("admission_closed", "1 for a tenant that may not write: it has objects, but no quota.", uint64(flag(!t.Registered())))
		by("over_quota", "1 for a tenant that has more than its effective quota.", uint64(flag(t.Over())))
		by("explicit_policy", "1 for a tenant that has a quota.", uint64(flag(t.Registered())))
	}
	gauge(to, "mooncake_tenant_quota_allocatable_capacity_bytes", "Bytes of all mounted segments, which the quotas share.", s.quotaCapacity)
	gauge(to, "mooncake_tenant_quota_requested_bytes_sum", "Sum of mooncake_tenant_quota_requested_bytes.", requested)
	gauge(to, "mooncake_tenant_quota_effective_bytes_sum", "Sum of mooncake_tenant_quota_effective_bytes.", effective)
	for tenant, n := range s.tenantCounts {
		tenant = strings.ToValidUTF8(tenant, "\uFFFD")
		show(to, Family{"mooncake_tenant_quota_reject_total", Counter, "Puts and copies that a quota refused.", []string{"tenant_id", "reason"}},
			n.Rejected, tenant, "quota_exceeded")
		counterBy(to, "mooncake_tenant_evict_bytes_total", "tenant_id", tenant, "Bytes of objects that were evicted for a quota.", n.Evicted)
	}
}
