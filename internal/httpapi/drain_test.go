package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// Drain jobs have upstream's paths, fields and status codes.
func TestDrainJobs(t *testing.T) {
	r := newRig(t)
	r.mount(2, "b", 1<<20)
	do := func(method, target, body string, code int, want string, reason ...string) string {
		t.Helper()
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
		got, err := io.ReadAll(w.Result().Body)
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.TrimSpace(string(got)); w.Code != code || !regexp.MustCompile("^"+want+"$").MatchString(text) {
			t.Errorf("%s %s %s:\n got %d %s\nwant %d %s", method, target, body, w.Code, text, code, want)
		}
		if said := w.Header().Get("Understudy-Reason"); said != strings.Join(reason, "") {
			t.Errorf("%s %s %s: got the reason %q, want %q", method, target, body, said, reason)
		}
		return string(got)
	}
	const path = "/api/v1/drain_jobs"
	do(http.MethodPost, path, `{`, 400, `{"success":false,"error_code":-600,"error_message":"Invalid JSON body: .*"}`)
	do(http.MethodPost, path, `{"segments":[]}`, 400, `{"success":false,"error_code":-600,"error_message":"INVALID_PARAMS"}`, "give segments, and a max_concurrency above 0")
	do(http.MethodPost, path, `{"segments":["x"]}`, 404, `{"success":false,"error_code":-101,"error_message":"SEGMENT_NOT_FOUND"}`, `segment "x" is not mounted`)
	created := do(http.MethodPost, path, `{"segments":["b"],"target_segments":["a"],"max_concurrency":2}`, 200,
		`{"success":true,"job_id":"[0-9]+-[0-9]+","status":"CREATED","error_code":0,"error_message":""}`)
	id := regexp.MustCompile("[0-9]+-[0-9]+").FindString(created)
	do(http.MethodPost, path, `{"segments":["b"]}`, 409, `{"success":false,"error_code":-1010,"error_message":"UNAVAILABLE_IN_CURRENT_STATUS"}`, `segment "b" takes no new objects`)
	do(http.MethodGet, "/api/v1/segments/status?segment=b", "", 200, `{.*"status":2,"status_name":"DRAINING",.*`)
	do(http.MethodGet, path+"/query?job_id="+id, "", 200, `{"success":true,"job_id":"`+id+`","type":0,"type_name":"DRAIN","status":2,"status_name":"RUNNING",`+
		`"created_at_ms_epoch":[0-9]{13},"last_updated_at_ms_epoch":[0-9]{13},"segments":\["b"\],"succeeded_units":0,"failed_units":0,"blocked_units":0,`+
		`"active_units":0,"migrated_bytes":0,"message":"Drain job running","error_code":0,"error_message":""}`)
	do(http.MethodGet, path+"/query", "", 400, `{"success":false,"error_code":-600,"error_message":"Missing or invalid job_id"}`)
	do(http.MethodGet, path+"/query?job_id=1-2", "", 404, `{"success":false,"error_code":-1402,"error_message":"JOB_NOT_FOUND"}`)
	do(http.MethodPost, path+"/cancel?job_id="+id, "", 200, `{"success":true,"job_id":"`+id+`","status":"CANCELED","error_code":0,"error_message":""}`)
	do(http.MethodPost, path+"/cancel?job_id="+id, "", 409, `{"success":false,"error_code":-1010,"error_message":"UNAVAILABLE_IN_CURRENT_STATUS"}`, "the job has ended: it is CANCELED")
	do(http.MethodPost, path+"/cancel?job_id=x", "", 400, `{"success":false,"error_code":-600,"error_message":"Missing or invalid job_id"}`)
	do(http.MethodPost, path+"/cancel?job_id=1-2", "", 404, `{"success":false,"error_code":-1402,"error_message":"JOB_NOT_FOUND"}`)
	do(http.MethodGet, "/api/v1/segments/status?segment=b", "", 200, `{.*"status":1,"status_name":"OK",.*`)
}
