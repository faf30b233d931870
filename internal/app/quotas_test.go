package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/understudy-store/understudy/internal/config"
)

func TestPolicyFiles(t *testing.T) {
	read := func(text string) (map[string]uint64, error) {
		file := filepath.Join(t.TempDir(), "quotas.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := initialQuotas(config.Tenants{Enabled: true, Connector: config.QuotasInFile, ConnectorURI: file})
		quotas := make(map[string]uint64)
		for _, q := range list {
			quotas[q.Tenant] = q.Requested
		}
		return quotas, err
	}
	got, err := read("version: 1\n\ntenants:\n  - name: tenant-a\n    quota: 200GB\n  - name: \"b\"\n    quota: 7\n")
	if err != nil || len(got) != 2 || got["tenant-a"] != 200<<30 || got["b"] != 7 {
		t.Errorf("got %v, %v; want 200 GiB and 7 bytes", got, err)
	}
	for _, bad := range []string{
		"", "version: 2\ntenants: []", "version: 1\ntenants: [{name: _a, quota: 1}]", "version: 1\ntenants: [{quota: 1}]",
		"version: 1\ntenants: [{name: a, quota: 1}, {name: a, quota: 2}]", "version: 1\ntenants: [{name: a, quota: 0}]",
		"version: 1\ntenants: [{name: a, quota: 1.5GB}]", "version: 1\ntenants: [{name: a, quota: 9000000000GB}]",
	} {
		if got, err := read(bad); err == nil {
			t.Errorf("%q is read as %v, want an error", bad, got)
		}
	}
	if _, err := initialQuotas(config.Tenants{Enabled: true, Connector: config.QuotasInFile, ConnectorURI: "/none/such"}); err == nil {
		t.Error("a policy file that does not exist: got no error, want one")
	}
	for _, off := range []config.Tenants{{Connector: config.QuotasInFile, ConnectorURI: "/none"}, {Enabled: true, Connector: config.QuotasInEtcd, ConnectorURI: "a:1"}} {
		if list, err := initialQuotas(off); list != nil || err != nil {
			t.Errorf("%+v: got %v, %v; want nothing read", off, list, err)
		}
	}
}
