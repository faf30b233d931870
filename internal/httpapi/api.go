package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/rs/zerolog"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/internal/service"
)

// A NodeStatus is the status of this node, and the body of /node.
type NodeStatus struct {
	NodeID     string  `json:"node_id"`
	Role       string  `json:"role"`       // a promote.Role, or Witness
	Term       uint64  `json:"term"`       // the newest one that this node knows of
	Serving    bool    `json:"serving"`    // as in the gate; filled in here
	Promotable bool    `json:"promotable"` // it holds a complete state
	Why        string  `json:"not_promotable_because,omitempty"`
	Leader     *Leader `json:"leader"` // null if none is known
	// Obstacle is why no node serves, as far as this one knows, and Help what an
	// operator can do.
	Obstacle string `json:"no_node_serves_because,omitempty"`
	Help     string `json:"what_to_do,omitempty"`
}

// Witness is the role of a node that runs a member of etcd and nothing else.
const Witness = "witness"

// A Leader is the elected node.
type Leader struct {
	NodeID string `json:"node_id"`
	RPC    string `json:"rpc_address"`
	HTTP   string `json:"http_address"`
}

// API is what answers are made of.
type API struct {
	Gate    *service.Gate
	Node    func() NodeStatus // it must not block
	Admin   http.Handler      // answers below AdminPath, and checks roles itself; nil for none
	Metrics http.Handler      // answers scrapes
	Summary func() string     // the key figures as one line
	// MooncakeSummary returns them as Mooncake's master writes them: its own, and those
	// of high availability.
	MooncakeSummary func() (master, ha string)
	// Extended adds what Mooncake's answers do not have, and takes Summary.
	Extended bool
	// KVEvents returns the body of /kv_events/status.
	KVEvents func() any
	Console  http.Handler    // answers below /console/; nil for none
	Log      zerolog.Logger  // without the field "part", which differs between orders and requests
	Callers  *access.Callers // nil if everybody may do all
	Hosts    []string        // names under which requests may come; none for any
	Pprof    bool            // answer below /debug/pprof/

	lists   *share.Budget // of maxLists
	queries *share.Budget // of maxQueriesBytes
	pace    pace          // of /get_all_keys; zero for pageTimeout and keysRate
}

// Handler returns the handler of all paths.
func (a API) Handler() http.Handler {
	a.lists = share.NewBudget(share.Rule{Total: maxLists, Peer: maxLists / 2, Few: maxLists})
	a.queries = share.NewBudget(share.NewRule("bytes", "", maxQueriesBytes, 0.5, fewQueryBytes))
	if a.pace == (pace{}) {
		a.pace = pace{pageTimeout, keysRate}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", scrapes(a.Metrics))
	if a.Admin != nil {
		mux.Handle(AdminPath, a.Admin)
	}
	if a.Console != nil {
		mux.Handle("GET /console/", a.Console)
		mux.Handle("GET /{$}", http.RedirectHandler("/console/", http.StatusFound))
	}
	if a.Pprof {
		mux.Handle("GET /debug/pprof/", profiles())
	}
	for pattern, h := range map[string]http.HandlerFunc{
		"GET /metrics/summary": a.summary,
		"GET /health":          a.health,
		"GET /role":            a.role,
		"GET /ha_status":       a.haStatus,
		"GET /leader":          a.leader,
		"GET /readyz":          a.ready, // this one and the next two are ours
		"GET /node":            a.node,
		"GET /openapi.json":    openAPI,

		"GET /query_key":                 a.serving(queryKey),
		"GET /batch_query_keys":          a.serving(a.batchQueryKeys),
		"GET /get_all_keys":              a.serving(a.allKeys),
		"GET /get_all_segments":          a.serving(a.allSegments),
		"GET /get_segments_detail":       a.serving(a.segmentsDetail),
		"GET /query_segment":             a.serving(querySegment),
		"GET /kv_events/status":          a.serving(a.kvEvents),
		"GET /api/v1/segments/status":    a.serving(segmentStatus),
		"POST /api/v1/drain_jobs":        a.serving(createDrain),
		"GET /api/v1/drain_jobs/query":   a.serving(queryDrain),
		"POST /api/v1/drain_jobs/cancel": a.serving(cancelDrain),
		"POST /api/v1/remove_all":        a.serving(removeAll),
		"GET /api/v1/tenant_quotas":      a.serving(a.getQuotas),
		"PUT /api/v1/tenant_quotas":      a.serving(putQuota),
		"DELETE /api/v1/tenant_quotas":   a.serving(deleteQuota),
	} {
		mux.HandleFunc(pattern, h)
	}
	return a.logged(a.guarded(mux))
}

// logged logs each request, without its query: there are keys in it. Names that
// clients chose are text in every answer, whatever they look like.
func (a API) logged(next http.Handler) http.Handler {
	boot := clock.Boot()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := boot()
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
		a.Log.Debug().Str("part", "http").Str("method", r.Method).Str("path", r.URL.Path).Dur("took", boot()-begun).Msg("request")
	})
}

// serving lets a request through to the master of the term in which this node
// serves; else the answer is 503, with who serves instead. What the handler
// returns as an error is the answer, unless it has answered.
func (a API) serving(h func(w http.ResponseWriter, r *http.Request, m *service.Master) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m, err := a.Gate.Master()
		if err == nil {
			err = m.Fence(r.Context())
		}
		if err == nil {
			err = h(w, r, m)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

// A failure is the body of an answer that is an error, as upstream has it.
type failure struct {
	Success bool   `json:"success"`
	Number  int32  `json:"error_code"`
	Message string `json:"error_message"`
}

// fail answers with an error. Upstream gives 404 for whatever keeps a key from
// being read.
func (a API) fail(w http.ResponseWriter, r *http.Request, err error) {
	kind := errs.KindOf(err)
	var set statusError
	if !errors.As(err, &set) {
		set.code = a.statusOf(kind, r, err)
	}
	if ordered, ok := w.(*orderWriter); ok {
		ordered.unsure = kind == errs.Unresolved
	}
	text, reason := a.message(kind, err)
	if reason != "" {
		w.Header().Set(pb.ReasonHeader, reason)
	}
	writeJSON(w, set.code, failure{Number: kind.Number(), Message: text})
}

// A statusError is answered with a status of its own.
type statusError struct {
	error
	code int
}

func (e statusError) Unwrap() error { return e.error }

func (a API) statusOf(kind errs.Kind, r *http.Request, err error) int {
	switch kind {
	case errs.NotLeader, errs.Unavailable, errs.Unresolved:
		return http.StatusServiceUnavailable
	case errs.InvalidParams, errs.InvalidKey:
		return http.StatusBadRequest
	case errs.TenantNotEmpty:
		return http.StatusConflict
	case errs.ObjectNotFound, errs.ReplicaNotReady, errs.SegmentNotFound, errs.JobNotFound:
		return http.StatusNotFound
	case errs.NotSupported:
		return http.StatusNotImplemented
	default:
		a.Log.Error().Str("part", "http").Err(err).Str("path", r.URL.Path).Msg("a request failed with an internal error")
		return http.StatusInternalServerError
	}
}

// message explains an error; without details it is the bare name of the kind, as
// upstream. Where upstream refuses the same request, the details are apart, as the reason.
func (a API) message(kind errs.Kind, err error) (text, reason string) {
	var e *errs.Error
	switch {
	case kind == errs.Internal:
	case kind == errs.NotLeader:
		return a.elsewhere(), ""
	case !errors.As(err, &e) || e.Detail == "":
	case e.Op == "CreateDrainJob", e.Op == "CancelDrainJob":
		reason = e.Detail
	default:
		return e.Detail, ""
	}
	return kind.String(), reason
}

// elsewhere names the primary's HTTP address.
func (a API) elsewhere() string {
	hint, leader := a.Gate.Hint(), a.Node().Leader
	switch {
	case hint.NodeID == "":
		return (&service.NotLeaderError{}).Error() // it knows of none
	case leader != nil && leader.NodeID == hint.NodeID && leader.HTTP != "":
		return "this node does not serve; ask " + leader.HTTP
	}
	return "this node does not serve; ask node " + hint.NodeID + " at its HTTP address"
}

const jsonType = "application/json; charset=utf-8"

func writeJSON(w http.ResponseWriter, code int, body any) {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)                 // keys and names stay as they are
	if err := out.Encode(body); err != nil { // cannot be: all bodies are structs of this package
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes())
}

func writeData(w http.ResponseWriter, data any) {
	writeJSON(w, http.StatusOK, struct {
		Success bool `json:"success"`
		Data    any  `json:"data"`
	}{true, data})
}

// Types of text: upstream has the second one for lists and figures.
const (
	textType    = "text/plain; charset=utf-8"
	figuresType = "text/plain; version=0.0.4"
)

func writeText(w http.ResponseWriter, code int, body string) { writeTextAs(w, textType, code, body) }

func writeTextAs(w http.ResponseWriter, contentType string, code int, body string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body)) //nolint:gosec // plain text, and no browser guesses another type (Handler)
}
