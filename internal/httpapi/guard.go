package httpapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/access"
)

const (
	// maxLogged is how many bytes of a path, or of a query, are logged with an order.
	maxLogged = 300
	// maxRefusals are logged in a minute.
	maxRefusals = 100
)

// roleFor returns the roles that may make a request; Nobody if anybody may.
func roleFor(r *http.Request) access.Roles {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return access.Operator
	}
	switch r.URL.Path {
	case "/metrics", "/metrics/summary", "/health", "/role", "/ha_status", "/leader", "/readyz", "/node", "/kv_events/status", "/openapi.json":
		return access.Nobody // no keys; of names those of nodes, and of segments and tenants in metrics
	case "/query_key", "/batch_query_keys": // of clients; one grants a lease
		return access.Client | access.Operator
	case "/", "/get_all_segments", "/get_segments_detail", "/query_segment", "/api/v1/segments/status", "/api/v1/drain_jobs/query", "/api/v1/tenant_quotas":
		return access.Viewer | access.Operator
	}
	if strings.HasPrefix(r.URL.Path, "/console/") {
		return access.Viewer | access.Operator
	}
	return access.Operator // profiles, and lists of all keys
}

type callerKey struct{}

// MayOrder reports whether the caller of a request may give orders: an operator, or without
// roles anybody. It is for what a page offers; each order is judged by itself.
func MayOrder(ctx context.Context) bool {
	who, known := ctx.Value(callerKey{}).(access.Identity)
	return !known || who.Role&access.Operator != 0
}

// guarded refuses requests under foreign names, and those whose callers lack a role, and
// logs orders.
func (a API) guarded(next http.Handler) http.Handler {
	refusals, idle, unsure := access.NewFewLines(a.Log, maxRefusals), access.NewFewLines(a.Log, maxRefusals), access.NewFewLines(a.Log, maxRefusals)
	return Shielded(a.Hosts, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, AdminPath) {
			next.ServeHTTP(w, r) // its calls have roles and an audit of their own
			return
		}
		need := roleFor(r)
		var who access.Identity
		var err error
		if a.Callers != nil && need != access.Nobody {
			if who, err = a.Callers.Identify(r.TLS, r.Header.Get("Authorization")); err == nil {
				err = who.Check(need, r.URL.Path)
			}
		}
		if err != nil {
			a.audit(refusals.Info, r, who, "a call was refused", errs.KindOf(err).String(), nil)
			writeText(w, http.StatusForbidden, err.Error())
			return
		}
		if a.Callers != nil {
			r = r.WithContext(context.WithValue(r.Context(), callerKey{}, who))
		}
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		ordered := &orderWriter{ResponseWriter: w, result: errs.Internal.String()} // if it panics
		defer func() {
			line := a.Log.Info
			switch { // anybody may give the others without end
			case ordered.changed, ordered.removed == nil && ordered.code < http.StatusBadRequest:
			case ordered.unsure:
				line = func() *zerolog.Event { return unsure.InfoOf(hostOf(r)) }
			default:
				line = func() *zerolog.Event { return idle.InfoOf(hostOf(r)) }
			}
			a.audit(line, r, who, "an order was given", ordered.result, ordered.removed)
		}()
		next.ServeHTTP(ordered, r)
		ordered.answered(http.StatusOK)
	}))
}

// Shielded refuses requests by which a page of another site would change something, and
// requests to other host names than hosts. IP addresses and localhost are always allowed; with
// no hosts, any name is.
func Shielded(hosts []string, next http.Handler) http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !knows(hosts, r.Host) {
			writeText(w, http.StatusMisdirectedRequest, "this node is not known by that name; add it to --http-hosts")
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// An orderWriter notes what an order is answered with.
type orderWriter struct {
	http.ResponseWriter
	code    int
	result  string
	removed *int // objects; nil if the order removes none
	changed bool // some were removed, or may have been
	unsure  bool // it is not known whether the order changed something
}

func (w *orderWriter) WriteHeader(code int) {
	w.answered(code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *orderWriter) Write(b []byte) (int, error) {
	w.answered(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *orderWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// answered notes the first code.
func (w *orderWriter) answered(code int) {
	switch {
	case w.code != 0:
		return
	case code < http.StatusBadRequest:
		w.result = errs.OK.String()
	default:
		w.result = fmt.Sprintf("%d %s", code, http.StatusText(code))
	}
	w.code = code
}

func (a API) audit(begin func() *zerolog.Event, r *http.Request, who access.Identity, what, result string, removed *int) {
	line := begin().Str("part", "audit").Str("order", r.Method+" "+start(r.URL.Path)).Str("request", start(r.URL.RawQuery)).Str("peer", r.RemoteAddr)
	if a.Callers != nil {
		line.Str("identity", who.Name).Stringer("role", who.Role)
	}
	if removed != nil {
		line.Int("objects", *removed)
	}
	line.Str("result", result).Msg(what)
}

// start returns as much of a text as is logged: callers that may give no orders can
// send long ones, too.
func start(text string) string { return text[:min(len(text), maxLogged)] }

// knows reports whether requests may name a host: one of hosts, an address or localhost. A web
// page of another site could have its own name lead here, but no address.
func knows(hosts []string, host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	_, err := netip.ParseAddr(host)
	return len(hosts) == 0 || err == nil || host == "localhost" || slices.Contains(hosts, host)
}
