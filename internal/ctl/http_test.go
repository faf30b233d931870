package ctl

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
)

// What a node answers to an HTTP request in place of a result is passed on in its words.
func TestHTTPRefusals(t *testing.T) {
	const canned = "the job has ended"
	for _, c := range []struct {
		code int
		body string
		kind errs.Kind
		want string
	}{
		{http.StatusServiceUnavailable, "too many requests are under way here, or from your host; try again", errs.Unavailable, "too many requests are under way here"},
		{http.StatusMisdirectedRequest, "this node is not known by that name; add it to --http-hosts", errs.Unavailable, "add it to --http-hosts"},
		{http.StatusBadGateway, "a proxy's page", errs.Unresolved, "answers with status 502"},
		{http.StatusOK, "what", errs.Unresolved, "answers with status 200"},
		{http.StatusConflict, `{"error_code":-1010,"error_message":"etcd is nearly full; try again"}`, errs.Unavailable, "UNAVAILABLE_IN_CURRENT_STATUS: etcd is nearly full"},
		{http.StatusConflict, `{"error_code":-1010,"error_message":"UNAVAILABLE_IN_CURRENT_STATUS"}`, errs.Unavailable, "UNAVAILABLE_IN_CURRENT_STATUS: " + canned},
		{http.StatusBadRequest, `{"error_code":-600,"error_message":"INVALID_PARAMS"}`, errs.InvalidParams, "INVALID_PARAMS: too many"}, // has a reason
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.code == http.StatusBadRequest {
				w.Header().Set(pb.ReasonHeader, "too many")
			}
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.body))
		}))
		t.Cleanup(s.Close)
		n := &node{as: new(caller), status: &pb.StatusResponse{
			Node: &pb.Node{Role: pb.Role_ROLE_PRIMARY, HttpAddress: s.Listener.Addr().String()},
		}}
		err := nodes{n}.askPrimary(t.Context(), "Drain", http.MethodPost, "/x", nil, new(struct{}), canned)
		if err == nil || errs.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), canned) != strings.Contains(c.want, canned) {
			t.Errorf("%d %s: got %v of kind %v, want %q and %v", c.code, c.body, err, errs.KindOf(err), c.want, c.kind)
		}
		if errors.Is(err, errs.Unresolved) != (c.kind == errs.Unresolved) {
			t.Errorf("%d %s: got %v, want its outcome open: %v", c.code, c.body, err, c.kind == errs.Unresolved)
		}
	}
}
