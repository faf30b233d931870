package rpc_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/metadata"
)

// FuzzJSON sends any query and body to the calls of AdminService over HTTP: each is
// answered, and none is a defect.
func FuzzJSON(f *testing.F) {
	n := newNode(f).mount()
	n.put("a")
	n.admin.status = func() (*pb.StatusResponse, error) { return new(pb.StatusResponse), nil }
	n.admin.digest = func(_ context.Context, seq metadata.Seq) (metadata.Seq, metadata.Digest, error) { return seq, 0, nil }
	n.admin.events = func(_ context.Context, _ metadata.Seq, _ bool, yield func(*pb.EventsResponse, error) bool) {
		yield(new(pb.EventsResponse), nil)
	}
	calls := []string{"Events", "DumpRanges"}
	for _, m := range pb.AdminService_ServiceDesc.Methods {
		calls = append(calls, m.MethodName)
	}
	for i := range calls {
		f.Add(uint8(i), false, "key=a&regex=^a&page_size=1&term=1&sequence=3", "")
		f.Add(uint8(i), false, "from_sequence=1&follow=true&limit=2&segment_id=00000000-0000-0000-0000-000000000001", "")
		f.Add(uint8(i), true, "", `{"key":"a","regex":"^a","term":"1","for_ms":"7"}`)
		f.Add(uint8(i), true, "form", "key=a&term=%zz&header.term=1&a.b.c=d")
	}
	h := n.server.JSON()
	f.Fuzz(func(t *testing.T, call uint8, post bool, query, body string) {
		method := http.MethodGet
		if post {
			method = http.MethodPost
		}
		name := calls[int(call)%len(calls)]
		r := httptest.NewRequest(method, "/", strings.NewReader(body))
		r.URL = &url.URL{Path: "/" + pb.AdminService_ServiceDesc.ServiceName + "/" + name, RawQuery: query}
		if query == "form" {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError && !strings.Contains(w.Body.String(), "cannot be written as JSON") {
			t.Fatalf("%s %s?%s with %q: got %d %s, want an answer that is no defect", method, name, query, body, w.Code, w.Body)
		}
	})
}
