package metrics

import (
	"fmt"
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/segment"
)

// breakQuota gives a tenant a quota, and puts more than that.
func (r *rig) breakQuota(tenant string, bytes uint64) {
	r.t.Helper()
	on := *r.master
	on.Tenants = true
	m := service.NewMaster(on)
	if err := m.SetQuota(r.t.Context(), tenant, bytes); err != nil {
		r.t.Fatal(err)
	}
	p := service.PutRequest{Tenant: tenant, Client: segment.ClientID{1}, Config: service.PutConfig{Replicas: 1}}
	if _, err := m.PutStart(r.t.Context(), p, service.PutItem{Key: "large", Size: bytes + 1}); errs.KindOf(err) != errs.TenantQuotaExceeded {
		r.t.Fatalf("a put of more than the quota: got %v, want TenantQuotaExceeded", err)
	}
	if _, err := m.PutStart(r.t.Context(), p, service.PutItem{Key: "small", Size: bytes / 2}); err != nil {
		r.t.Fatal(err)
	}
}

func TestTenantFigures(t *testing.T) {
	r := newRig(t)
	for _, f := range r.gather() {
		if f.GetName() == "mooncake_tenant_quota_charged_bytes" {
			t.Error("no tenant has a quota: got its figures shown, want none")
		}
	}
	r.put(10, "x")
	r.breakQuota("red", 100)
	r.want("a tenant, and objects of another one", `mooncake_tenant_quota_charged_bytes: gauge
		mooncake_tenant_quota_charged_bytes{tenant_id="default"} 10
		mooncake_tenant_quota_charged_bytes{tenant_id="red"} 50
		mooncake_tenant_quota_admission_closed: gauge
		mooncake_tenant_quota_admission_closed{tenant_id="default"} 1
		mooncake_tenant_quota_admission_closed{tenant_id="red"} 0
		mooncake_tenant_quota_reject_total: counter
		mooncake_tenant_quota_reject_total{reason="quota_exceeded",tenant_id="red"} 1
	`, "mooncake_tenant_quota_charged_bytes", "mooncake_tenant_quota_admission_closed", "mooncake_tenant_quota_reject_total")
	r.values("sums", map[string]float64{
		"mooncake_tenant_quota_requested_bytes_sum": 100, "mooncake_tenant_quota_effective_bytes_sum": 100,
		"mooncake_tenant_quota_allocatable_capacity_bytes": 1 << 20,
	})
}

// Whoever names many tenants makes no scrape of many megabytes.
func TestManyTenants(t *testing.T) {
	r := newRig(t)
	r.put(10, "x")
	r.breakQuota("red", 100)
	for i := range 1100 {
		on := *r.master
		on.Tenants = true
		if err := service.NewMaster(on).SetQuota(t.Context(), fmt.Sprintf("tenant-%04d", i), 1); err != nil {
			t.Fatal(err)
		}
		p := service.PutRequest{Tenant: fmt.Sprintf("tenant-%04d", i), Client: segment.ClientID{1}, Config: service.PutConfig{Replicas: 1}}
		if _, err := service.NewMaster(on).PutStart(t.Context(), p, service.PutItem{Key: "large", Size: 2}); errs.KindOf(err) != errs.TenantQuotaExceeded {
			t.Fatal(err)
		}
	}
	shown, others := make(map[string]int), make(map[string]float64)
	for _, f := range r.gather() {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() != "tenant_id" {
					continue
				}
				shown[f.GetName()]++
				if l.GetValue() == "(others)" {
					others[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	for name, n := range shown {
		if n < 1000 || n > 1001 {
			t.Errorf("%s has %d tenants, want 1,000 and the others", name, n)
		}
	}
	// Shown are default, red, and 998 of the others.
	for name, want := range map[string]float64{
		"mooncake_tenant_quota_requested_bytes": 102, "mooncake_tenant_quota_explicit_policy": 102, "mooncake_tenant_quota_reject_total": 101, // default has none
	} {
		if others[name] != want {
			t.Errorf("%s of the others: got %v, want %v", name, others[name], want)
		}
	}
	r.values("sums", map[string]float64{"mooncake_tenant_quota_requested_bytes_sum": 100 + 1100})
}
