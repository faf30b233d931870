package httpapi

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
)

// Each order has its result in the log.
func TestOrdersHaveResults(t *testing.T) {
	var log bytes.Buffer
	a := API{Gate: service.NewGate(), Node: func() NodeStatus { return NodeStatus{} }, Metrics: http.NotFoundHandler(), Log: zerolog.New(&log)}
	for result, h := range map[string]http.Handler{
		"503 Service Unavailable": a.Handler(),
		"OK":                      a.guarded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})),
		"INTERNAL_ERROR":          a.guarded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })),
		"409 Conflict":            a.guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) })),
	} {
		log.Reset()
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/api/v1/remove_all?force=1", nil))
		}()
		for _, want := range []string{`"order":"POST /api/v1/remove_all"`, `"request":"force=1"`, `"result":"` + result + `"`} {
			if strings.Count(log.String(), want) != 1 {
				t.Errorf("the log has %s, want one %s", log.String(), want)
			}
		}
	}
}

// Who has had all lines that a host gets for nothing leaves one of an order that removed
// something before it failed, one of an order whose outcome is not known, and those of other
// hosts.
func TestIdleOrdersFillNoLog(t *testing.T) {
	var log bytes.Buffer
	a := API{Gate: service.NewGate(), Node: func() NodeStatus { return NodeStatus{} }, Metrics: http.NotFoundHandler(), Log: zerolog.New(&log)}
	var answer func(*orderWriter)
	h := a.guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w.(*orderWriter))
	}))
	give := func(query, from string) {
		r := httptest.NewRequest("POST", "/api/v1/remove_all?"+query, nil)
		r.RemoteAddr = from
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	for range 60 {
		answer = func(w *orderWriter) { w.WriteHeader(http.StatusBadRequest) }
		give("bad", "10.0.0.1:1")
		answer = func(w *orderWriter) { w.removed = new(int) }
		give("none", "10.0.0.1:1")
	}
	if n := strings.Count(log.String(), "\n"); n != 50 {
		t.Errorf("%d lines of orders that changed nothing, want 50 of one host", n)
	}
	give("elsewhere", "10.0.0.2:1")
	answer = func(w *orderWriter) {
		w.removed, w.changed = new(1), true
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	give("halfway", "10.0.0.1:1")
	answer = func(w *orderWriter) { a.fail(w, httptest.NewRequest("POST", "/", nil), errs.Unresolved) }
	give("open", "10.0.0.1:1")
	for _, want := range []string{"elsewhere", "halfway", "open"} {
		if strings.Count(log.String(), `"request":"`+want+`"`) != 1 {
			t.Errorf("the audit: got %s, want one line of %s", log.String(), want)
		}
	}
}

// A page of another site may have its name lead here, or post a form.
func TestForeignPages(t *testing.T) {
	admin := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	a := API{Admin: admin, Gate: service.NewGate(), Node: func() NodeStatus { return NodeStatus{} }, Metrics: http.NotFoundHandler(), Log: zerolog.Nop(), Hosts: []string{"node.example"}}
	for _, test := range []struct {
		method, host, site string
		want               int
	}{
		{"GET", "127.0.0.1:9003", "", 200},
		{"GET", "[::1]:9003", "", 200},
		{"GET", "localhost:1", "", 200},
		{"GET", "Node.Example:9003", "", 200},
		{"GET", "evil.example:9003", "", 421},
		{"GET", "evil.example", "", 421},
		{"POST", "127.0.0.1:9003", "cross-site", 403},
		{"POST", "127.0.0.1:9003", "", 503},
		{"CALL", "127.0.0.1:9003", "", 202},
		{"CALL", "127.0.0.1:9003", "same-origin", 202},
		{"CALL", "127.0.0.1:9003", "cross-site", 403},
		{"CALL", "evil.example", "same-origin", 421},
	} {
		r := httptest.NewRequest(test.method, "/node", nil)
		switch test.method {
		case "CALL":
			r = httptest.NewRequest("POST", AdminPath+"Handover", nil)
		case "POST":
			r = httptest.NewRequest(test.method, "/api/v1/remove_all", nil)
		}
		r.Host = test.host
		if test.site != "" {
			r.Header.Set("Sec-Fetch-Site", test.site)
		}
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("%s for %s from %q: got %d, want %d", test.method, test.host, test.site, w.Code, test.want)
		}
	}
	if got := start(strings.Repeat("x", 100_000)); len(got) != maxLogged {
		t.Errorf("%d bytes of a query are logged, want %d", len(got), maxLogged)
	}
}
