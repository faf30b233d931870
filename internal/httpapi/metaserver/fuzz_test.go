package metaserver_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/internal/httpapi/metaserver"
)

// FuzzRequests sends any query and body: what was put is got again, and nothing fails but
// for what the request says.
func FuzzRequests(f *testing.F) {
	methods := []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPost}
	for m := range methods {
		f.Add(uint8(m), "key=a", []byte("{}"))
		f.Add(uint8(m), "key=mooncake%2Frpc_meta%2Fa&key=b", []byte(nil))
		f.Add(uint8(m), "%zz&key=;", []byte("\x00"))
	}
	h := metaserver.Handler(new(metaserver.Memory), zerolog.Nop())
	ask := func(method, query string, body []byte) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/metadata", bytes.NewReader(body))
		r.URL = &url.URL{Path: "/metadata", RawQuery: query}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	f.Fuzz(func(t *testing.T, method uint8, query string, body []byte) {
		m := methods[int(method)%len(methods)]
		w := ask(m, query, body)
		switch w.Code {
		case http.StatusOK, http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusInsufficientStorage:
		default:
			t.Fatalf("%s %q: got %d %s, want a status that says what is wrong with the request", m, query, w.Code, w.Body)
		}
		if got := ask(http.MethodGet, query, nil); m == http.MethodPut && w.Code == http.StatusOK && len(body) > 0 && !bytes.Equal(got.Body.Bytes(), body) && got.Code != http.StatusNotFound {
			t.Fatalf("GET %q: got %q, want what was put: %q", query, got.Body, body)
		}
		_ = ask(http.MethodDelete, query, nil)
	})
}
