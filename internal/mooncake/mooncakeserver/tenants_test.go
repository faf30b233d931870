package mooncakeserver_test

import (
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// withTenants turns multi-tenancy on, with a quota of 250 bytes for each tenant.
func (n *node) withTenants(t *testing.T, tenants ...string) {
	t.Helper()
	before, err := n.gate.Master()
	if err != nil {
		t.Fatal(err)
	}
	on := *before
	on.Tenants = true
	m := service.NewMaster(on)
	for _, tenant := range tenants {
		if err := m.SetQuota(t.Context(), tenant, 250); err != nil {
			t.Fatal(err)
		}
	}
	n.gate.Open(m)
}

// Equal keys of two tenants are two objects: conformance line 33.
func TestTenants(t *testing.T) {
	each(t, func(t *testing.T, n *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		if !g.Fields.Tenants {
			return
		}
		n.withTenants(t, "red", "blue")
		useTenants(t, c, g)
	})
}

func useTenants(t *testing.T, c *mooncakeclient.Conn, g *mooncake.Generation) {
	start := func(tenant, key string, size uint64) mooncake.Result[mooncake.ObjectReplicas] {
		return ask(t, c, g.PutStart, mooncake.Args{Client: client(7), Key: key, Size: size, Config: config(), Tenant: tenant})
	}
	put := func(tenant, key string) {
		t.Helper()
		expect(t, "PutStart", start(tenant, key, 100), errs.OK)
		expect(t, "PutEnd", ask(t, c, g.PutEnd, mooncake.Args{Client: client(7), Item: mooncake.PutItem{Key: key}, Tenant: tenant}), errs.OK)
	}
	exists := func(tenant, key string) bool {
		return ask(t, c, g.ExistKey, mooncake.Args{Key: key, Tenant: tenant}).Value
	}
	for _, tenant := range []string{"", "green", "default", "_red", "r\x01"} {
		expect(t, "PutStart of tenant "+tenant, start(tenant, "k", 100), errs.TenantNotRegistered)
		batch := mooncake.Args{Client: client(7), Keys: []string{"k", "l"}, Sizes: []uint64{1, 1}, Config: config(), Tenant: tenant}
		want(t, "BatchPutStart of tenant "+tenant, ask(t, c, g.BatchPutStart, batch), errs.TenantNotRegistered, errs.TenantNotRegistered)
	}
	expect(t, "a read of a tenant that cannot be", ask(t, c, g.GetReplicaList, mooncake.Args{Key: "k", Tenant: "_red"}), errs.InvalidParams)
	expect(t, "a read without a tenant", ask(t, c, g.GetReplicaList, mooncake.Args{Key: "k"}), errs.ObjectNotFound)

	put("red", "k")
	put("blue", "k")
	put("red", "l")
	expect(t, "over the quota", start("red", "m", 251), errs.TenantQuotaExceeded)
	expect(t, "Remove", ask(t, c, g.Remove, mooncake.Args{Key: "k", Tenant: "red"}), errs.OK)
	if exists("red", "k") || !exists("blue", "k") || exists("default", "k") {
		t.Error("k of tenant red was removed: got k gone from blue, or still at red or default, want it at blue alone")
	}
	if r := ask(t, c, g.GetReplicaListByRegex, mooncake.Args{Key: ".", Tenant: "red"}); len(r.Value) != 1 || r.Value[0].Key != "l" {
		t.Errorf("GetReplicaListByRegex: got %+v, want one tenant's key", r.Value)
	}
	if got := ask(t, c, g.RemoveAll, mooncake.Args{Force: true, Tenant: "red"}); got != 1 {
		t.Errorf("RemoveAll of a tenant: got %d, want 1", got)
	}
	if got := ask(t, c, g.RemoveAll, mooncake.Args{Force: true, Tenant: "_red"}); got != 0 {
		t.Errorf("RemoveAll of a tenant that cannot be: got %d, want 0", got)
	}
	if got := ask(t, c, g.RemoveAll, mooncake.Args{Force: true}); got != 1 {
		t.Errorf("RemoveAll of all tenants: got %d, want 1", got)
	}
}

// A call in a generation without tenants is about the default one, RemoveAll too.
func TestRemoveAllWithoutTenants(t *testing.T) {
	n := primary(t)
	n.withTenants(t, "red", metadata.DefaultTenant)
	head, old := n.dial(t, "head"), n.dial(t, "v0.3.11")
	of := func(tenant string) mooncake.Args {
		return mooncake.Args{Client: client(7), Key: "k", Size: 100, Config: config(), Item: mooncake.PutItem{Key: "k"}, Tenant: tenant}
	}
	for _, tenant := range []string{"red", metadata.DefaultTenant} {
		expect(t, "PutStart", ask(t, head, head.Generation.PutStart, of(tenant)), errs.OK)
		expect(t, "PutEnd", ask(t, head, head.Generation.PutEnd, of(tenant)), errs.OK)
	}
	if got := ask(t, old, old.Generation.RemoveAll, mooncake.Args{Force: true}); got != 1 {
		t.Errorf("RemoveAll: got %d, want 1, of tenant default", got)
	}
	if !ask(t, head, head.Generation.ExistKey, of("red")).Value {
		t.Error("the object of another tenant has gone, want it there")
	}
}

// Without multi-tenancy every call is about one tenant, whatever it says.
func TestTenantsAreOff(t *testing.T) {
	each(t, func(t *testing.T, _ *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		start := mooncake.Args{Client: client(7), Key: "k", Size: 100, Config: config(), Tenant: "red"}
		expect(t, "PutStart", ask(t, c, g.PutStart, start), errs.OK)
		start.Tenant = "_blue"
		expect(t, "PutStart of another tenant", ask(t, c, g.PutStart, start), errs.ObjectExists)
	})
}
