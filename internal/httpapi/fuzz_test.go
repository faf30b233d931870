package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// FuzzRequests sends any query and body to each path: the answer is no defect.
func FuzzRequests(f *testing.F) {
	paths := []string{
		"/query_key", "/batch_query_keys", "/get_all_keys", "/get_all_segments", "/get_segments_detail", "/query_segment", "/kv_events/status",
		"/api/v1/segments/status", "/api/v1/drain_jobs", "/api/v1/drain_jobs/query", "/api/v1/drain_jobs/cancel", "/api/v1/tenant_quotas",
		"/api/v1/remove_all", "/metrics", "/openapi.json", "/health", "/role", "/ha_status", "/leader", "/readyz", "/node", "/metrics/summary", "/x",
	}
	methods := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodHead}
	for i := range paths {
		for m := range methods {
			f.Add(uint8(i), uint8(m), "key=a&keys=a,b&tenant_id=x&segment=s&force=1&job_id=1", []byte(`{"segments":["a"],"tenant_id":"x","quota_bytes":"1GiB"}`))
		}
		f.Add(uint8(i), uint8(0), "key=%zz;&keys=,,&segment=%00%0a", []byte("{"))
	}
	r, emptied := newRig(f), newRig(f) // one keeps its objects
	r.reserve("a", "b")
	emptied.reserve("a", "b")
	f.Fuzz(func(t *testing.T, path, method uint8, query string, body []byte) {
		q := httptest.NewRequest(methods[int(method)%len(methods)], paths[int(path)%len(paths)], strings.NewReader(string(body)))
		q.URL = &url.URL{Path: q.URL.Path, RawQuery: query}
		w := httptest.NewRecorder()
		asked := r
		if q.URL.Path == "/api/v1/remove_all" {
			asked = emptied
		}
		asked.handler.ServeHTTP(w, q)
		asUpstream := strings.HasPrefix(w.Body.String(), "Failed to query segment") // of one that there is not
		if w.Code == http.StatusInternalServerError && !asUpstream && q.Method != http.MethodHead || w.Code < 200 || w.Code > 599 {
			t.Fatalf("%s %s?%s with %q: got %d %s, want an answer that is no defect", q.Method, q.URL.Path, query, body, w.Code, w.Body)
		}
	})
}
