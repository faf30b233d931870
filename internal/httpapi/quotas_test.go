package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/service"
)

func TestQuotas(t *testing.T) {
	r := newRig(t)
	on := *r.master
	on.Tenants = true
	r.master = service.NewMaster(on)
	r.gate.Open(r.master)
	for _, row := range []struct {
		method, query, body string
		code                int
		want                string
	}{
		{http.MethodGet, "", "", 200, `{"success":true,"data":[]}`},
		{http.MethodPut, "?tenant_id=red", `{"requested_quota_bytes":4096}`, 200, `{"success":true,"data":{"tenant_id":"red","requested_quota_bytes":4096,` +
			`"effective_quota_bytes":4096,"charged_bytes":0,"admission_closed":false,"over_quota":false,"has_explicit_policy":true}}`},
		{http.MethodGet, "?tenant_id=red", "", 200, `{"success":true,"data":{"tenant_id":"red",`},
		{http.MethodGet, "", "", 200, `{"success":true,"data":[{"tenant_id":"red",`},
		{http.MethodGet, "?tenant_id=blue", "", 404, `{"success":false,"error_code":-704,"error_message":"OBJECT_NOT_FOUND"}`},
		{http.MethodGet, "?tenant_id=_x", "", 400, `{"success":false,"error_code":-600,"error_message":"Invalid tenant_id"}`},
		{http.MethodPut, "?tenant_id=_x", `{"requested_quota_bytes":1}`, 400, `{"success":false,"error_code":-600,`},
		{http.MethodPut, "?tenant_id=red", `{"requested_quota_bytes":0}`, 400, `{"success":false,"error_code":-600,"error_message":"Tenant quota must be in [1, 2^63 - 1] bytes"}`},
		{http.MethodPut, "?tenant_id=red", `nonsense`, 400, `{"success":false,"error_code":-600,"error_message":"Invalid JSON body`},
		{http.MethodDelete, "?tenant_id=blue", "", 404, `{"success":false,"error_code":-704,`},
		{http.MethodDelete, "?tenant_id=red", "", 200, `{"success":true,"data":null}`},
		{http.MethodGet, "", "", 200, `{"success":true,"data":[]}`},
	} {
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(w, httptest.NewRequest(row.method, "/api/v1/tenant_quotas"+row.query, strings.NewReader(row.body)))
		if w.Code != row.code || !strings.HasPrefix(w.Body.String(), row.want) {
			t.Errorf("%s %s %s: got %d %s, want %d %s", row.method, row.query, row.body, w.Code, w.Body, row.code, row.want)
		}
	}
}
