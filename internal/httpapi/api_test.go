package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

const notServing = `{"success":false,"error_code":-1011,"error_message":"this node does not serve; ask 10.0.0.2:9003"}`

func TestQueryKey(t *testing.T) {
	r := newRig(t)
	r.p.Put(nil, "k", "a+b/c d")
	r.reserve("open")
	found := `{"success":true,"data":[{"size_":100,"buffer_address_":4294967296,"protocol_":"","transport_endpoint_":"a:1"}]}`
	r.get("/query_key?key=k", http.StatusOK, found)
	r.get("/query_key?key="+url.QueryEscape("a+b/c d"), http.StatusOK, `{"success":true,"data":[...`)
	r.get("/query_key?key=nothing", http.StatusNotFound, `{"success":false,"error_code":-704,"error_message":"OBJECT_NOT_FOUND"}`)
	r.get("/query_key?key=open", http.StatusNotFound, `{"success":false,"error_code":-703,"error_message":"REPLICA_IS_NOT_READY"}`)
	r.get("/query_key", http.StatusNotFound, `{"success":false,"error_code":-704,"error_message":"OBJECT_NOT_FOUND"}`)
	r.get("/query_key?key=%zz", http.StatusBadRequest, `{"success":false,"error_code":-600,"error_message":"the query cannot be read...`)
	r.get("/query_key?key="+strings.Repeat("k", metadata.MaxKeyBytes+1), http.StatusBadRequest,
		`{"success":false,"error_code":-400,"error_message":"the key has 65537 bytes, at most 65536 are possible; hash long keys"}`)

	if o, err := r.p.Store.Inspect(metadata.DefaultTenant, "k"); err != nil || o.LeaseEnds != r.p.Now().Add(params.HoldTime()) {
		t.Errorf("a query grants no lease: it ends at %d, now is %d, %v; want the lease TTL from now on", o.LeaseEnds, r.p.Now(), err)
	}
}

func TestBatchQueryKeys(t *testing.T) {
	r := newRig(t)
	r.p.Put(nil, "k")
	r.reserve("open")
	before, err := r.p.Store.Inspect(metadata.DefaultTenant, "k")
	if err != nil {
		t.Fatal(err)
	}
	r.p.Pass(time.Second)
	const none = `"disk_values":null,"local_disk_values":null,"nof_values":null`
	r.get("/batch_query_keys?keys=k,nothing,open", http.StatusOK, `{"success":true,"data":{`+
		`"k":{"ok":true,"error":null,"values":[{"size_":100,"buffer_address_":4294967296,"protocol_":"","transport_endpoint_":"a:1"}],`+none+`},`+
		`"nothing":{"ok":false,"error":"OBJECT_NOT_FOUND","values":null,`+none+`},`+
		`"open":{"ok":false,"error":"REPLICA_IS_NOT_READY","values":null,`+none+`}}}`)
	r.get("/batch_query_keys?keys=k,"+strings.Repeat("x", 5000), http.StatusOK, `{"success":true,"data":{"k":{"ok":true...`)
	r.get("/batch_query_keys", http.StatusBadRequest, `{"success":false,"error":"No keys provided. Use ?keys=key1,key2,..."}`)
	r.get("/batch_query_keys?keys=", http.StatusBadRequest, `{"success":false,"error":"No keys provided...`)
	r.get("/batch_query_keys?keys="+strings.Repeat(",", 10_000), http.StatusBadRequest,
		`{"success":false,"error_code":-600,"error_message":"10001 keys are given...`)
	if after, err := r.p.Store.Inspect(metadata.DefaultTenant, "k"); err != nil || after.LeaseEnds != before.LeaseEnds {
		t.Errorf("a query for several keys grants a lease: it ended at %d, now at %d, %v; want no change", before.LeaseEnds, after.LeaseEnds, err)
	}
}

func TestGetAllKeys(t *testing.T) {
	r := newRig(t)
	r.get("/get_all_keys", http.StatusOK, "")
	want := lonetest.Keys("k", 9000) // more than two pages
	r.p.Put(nil, want...)
	r.reserve("open") // nobody can read it yet
	code, body, header := r.request(http.MethodGet, "/get_all_keys")
	got := strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if code != http.StatusOK || !slices.Equal(got, want) || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
		t.Errorf("%d, %v: %d keys, want %d", code, header, len(got), len(want))
	}
}

// A list that ends early must not look like a whole one.
func TestGetAllKeysOfANodeThatLosesItsSession(t *testing.T) {
	r := newRig(t)
	r.p.Put(nil, lonetest.Keys("k", 9000)...)
	r.fences.Store(5) // it gets through the first page
	defer func() {
		if cause := recover(); cause != http.ErrAbortHandler {
			t.Errorf("the answer was not cut off: got %v, want ErrAbortHandler", cause)
		}
	}()
	code, body, _ := r.request(http.MethodGet, "/get_all_keys")
	t.Errorf("got status %d with %d bytes, want a connection that breaks", code, len(body))
}

func TestSegments(t *testing.T) {
	r := newRig(t)
	r.mount(2, "b", 1<<20)
	r.mount(3, "b", 2<<20)
	r.p.Put(func(p *metadata.Put) { p.Preferred = []string{"b"} }, "k")
	r.get("/get_all_segments", http.StatusOK, "a\nb\nb\n")
	r.get("/query_segment?segment=b", http.StatusOK, "b\nUsed(bytes): 104\nCapacity(bytes) : 3145728\n")
	r.get("/query_segment?segment=nowhere", http.StatusInternalServerError, "Failed to query segment")
	r.get("/query_segment", http.StatusInternalServerError, "Failed to query segment")
	const detail = `{"total_segments":3,"segments":[{"segment_name":"a","segment_id":"72057594037927936-0",` +
		`"client_id":"72057594037927936-0","base_address":"0x100000000","size_bytes":16777216,"size_human":"0.015625 GiB",` +
		`"te_endpoint":"a:1","protocol":"","status":"OK","allocator_used_bytes":0,"allocator_capacity_bytes":16777216,` +
		`"allocator_usage_percent":0`
	r.get("/get_segments_detail", http.StatusOK, detail+`},{"segment_name":"b",...`)
	r.extend()
	r.get("/get_segments_detail", http.StatusOK, detail+`,"quarantined_bytes":0},{"segment_name":"b",...`)
	r.mount(4, "c\nd", 1<<20)
	r.get("/query_segment?segment=c%0Ad", http.StatusOK, `"c\nd"`+"\nUsed(bytes): 0\nCapacity(bytes) : 1048576\n")
}

// A segment that takes no new objects is not in the list of those that do, and has its
// figures still.
func TestSegmentsThatTakeNoObjects(t *testing.T) {
	r := newRig(t)
	r.mount(2, "b", 1<<20)
	r.mount(3, "c", 2<<20)
	r.get("/get_all_segments", http.StatusOK, "a\nb\nc\n")
	if err := r.master.GracefulUnmountSegment(t.Context(), segment.ClientID{2}, segment.ID{2}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := r.master.CreateDrainJob(t.Context(), metadata.Drain{Segments: []string{"c"}, Concurrency: 4}); err != nil {
		t.Fatal(err)
	}
	r.get("/get_all_segments", http.StatusOK, "a\n")
	r.get("/query_segment?segment=b", http.StatusOK, "b\nUsed(bytes): 0\nCapacity(bytes) : 1048576\n")
	r.get("/query_segment?segment=c", http.StatusOK, "c\nUsed(bytes): 0\nCapacity(bytes) : 2097152\n")
}

func TestSegmentStatus(t *testing.T) {
	r := newRig(t)
	r.mount(2, "b<1>", 1<<20)
	r.get("/api/v1/segments/status?segment=b%3C1%3E", http.StatusOK,
		`{"success":true,"segment":"b<1>","status":1,"status_name":"OK","error_code":0,"error_message":""}`)
	if err := r.master.GracefulUnmountSegment(t.Context(), segment.ClientID{2}, segment.ID{2}, time.Hour); err != nil {
		t.Fatal(err)
	}
	r.get("/api/v1/segments/status?segment=b%3C1%3E", http.StatusOK,
		`{"success":true,"segment":"b<1>","status":4,"status_name":"GRACEFULLY_UNMOUNTING","error_code":0,"error_message":""}`)
	r.get("/api/v1/segments/status?segment=nowhere", http.StatusNotFound, `{"success":false,"error_code":-101,"error_message":"SEGMENT_NOT_FOUND"}`)
	r.get("/api/v1/segments/status", http.StatusBadRequest, `{"success":false,"error_code":-600,"error_message":"Missing segment query parameter"}`)
}

func TestRemoveAll(t *testing.T) {
	r := newRig(t)
	r.p.Put(nil, "a", "b", "c")
	r.get("/query_key?key=a", http.StatusOK, `{"success":true,...`) // a lease
	for _, step := range []struct{ target, want string }{
		{"/api/v1/remove_all", `{"success":true,"removed_count":2}`},
		{"/api/v1/remove_all?force=no&tenant_id=default", `{"success":true,"removed_count":0}`},
		{"/api/v1/remove_all?force=1&tenant_id=other", `{"success":true,"removed_count":1}`}, // there is one tenant
	} {
		if code, body, _ := r.request(http.MethodPost, step.target); code != http.StatusOK || strings.TrimSpace(body) != step.want {
			t.Errorf("POST %s: got %d %s, want 200 %s", step.target, code, body, step.want)
		}
	}
	for _, want := range []string{`"request":"","peer":"192.0.2.1:1234","objects":2,"result":"OK"`, `"objects":0,"result":"OK"`, `"objects":1,"result":"OK"`} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the audit of remove_all: got\n%s\nwant %s in it", r.log.String(), want)
		}
	}
	if code, _, _ := r.request(http.MethodGet, "/api/v1/remove_all"); code != http.StatusMethodNotAllowed {
		t.Errorf("GET removes: got %d, want %d", code, http.StatusMethodNotAllowed)
	}
}

// Without multi-tenancy there are no quotas. What is wrong with a request comes first.
func TestTenantQuotas(t *testing.T) {
	r := newRig(t)
	const off, missing = `{"success":false,"error_code":-1011,"error_message":"UNAVAILABLE_IN_CURRENT_MODE"}`,
		`{"success":false,"error_code":-600,"error_message":"Missing or invalid tenant_id"}`
	for _, row := range []struct {
		method, query, body string
		code                int
		want                string
	}{
		{http.MethodGet, "", "", http.StatusConflict, off},
		{http.MethodGet, "?tenant_id=a", "", http.StatusConflict, off},
		{http.MethodGet, "?tenant_id=_a", "", http.StatusBadRequest, `{"success":false,"error_code":-600,"error_message":"Invalid tenant_id"}`},
		{http.MethodPut, "?tenant_id=a", `{"requested_quota_bytes":1}`, http.StatusConflict, off},
		{http.MethodPut, "?tenant_id=a", `{}`, http.StatusBadRequest, `{"success":false,"error_code":-600,"error_message":"Tenant quota must be in [1, 2^63 - 1] bytes"}`},
		{http.MethodDelete, "?tenant_id=a", "", http.StatusConflict, off},
		{http.MethodPut, "", "", http.StatusBadRequest, missing},
		{http.MethodDelete, "", "", http.StatusBadRequest, missing},
	} {
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(w, httptest.NewRequest(row.method, "/api/v1/tenant_quotas"+row.query, strings.NewReader(row.body)))
		if w.Code != row.code || strings.TrimSpace(w.Body.String()) != row.want {
			t.Errorf("%s %s %s: got %d %s, want %d %s", row.method, row.query, row.body, w.Code, w.Body, row.code, row.want)
		}
	}
}

// Each of Mooncake's paths has its Content-Type.
func TestContentTypes(t *testing.T) {
	r := newRig(t)
	r.p.Put(nil, "k")
	for target, want := range map[string]string{
		"/metrics/summary": "text/plain; version=0.0.4", "/get_all_keys": "text/plain; version=0.0.4", "/get_all_segments": "text/plain; version=0.0.4",
		"/query_segment?segment=a": "text/plain; version=0.0.4", "/query_segment?segment=nowhere": "text/plain; version=0.0.4",
		"/role": "text/plain; charset=utf-8", "/ha_status": "text/plain; charset=utf-8",
		"/health": "application/json; charset=utf-8", "/leader": "application/json; charset=utf-8", "/kv_events/status": "application/json; charset=utf-8",
		"/query_key?key=k": "application/json; charset=utf-8", "/query_key?key=l": "application/json; charset=utf-8",
		"/batch_query_keys?keys=k": "application/json; charset=utf-8", "/batch_query_keys": "application/json; charset=utf-8",
		"/get_segments_detail": "application/json; charset=utf-8", "/api/v1/segments/status?segment=a": "application/json; charset=utf-8",
		"/api/v1/drain_jobs/query?job_id=1-2": "application/json; charset=utf-8", "/api/v1/tenant_quotas": "application/json; charset=utf-8",
	} {
		if _, _, header := r.request(http.MethodGet, target); header.Get("Content-Type") != want {
			t.Errorf("%s: got Content-Type %q, want %q", target, header.Get("Content-Type"), want)
		}
	}
	if _, _, header := r.request(http.MethodGet, "/metrics"); !strings.HasPrefix(header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("/metrics: got Content-Type %q, want text/plain; version=0.0.4", header.Get("Content-Type"))
	}
}

func TestHealthAndRole(t *testing.T) {
	r := newRig(t)
	const n1, n2 = `"leader_address":"10.0.0.1:50051","view_version":3}`, `"leader_address":"10.0.0.2:50051","view_version":3}`
	r.get("/health", http.StatusOK, `{"status":"ok","role":"leader","ha_state":"serving","service_ready":true,`+n1)
	r.get("/role", http.StatusOK, "leader")
	r.get("/ha_status", http.StatusOK, "serving")
	r.get("/leader", http.StatusOK, `{"present":true,`+n1)
	r.get("/kv_events/status", http.StatusOK,
		`{"enabled":false,"published_batches":0,"published_events":0,"dropped_events":0,"skipped_unparsed_keys":0}`)
	r.get("/readyz", http.StatusOK, "OK")
	r.get("/readyz?role=primary", http.StatusOK, "OK")
	r.get("/readyz?role=standby", http.StatusOK, "OK")
	r.get("/readyz?role=king", http.StatusBadRequest, "role must be primary, standby or witness")
	r.get("/node", http.StatusOK, `{"node_id":"n1","role":"primary","term":3,"serving":true,"promotable":true,`+
		`"leader":{"node_id":"n1","rpc_address":"10.0.0.1:50051","http_address":"10.0.0.1:9003"}}`)

	r.standby()
	r.get("/health", http.StatusOK, `{"status":"ok","role":"standby","ha_state":"standby","service_ready":false,`+n2)
	r.get("/readyz", http.StatusServiceUnavailable, "not serving: this node is standby")
	r.get("/readyz?role=standby", http.StatusOK, "OK")
	r.get("/node", http.StatusOK, `{"node_id":"n1","role":"standby","term":3,"serving":false,"promotable":true,`+
		`"leader":{"node_id":"n2","rpc_address":"10.0.0.2:50051","http_address":"10.0.0.2:9003"}}`)

	r.status.Promotable, r.status.Why = false, "its state is not complete"
	r.get("/readyz?role=standby", http.StatusServiceUnavailable, "not promotable: its state is not complete")
	r.get("/node", http.StatusOK, `{"node_id":"n1","role":"standby","term":3,"serving":false,"promotable":false,`+
		`"not_promotable_because":"its state is not complete","leader":...`)
}

// Upstream's words for each of our roles on a node that does not serve.
func TestRolesOfUpstream(t *testing.T) {
	r := newRig(t)
	r.standby()
	r.status.Leader = nil
	r.get("/node", http.StatusOK, `{"node_id":"n1","role":"standby","term":3,"serving":false,"promotable":true,"leader":null}`)
	r.get("/leader", http.StatusOK, `{"present":false,"leader_address":null,"view_version":null}`)
	for _, row := range []struct {
		ours       promote.Role
		promotable bool
		role, ha   string
	}{
		{promote.Standby, true, "standby", "standby"},
		{promote.Standby, false, "standby", "recovering"},
		{promote.Electing, true, "standby", "candidate"},
		{promote.Promoting, true, "leader", "leader_warmup"},
		{promote.Fenced, true, "leader", "leader_warmup"},
		{promote.HandingOver, true, "leader", "leader_warmup"},
		{promote.Stopping, true, "standby", "starting"},
	} {
		r.status.Role, r.status.Promotable = string(row.ours), row.promotable
		r.get("/role", http.StatusOK, row.role)
		r.get("/ha_status", http.StatusOK, row.ha)
		r.get("/health", http.StatusOK, `{"status":"ok","role":"`+row.role+`","ha_state":"`+row.ha+`","service_ready":false,"leader_address":null,"view_version":null}`)
	}
}

// A node that serves no more must not say what it still holds, whether it knows
// it before the answer is built or learns it meanwhile.
func TestNothingIsAnsweredByANodeThatDoesNotServe(t *testing.T) {
	paths := []string{
		"/query_key?key=k", "/batch_query_keys?keys=k", "/get_all_keys", "/get_all_segments", "/query_segment?segment=a", "/get_segments_detail",
		"/kv_events/status", "/api/v1/segments/status?segment=a", "/api/v1/tenant_quotas",
	}
	r := newRig(t)
	r.p.Put(nil, "k")
	for _, path := range paths {
		r.fenced.Store(true)
		r.get(path, http.StatusServiceUnavailable, notServing)
		r.fenced.Store(false)
		for looks := int64(2); ; looks++ { // the fence closes at each look but the first
			r.fences.Store(looks)
			code, body, _ := r.request(http.MethodGet, path)
			closed := r.fenced.Load()
			r.fences.Store(0)
			r.fenced.Store(false)
			if !closed {
				break // it was not looked at so often
			}
			if code != http.StatusServiceUnavailable || strings.TrimSpace(body) != notServing {
				t.Errorf("%s, the fence closed at look %d: %d %s; want 503, %s", path, looks, code, body, notServing)
			}
		}
	}
	r.standby()
	for _, path := range paths {
		r.get(path, http.StatusServiceUnavailable, notServing)
	}
	r.get("/metrics", http.StatusOK, "...")
	r.get("/metrics/summary", http.StatusOK, "role=standby, state=standby, service_ready=false, master={Mem Storage: ...")
}

// Who asks over HTTP is told where to ask over HTTP, or that nobody knows.
func TestWhereToAskInstead(t *testing.T) {
	r := newRig(t)
	r.standby()
	r.get("/query_key?key=k", http.StatusServiceUnavailable, notServing)
	r.status.Leader.HTTP = ""
	r.get("/query_key?key=k", http.StatusServiceUnavailable,
		`{"success":false,"error_code":-1011,"error_message":"this node does not serve; ask node n2 at its HTTP address"}`)
	r.status.Leader = nil
	r.gate.Close(service.Hint{})
	r.get("/query_key?key=k", http.StatusServiceUnavailable,
		`{"success":false,"error_code":-1011,"error_message":"this node does not serve, and it knows of none that does; ask again"}`)
}

func TestMetrics(t *testing.T) {
	r := newRig(t)
	r.p.Put(nil, "k")
	_, body, _ := r.request(http.MethodGet, "/metrics")
	for _, line := range []string{"master_key_count 1", `understudy_role{role="primary"} 1`, `segment_allocated_bytes{segment="a"} 104`, "go_goroutines "} {
		if !strings.Contains(body, "\n"+line) {
			t.Errorf("/metrics: got no line %q, want one", line)
		}
	}
	_, body, _ = r.request(http.MethodGet, "/metrics/summary")
	for _, part := range []string{
		"role=leader, state=serving, service_ready=true, master={Mem Storage: 104 B / 16.00 MB (0.0%) | NVMe-oF SSD: 0 B / 0 B | SSD Storage: 0 B / 0 B | Keys: 1 (",
		"Snapshots: Success=0, Fail=0}, ha={HA Metrics Summary: last_seq=", ", state=7}, leader=10.0.0.1:50051, view_version=3",
	} {
		if !strings.Contains(body, part) {
			t.Errorf("got the summary %q, want %q in it", body, part)
		}
	}
	r.extend()
	r.get("/metrics/summary", http.StatusOK, "Role: primary, term...")
}

func TestOtherRequests(t *testing.T) {
	r := newRig(t)
	for target, want := range map[string]int{"/": http.StatusNotFound, "/nothing": http.StatusNotFound, "/metrics/": http.StatusNotFound} {
		if code, _, _ := r.request(http.MethodGet, target); code != want {
			t.Errorf("GET %s: %d, want %d", target, code, want)
		}
	}
	if code, _, header := r.request(http.MethodPost, "/query_key?key=k"); code != http.StatusMethodNotAllowed || header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: got %d, %v; want StatusMethodNotAllowed and \"GET, HEAD\"", code, header)
	}
	if _, _, header := r.request(http.MethodGet, "/get_all_segments"); header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("got %v, want \"nosniff\"", header)
	}
}

func TestNoKeyIsLogged(t *testing.T) {
	r := newRig(t)
	for _, target := range []string{"/query_key?key=secret", "/batch_query_keys?keys=secret", "/query_key?key=" + strings.Repeat("secret", 1000)} {
		r.request(http.MethodGet, target)
	}
	log := r.log.String()
	if n := strings.Count(log, `"path":"/`); n != 3 || strings.Contains(log, "secret") {
		t.Errorf("the log of three requests for a key: got %d lines, want 3, none with the key:\n%s", n, log)
	}
}

// A key that is being changed is waited for.
func TestQueryKeyWaitsForAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.p.Put(nil, "k")
		removal := r.p.Remove("k", false)
		answered := make(chan int, 2)
		ask := func() {
			code, _, _ := r.request(http.MethodGet, "/query_key?key=k")
			answered <- code
		}
		go ask()
		synctest.Wait()
		select {
		case code := <-answered:
			t.Fatalf("not waited for: %d; want an answer when the object has changed, or never", code)
		default:
		}
		if code := <-answered; code != http.StatusServiceUnavailable { // time passes, and nothing is written
			t.Errorf("after a while: %d; want 503", code)
		}
		go ask()
		synctest.Wait()
		r.p.Commit(removal)
		if code := <-answered; code != http.StatusNotFound {
			t.Errorf("after the removal: got %d, want StatusNotFound", code)
		}
	})
}
