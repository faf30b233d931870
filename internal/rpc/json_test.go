package rpc_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/security/access"
)

const over = "/understudy.v1.AdminService/"

// json asks over HTTP, and returns the status and the body.
func (n *node) json(method, path, body string) (int, string) {
	n.t.Helper()
	w := httptest.NewRecorder()
	n.server.JSON().ServeHTTP(w, httptest.NewRequestWithContext(n.t.Context(), method, over+path, strings.NewReader(body)))
	b, err := io.ReadAll(w.Body)
	if err != nil || !json.Valid(b) && w.Code != http.StatusMethodNotAllowed && w.Code != http.StatusNotFound {
		n.t.Errorf("%s %s: %q, %v; want JSON", method, path, b, err)
	}
	return w.Code, strings.ReplaceAll(string(b), " ", "") // protojson varies spaces
}

func TestJSON(t *testing.T) {
	n := newNode(t).mount()
	n.put("a&b", "c")
	n.admin.status = func() (*pb.StatusResponse, error) { return &pb.StatusResponse{LeaderNodeId: me}, nil }
	for _, test := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "Status", "", 200, `"leader_node_id":"node-1"`},
		{"POST", "Status", "", 200, `"leader_node_id":"node-1"`},
		{"GET", "QueryKey?key=a%26b", "", 200, `"size":"100"`},
		{"POST", "QueryKey", `{"key":"a&b"}`, 200, `"size":"100"`},
		{"GET", "ListKeys?regex=%5Ec&page_size=10", "", 200, `"keys":["c"]`},
		{"GET", "QueryKey?key=b", "", 404, `"kind":"KIND_OBJECT_NOT_FOUND"`},
		{"GET", "QueryKey?nothing=b", "", 400, "nofield"}, // not left out: the rest may be an order
		{"GET", "QueryKey?key.x=b", "", 400, "nofield"},
		{"GET", "ListKeys?page_size=many", "", 400, "page_size"},
		{"GET", "ListKeys?a=%zz", "", 400, "thefields"},
		{"POST", "QueryKey", `{"nothing":1}`, 400, "nothing"},
		{"POST", "QueryKey", strings.Repeat("x", 600<<10), 400, "524288"},
		{"GET", "Handover?term=3", "", 405, ""},
		{"POST", "Handover", `{"term":3}`, 200, `"leader_address":"b:2"`},
		{"POST", "Handover", `{"term":"3","target_node_id":"x"}`, 400, `"kind":"KIND_INVALID_PARAMS"`},
		{"POST", "Backup", "{}", 404, ""}, // files are for gRPC
		{"POST", "Refound", "{}", 404, ""},
	} {
		if code, body := n.json(test.method, test.path, test.body); code != test.code || !strings.Contains(body, test.want) {
			t.Errorf("%s %s: got %d %s; want %d %s", test.method, test.path, code, body, test.code, test.want)
		}
	}
	form := httptest.NewRequestWithContext(t.Context(), "POST", over+"PauseTakeover", strings.NewReader("for_ms=60000"))
	form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	n.server.JSON().ServeHTTP(w, form)
	if w.Code != 200 || !strings.Contains(n.logged.String(), `"order":"PauseTakeover"`) || !strings.Contains(n.logged.String(), "for_ms:60000") {
		t.Errorf("a form: got %d %s, logged %s; want 200, and the order", w.Code, w.Body, n.logged)
	}
	if log := n.logged.String(); strings.Count(log, `"order":"Handover"`) != 2 || !strings.Contains(log, `"peer":"192.0.2.1:1234"`) {
		t.Errorf("logged %s; want both orders, with the peer", log)
	}
	n.admin.status = func() (*pb.StatusResponse, error) { panic("odd") }
	if code, body := n.json("GET", "Status", ""); code != 500 || strings.Contains(body, "odd") {
		t.Errorf("a panic: got %d %s, want 500", code, body)
	}
}

// Whoever has no role is refused, and so is one whose requests are not finished.
func TestJSONIsGuarded(t *testing.T) {
	callers, err := access.New("", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, func(c *rpc.Config) { c.Callers = callers })
	if code, body := n.json("POST", "Handover", `{"term":3}`); code != 403 || !strings.Contains(body, "ILLEGAL_CLIENT") {
		t.Errorf("got %d %s, want 403 and ILLEGAL_CLIENT", code, body)
	}
	if !strings.Contains(n.logged.String(), `"result":"ILLEGAL_CLIENT"`) {
		t.Errorf("logged %s, want what was refused", n.logged)
	}
	n = newNode(t, func(c *rpc.Config) { c.Limits.Bytes = 1 << 19 })
	if code, body := n.json("POST", "Status", ""); code != 503 || !strings.Contains(body, "finish") {
		t.Errorf("got %d %s, want 503", code, body)
	}
}

// Large answers count until they are written.
func TestLargeJSONCounts(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Bytes = 1 << 20 }).mount()
	for i := range 80 {
		n.put(strings.Repeat(string(rune('0'+i)), 4000))
	}
	for range 10 {
		if code, body := n.json("GET", "ListKeys", ""); code != 200 || len(body) < 300_000 {
			t.Fatalf("got %d and %d bytes, want 200 and all keys", code, len(body))
		}
	}
}
