package ctl

import (
	"testing"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
)

func TestTenants(t *testing.T) {
	x := lone(t, "x", "--enable_multi_tenants")
	at := "--address=" + x.RPC
	mount(t, "host", "--size=1MiB", at)
	run(t, "put", "k", "--size=1KiB", at).Want(t, cli.StatusFailed, "TENANT_NOT_REGISTERED (-1701)", "what to do: give the tenant a quota")
	for _, tenant := range []string{"red", "blue"} {
		run(t, "quota", "set", tenant, "4KiB", at).Want(t, cli.StatusOK, tenant+" has a quota of 4.0 KiB")
		run(t, "put", "of-"+tenant, "--size=1KiB", "--tenant="+tenant, at).Want(t, cli.StatusOK)
	}
	if q := clitest.Decode[quotaList](t, run(t, "quota", "list", "-o", "json", at)).Quotas; len(q) != 2 || q[0].Effective != 4096 || q[1].Charged == 0 {
		t.Errorf("quotas: got %+v, want those of two tenants", q)
	}
	run(t, "quota", at).Want(t, cli.StatusOK, "TENANT", "red", "4.0 KiB")
	run(t, "quota", "rm", "red", at).Want(t, cli.StatusFailed, "the tenant still has objects; remove them first: masterctl rm-all --yes --tenant=red")
	run(t, "quota", "rm", "nobody", at).Want(t, cli.StatusFailed, `"nobody" has no quota; masterctl quota list`)
	run(t, "put", "big", "--size=8KiB", "--tenant=red", at).Want(t, cli.StatusFailed, "TENANT_QUOTA_EXCEEDED (-1700)", "what to do: ")
	for tenant, want := range map[string]string{"red": "of-red\n", "blue": "of-blue\n", "default": ""} {
		if o := run(t, "keys", "--tenant="+tenant, at).Want(t, cli.StatusOK); o.Out != want {
			t.Errorf("keys of %s: got %q, want %q", tenant, o.Out, want)
		}
	}
	run(t, "rm-regex", "^of", "--yes", "--tenant=blue", at).Want(t, cli.StatusOK, "removed 1 object(s)")
	run(t, "put", "of-blue", "--size=1KiB", "--tenant=blue", at).Want(t, cli.StatusOK)
	run(t, "rm-all", "--yes", "--tenant=blue", at).Want(t, cli.StatusOK, "removed 1 object(s)")
	run(t, "rm-all", "--yes", at).Want(t, cli.StatusOK, "removed 1 object(s)")
	run(t, "quota", "rm", "red", at).Want(t, cli.StatusOK, "red has no quota any more")
	run(t, "put", "more", "--size=1KiB", "--tenant=red", at).Want(t, cli.StatusFailed, "TENANT_NOT_REGISTERED")
	run(t, "quota", "set", "green", "1TiB", at).Want(t, cli.StatusOK, "that is less than 1.0 TiB: quotas together are not more than the mounted memory")
	run(t, "quota", at).Want(t, cli.StatusOK, " of 1.0 TiB")
}
