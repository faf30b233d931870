package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/promote"
)

// An httpNode is a running node that is asked over HTTP.
type httpNode struct {
	*App
	stop func()
	t    *testing.T
	http *http.Client
}

// startHTTPNode runs a node on free ports of the loopback until the test ends.
func startHTTPNode(t *testing.T, role promote.Role, etcd []string, options ...func(*config.Config)) *httpNode {
	t.Helper()
	c := config.Default(role)
	c.Listen.RPCAddress, c.Listen.RPCPort, c.Listen.MetricsPort = "127.0.0.1", 0, 0
	c.Listen.Metadata, c.Listen.MetadataHost, c.Listen.MetadataPort = true, "127.0.0.1", 0
	c.HA.Enabled, c.HA.EtcdEndpoints = etcd != nil, etcd
	c.HA.SessionTTL, c.HA.FailoverAfter = 10*time.Second, 5*time.Second // a slow machine is no reason for another term
	c.HA.RefoundWait = 100 * time.Millisecond
	c.HA.HandoverTimeout, c.Node.DataDir = 20*time.Second, t.TempDir()
	for _, option := range options {
		option(&c)
	}
	a, err := New(c, "v-test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	n := &httpNode{App: a, stop: stop, t: t, http: &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}}
	t.Cleanup(func() {
		n.http.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the node ended: got %v, want no error", err)
		}
	})
	return n
}

// ask returns the status and the body of an answer, 0 for none.
func (n *httpNode) ask(path string) (int, string) {
	n.t.Helper()
	resp, err := n.http.Get("http://" + n.cfg.Node.HTTPAddress + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Errorf("GET %s: got %v, want no error", path, err)
	}
	return resp.StatusCode, string(body)
}

// becomes waits until an answer has a status and a part of its body.
func (n *httpNode) becomes(path string, code int, part string) {
	n.t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(20 * time.Second)
	for {
		gotCode, got := n.ask(path)
		if gotCode == code && strings.Contains(got, part) {
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			n.t.Fatalf("GET %s: %d %s\nwant %d with %q", path, gotCode, got, code, part)
		}
	}
}

// want checks answers, each a path, a status and parts of its body.
func (n *httpNode) want(path string, code int, parts ...string) {
	n.t.Helper()
	gotCode, got := n.ask(path)
	if gotCode != code {
		n.t.Errorf("GET %s: %d %s, want %d", path, gotCode, got, code)
	}
	for _, part := range parts {
		if !strings.Contains(got, part) {
			n.t.Errorf("GET %s: got %s, want %q in it", path, got, part)
		}
	}
}

// put puts one object of 100,000 bytes through a node. Its client pings each second until
// leave is called, or the test ends.
func (n *httpNode) put(key string) (leave func()) {
	n.t.Helper()
	c, err := client.New(client.Config{Addresses: []string{n.RPCAddress()}})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(n.t.Context(), 30*time.Second)
	defer cancel()
	if err := c.MountSegment(ctx, client.Segment{ID: uuid.New(), Name: "host-a", Base: 1 << 32, Size: 1 << 20, Endpoint: "host-a:1"}); err != nil {
		n.t.Fatal(err)
	}
	put, err := c.PutStart(ctx, client.PutItem{Key: key, Size: 100_000}, client.PutConfig{})
	if err == nil {
		err = c.PutEnd(ctx, put.Ref(), client.SelectAll)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return c.Close
}

// Every path of the metrics port, on a primary and on its standby.
func TestHTTPOfAPair(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	primary := startHTTPNode(t, config.Primary, etcd)
	primary.becomes("/readyz", http.StatusOK, "OK")
	standby := startHTTPNode(t, config.Standby, etcd)
	standby.becomes("/readyz?role=standby", http.StatusOK, "OK")
	standby.becomes("/leader", http.StatusOK, fmt.Sprintf(`"leader_address":%q`, primary.RPCAddress())) // it looks for the leader on its own time
	primary.put("k")

	primary.want("/health", http.StatusOK, `{"status":"ok","role":"leader","ha_state":"serving","service_ready":true,"leader_address":"`)
	primary.want("/ha_status", http.StatusOK, "serving")
	primary.want("/leader", http.StatusOK, `{"present":true,"leader_address":"`+primary.RPCAddress()+`","view_version":1}`)
	primary.want("/kv_events/status", http.StatusOK, `"enabled":false`)
	primary.want("/api/v1/segments/status?segment=host-a", http.StatusOK, `"status_name":"OK"`)
	primary.want("/api/v1/tenant_quotas", http.StatusConflict, `"error_code":-1011`)
	primary.want("/query_key?key=k", http.StatusOK, `"size_":100000`, `"transport_endpoint_":"host-a:1"`)
	primary.want("/query_key?key=nothing", http.StatusNotFound, `"error_code":-704`)
	primary.want("/batch_query_keys?keys=k", http.StatusOK, `"ok":true`)
	primary.want("/get_all_keys", http.StatusOK, "k\n")
	primary.want("/get_all_segments", http.StatusOK, "host-a\n")
	primary.want("/get_segments_detail", http.StatusOK, `"total_segments":1`)
	primary.want("/query_segment?segment=host-a", http.StatusOK, "Capacity(bytes) : 1048576")
	primary.want("/query_segment?segment=host-b", http.StatusInternalServerError)
	primary.want("/role", http.StatusOK, "leader")
	primary.want("/node", http.StatusOK, `"role":"primary"`, `"serving":true`, `"term":1`)
	primary.becomes("/understudy.v1.AdminService/History", http.StatusOK, `"node_id":"`+primary.cfg.Node.ID+`"`)
	standby.want("/understudy.v1.AdminService/History", http.StatusOK, `"there was no journal"`)
	primary.want("/understudy.v1.AdminService/Events?limit=9", http.StatusOK, `"TERM_START"`, `"PUT_START"`)
	standby.want("/understudy.v1.AdminService/DumpRanges", http.StatusOK, `"host-a"`)
	primary.want("/openapi.json", http.StatusOK, `"/understudy.v1.AdminService/History"`)
	primary.want("/metrics/summary", http.StatusOK, "role=leader, state=serving, service_ready=true, master={Mem Storage: ", "Keys: 1 (", ", view_version=1")
	primary.want("/metrics", http.StatusOK, "\nmaster_key_count 1\n", "\nmaster_value_size_bytes_count 1\n",
		"\n"+`understudy_role{role="primary"} 1`+"\n", `understudy_build_info{version="v-test"} 1`,
		`understudy_rpc_duration_seconds_count{code="OK",method="ObjectService/PutStart"} 1`)
	primary.becomes("/metrics", http.StatusOK, "\nunderstudy_etcd_db_bytes ")

	standby.want("/health", http.StatusOK, `"role":"standby","ha_state":"standby","service_ready":false`)
	standby.want("/readyz", http.StatusServiceUnavailable, "not serving: this node is standby")
	standby.want("/role", http.StatusOK, "standby")
	standby.want("/node", http.StatusOK, `"role":"standby"`, `"serving":false`)
	for _, path := range []string{
		"/query_key?key=k", "/batch_query_keys?keys=k", "/get_all_keys", "/get_all_segments", "/get_segments_detail", "/query_segment?segment=host-a",
	} {
		standby.want(path, http.StatusServiceUnavailable, `"error_code":-1011`, "ask "+primary.cfg.Node.HTTPAddress)
	}
	standby.becomes("/metrics", http.StatusOK, "\nunderstudy_lag_entries 0\n")
	resp, err := primary.http.Post("http://"+primary.cfg.Node.HTTPAddress+"/api/v1/remove_all?force=true", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if want := `{"success":true,"removed_count":1}`; err != nil || strings.TrimSpace(string(body)) != want {
		t.Errorf("remove_all: got %d %s %v, want %s", resp.StatusCode, body, err, want)
	}
	standby.becomes("/metrics", http.StatusOK, "\nmaster_key_count 0\n")
	standby.want("/metrics", http.StatusOK, "\nunderstudy_promotable 1\n", "\n"+`understudy_role{role="standby"} 1`+"\n")
}

func TestHTTPOfALoneNode(t *testing.T) {
	n := startHTTPNode(t, config.Primary, nil)
	n.becomes("/readyz", http.StatusOK, "OK")
	n.want("/readyz?role=standby", http.StatusServiceUnavailable, "high availability is off")
	n.want("/understudy.v1.AdminService/History", http.StatusNotImplemented, "NOT_SUPPORTED")
	n.want("/role", http.StatusOK, "leader")
	n.want("/node", http.StatusOK, `"role":"primary"`, `"serving":true`, `"not_promotable_because":"high availability is off`)
	_, body := n.ask("/metrics")
	for _, absent := range []string{"understudy_lag_entries", "understudy_etcd_db_bytes"} {
		if strings.Contains(body, absent) {
			t.Errorf("/metrics of a lone node: got %s, want none: it has no journal", absent)
		}
	}
}

// metadata asks the metadata server of a node.
func (n *httpNode) metadata(method, key, body string) string {
	n.t.Helper()
	r, err := http.NewRequest(method, "http://"+n.metadataListener.Addr().String()+"/metadata?key="+key, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	resp, err := n.http.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Error(err)
	}
	return string(b)
}

// What hosts publish is the same on every node, and survives the primary.
func TestMetadataServerOfAPair(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	primary := startHTTPNode(t, config.Primary, etcd)
	primary.becomes("/readyz", http.StatusOK, "OK")
	standby := startHTTPNode(t, config.Standby, etcd)
	standby.becomes("/readyz?role=standby", http.StatusOK, "OK")
	for _, step := range []struct {
		n                       *httpNode
		method, key, body, want string
	}{
		{primary, "PUT", "mooncake/rpc_meta/a", "A", "metadata updated"},
		{standby, "PUT", "mooncake/rpc_meta/a", "B", "Duplicate rpc_meta key not allowed"},
		{standby, "PUT", "mooncake/ram/a", "R", "metadata updated"},
		{primary, "GET", "mooncake/ram/a", "", "R"},
	} {
		if got := step.n.metadata(step.method, step.key, step.body); got != step.want {
			t.Errorf("%s %s: got %q, want %q", step.method, step.key, got, step.want)
		}
	}
	primary.stop()
	standby.becomes("/readyz", http.StatusOK, "OK")
	for key, want := range map[string]string{"mooncake/rpc_meta/a": "A", "mooncake/ram/a": "R"} {
		if got := standby.metadata("GET", key, ""); got != want {
			t.Errorf("%s after the takeover: got %q, want %q", key, got, want)
		}
	}
}

func TestMetadataServerOfALoneNode(t *testing.T) {
	n := startHTTPNode(t, config.Primary, nil, func(c *config.Config) { c.Security.HTTPHosts = []string{"node.example"} })
	n.becomes("/readyz", http.StatusOK, "OK")
	if got := n.metadata("PUT", "a", "A") + ", " + n.metadata("GET", "a", ""); got != "metadata updated, A" {
		t.Errorf("got %q, want \"metadata updated, A\"", got)
	}
	for header, value := range map[string]string{"Host": "evil.example", "Sec-Fetch-Site": "cross-site"} {
		r, err := http.NewRequest("PUT", "http://"+n.metadataListener.Addr().String()+"/metadata?key=b", strings.NewReader("B"))
		if err != nil {
			t.Fatal(err)
		}
		if r.Header.Set(header, value); header == "Host" {
			r.Host = value
		}
		resp, err := n.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode < 400 {
			t.Errorf("with %s %s: got %d, want a refusal", header, value, resp.StatusCode)
		}
	}
}

// What a client has published goes when it expires, and nothing else.
func TestMetadataOfAnExpiredClient(t *testing.T) {
	t.Parallel()
	n := startHTTPNode(t, config.Primary, nil, func(c *config.Config) {
		c.Listen.MetadataCleanup, c.Client.TTL, c.Client.RPCTimeout = true, 3*time.Second, 0 // longer than a put takes
	})
	n.becomes("/readyz", http.StatusOK, "OK")
	for _, key := range []string{"mooncake/ram/host-a", "mooncake/rpc_meta/host-a", "mooncake/ram/host-b"} {
		n.metadata("PUT", key, "A")
	}
	n.put("k")() // of host-a, which pings no more
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for end := time.After(20 * time.Second); n.metadata("GET", "mooncake/rpc_meta/host-a", "") != "metadata not found"; {
		select {
		case <-poll.C:
		case <-end:
			t.Fatal("the metadata of an expired client after 20 s: got it, want it removed")
		}
	}
	n.want("/get_all_segments", http.StatusOK)
	for key, want := range map[string]string{"mooncake/ram/host-a": "metadata not found", "mooncake/ram/host-b": "A"} {
		if got := n.metadata("GET", key, ""); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}
