package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

// quotas asks a node about quotas, until it answers with 200.
func (m *member) quotas(method, query, body string) string {
	m.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-tick.C {
		url := "http://" + m.cfg.Node.HTTPAddress + "/api/v1/tenant_quotas" + query
		req, err := http.NewRequestWithContext(m.t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			m.t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil && method == http.MethodGet && time.Now().Before(deadline) {
			continue // what answers while a node waits for etcd closes its connections when it ends
		}
		if err != nil {
			m.t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		switch {
		case err == nil && resp.StatusCode == http.StatusOK:
			return string(answer)
		case time.Now().After(deadline):
			m.t.Fatalf("%s %s: got %d %s, %v; want 200", method, query, resp.StatusCode, answer, err)
		}
	}
}

// putFor puts a key of a tenant and returns the number of the error.
func (c caller) putFor(tenant, key string, size uint64) int32 {
	c.t.Helper()
	var placed mooncake.Result[mooncake.ObjectReplicas]
	var done mooncake.Done
	who := segment.ClientID{7}
	_, err := mooncakeclient.Do(c.t.Context(), c.Conn, c.Generation.PutStart,
		&mooncake.Args{Client: who, Key: key, Size: size, Config: mooncake.ReplicateConfig{Replicas: 1}, Tenant: tenant}, &placed)
	if err == nil && placed.Failure == 0 {
		_, err = mooncakeclient.Do(c.t.Context(), c.Conn, c.Generation.PutEnd, &mooncake.Args{Client: who, Item: mooncake.PutItem{Key: key}, Tenant: tenant}, &done)
	}
	if err != nil || done.Failure != 0 {
		c.t.Fatalf("put of %s: got %v and failure %d, want neither", key, err, done.Failure)
	}
	return placed.Failure
}

// sizeFor returns the size of a tenant's object, 0 for none.
func (c caller) sizeFor(tenant, key string) uint64 {
	c.t.Helper()
	var r mooncake.Result[metadata.ReplicaList]
	if _, err := mooncakeclient.Do(c.t.Context(), c.Conn, c.Generation.GetReplicaList, &mooncake.Args{Key: key, Tenant: tenant}, &r); err != nil {
		c.t.Fatal(err)
	}
	if len(r.Value.Replicas) == 0 {
		return 0
	}
	return r.Value.Replicas[0].Size
}

// mount mounts a segment of 1 MiB.
func (c caller) mount() {
	c.t.Helper()
	spec := segment.Spec{ID: segment.ID{7}, Name: "host", Base: 1 << 40, Size: 1 << 20, Endpoint: "host:1", Protocol: "tcp"}
	var done mooncake.Done
	_, err := mooncakeclient.Do(c.t.Context(), c.Conn, c.Generation.ReMountSegment, &mooncake.Args{Segments: []segment.Spec{spec}, Client: segment.ClientID{7}}, &done)
	if err != nil || done.Failure != 0 {
		c.t.Fatalf("mount: got %v and failure %d, want neither", err, done.Failure)
	}
}

// The first put of a new cluster knows the tenants of the policy file.
func TestTenantsAreKnownFromTheFirstCall(t *testing.T) {
	t.Parallel()
	policy := filepath.Join(t.TempDir(), "quotas.yaml")
	if err := os.WriteFile(policy, []byte("version: 1\ntenants: [{name: red, quota: 150B}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := settings(config.Primary, "a", etcdtest.Start(t).Endpoints())
	c.Tenants.Enabled, c.Tenants.ConnectorURI = true, policy
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	a := run(t, c)
	a.quotas(http.MethodGet, "", "") // as soon as it answers
	cl := call(t, a.RPCAddress(), "head")
	cl.mount()
	if got := cl.putFor("red", "k", 100); got != 0 {
		t.Errorf("got error %d, want none", got)
	}
}

// Quotas and tenants survive a handover: the new primary has the same ones, knows what
// each tenant has, and refuses what breaks a quota.
func TestTenantsSurviveATakeover(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	etcd := etcdtest.Start(t).Endpoints()
	policy := filepath.Join(t.TempDir(), "quotas.yaml")
	if err := os.WriteFile(policy, []byte("version: 1\ntenants: [{name: red, quota: 150B}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	node := func(role promote.Role, id string) *member {
		c := settings(role, id, etcd)
		c.Tenants.Enabled, c.Tenants.ConnectorURI = true, policy
		return run(t, c)
	}
	a := node(config.Primary, "a")
	a.serves()
	a.quotas(http.MethodGet, "?tenant_id=red", "")
	a.quotas(http.MethodPut, "?tenant_id=blue", `{"requested_quota_bytes":1000}`)
	b := node(config.Standby, "b")
	b.promotable()
	a.knows(1)
	cl := call(t, a.RPCAddress(), "head")
	cl.mount()
	if red, blue := cl.putFor("red", "k", 100), cl.putFor("blue", "k", 200); red != 0 || blue != 0 {
		t.Fatalf("puts of one key: got %d and %d, want no error", red, blue)
	}
	before := a.quotas(http.MethodGet, "", "")
	a.end()
	b.serves()

	var list struct {
		Data []struct {
			Charged uint64 `json:"charged_bytes"`
		}
	}
	after := b.quotas(http.MethodGet, "", "")
	if err := json.Unmarshal([]byte(after), &list); err != nil || after != before || len(list.Data) != 2 || list.Data[0].Charged != 200 || list.Data[1].Charged != 100 {
		t.Errorf("after the takeover: got %s, %v; want %s", after, err, before)
	}
	cl = call(t, b.RPCAddress(), "head")
	for tenant, size := range map[string]uint64{"red": 100, "blue": 200} {
		if got := cl.sizeFor(tenant, "k"); got != size {
			t.Errorf("tenant %s: got an object of %d bytes, want %d", tenant, got, size)
		}
	}
	if got := cl.putFor("red", "l", 151); got != errs.TenantQuotaExceeded.Number() {
		t.Errorf("a put over the quota: got %d, want %d", got, errs.TenantQuotaExceeded.Number())
	}
	if got := cl.putFor("green", "l", 1); got != errs.TenantNotRegistered.Number() {
		t.Errorf("a put without a quota: got %d, want %d", got, errs.TenantNotRegistered.Number())
	}
	if got := b.quotas(http.MethodPut, "?tenant_id=green", fmt.Sprintf(`{"requested_quota_bytes":%d}`, 7)); !strings.Contains(got, `"requested_quota_bytes":7`) {
		t.Errorf("a quota set at the new primary: got %s, want a quota of 7 bytes", got)
	}
}
