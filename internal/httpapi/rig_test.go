package httpapi_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/httpapi"
	"github.com/understudy-store/understudy/internal/metrics"
	"github.com/understudy-store/understudy/internal/mooncake/kvpublisher"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var params = metadata.Params{LeaseTTL: 10 * time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}

// A rig is a lone primary with its HTTP handler.
type rig struct {
	t       testing.TB
	p       *lonetest.Primary
	master  *service.Master
	gate    *service.Gate
	fenced  atomic.Bool
	fences  atomic.Int64 // if not 0, so many looks at the fence go well
	status  httpapi.NodeStatus
	api     httpapi.API
	handler http.Handler
	log     strings.Builder
}

// newRig returns a primary with a segment of 16 MiB under the name "a".
func newRig(t testing.TB) *rig {
	t.Helper()
	p := lonetest.Start(t, metadata.Options{}, params, 16<<20)
	r := &rig{t: t, p: p, gate: service.NewGate(), status: httpapi.NodeStatus{
		NodeID: "n1", Role: "primary", Term: 3, Promotable: true,
		Leader: &httpapi.Leader{NodeID: "n1", RPC: "10.0.0.1:50051", HTTP: "10.0.0.1:9003"},
	}}
	calls := service.NewCounters()
	r.master = service.NewMaster(service.Master{
		Term: 1, Store: p.Store, Leases: p.Leases, Queue: p.Queue, Now: p.Now, Fence: func(context.Context) error { return r.fence() }, Answers: func() bool { return !r.fenced.Load() },
		Liveness: service.NewLiveness(time.Minute, 0, clock.Boot(), p.Store), Counters: calls, AllocationFailed: func(uint64, metadata.Time) {},
	})
	r.gate.Open(r.master)
	shown := metrics.New(metrics.Sources{
		Clock: clock.Boot(), Gate: r.gate, Calls: calls, Renewals: new(leasesync.Counters), Evictions: new(eviction.Counters),
		Store:  func() *metadata.Store { return p.Store },
		Status: func() promote.Status { return promote.Status{Self: promote.NodeInfo{Role: promote.Primary}} },
	})
	r.api = httpapi.API{
		Gate: r.gate, Node: r.stands, Metrics: shown.Handler(), Summary: shown.Summary, MooncakeSummary: shown.MooncakeSummary,
		KVEvents: func() any { return kvpublisher.Status{} }, Log: zerolog.New(&r.log),
	}
	r.handler = r.api.Handler()
	return r
}

// extend adds what Mooncake's answers do not have.
func (r *rig) extend() {
	r.api.Extended = true
	r.handler = r.api.Handler()
}

// fence lets calls through until it is told otherwise.
func (r *rig) fence() error {
	switch n := r.fences.Load(); {
	case n > 1:
		r.fences.Add(-1)
	case n == 1:
		r.fenced.Store(true)
	}
	if r.fenced.Load() {
		r.gate.SetHint(service.Hint{NodeID: "n2", RPC: "10.0.0.2:50051"})
		return errs.NotLeader
	}
	return nil
}

// stands is how the rig stands: another node leads once its fence is closed.
func (r *rig) stands() httpapi.NodeStatus {
	s := r.status
	if r.fenced.Load() {
		s.Leader = &httpapi.Leader{NodeID: "n2", RPC: "10.0.0.2:50051", HTTP: "10.0.0.2:9003"}
	}
	return s
}

// standby makes the rig a standby of n2.
func (r *rig) standby() {
	r.gate.Close(service.Hint{NodeID: "n2", RPC: "10.0.0.2:50051"})
	r.status.Role = "standby"
	r.status.Leader = &httpapi.Leader{NodeID: "n2", RPC: "10.0.0.2:50051", HTTP: "10.0.0.2:9003"}
}

func (r *rig) request(method, target string) (int, string, http.Header) {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return w.Code, string(body), w.Header()
}

// get checks the answer to a request. A body that ends in "..." is a prefix.
func (r *rig) get(target string, code int, body string) {
	r.t.Helper()
	gotCode, gotBody, _ := r.request(http.MethodGet, target)
	prefix, open := strings.CutSuffix(body, "...")
	if gotCode != code || !open && strings.TrimSuffix(gotBody, "\n") != strings.TrimSuffix(body, "\n") || open && !strings.HasPrefix(gotBody, prefix) {
		r.t.Errorf("GET %s:\n got %d %q\nwant %d %q", target, gotCode, gotBody, code, body)
	}
}

// reserve begins puts and does not end them.
func (r *rig) reserve(keys ...string) {
	r.t.Helper()
	start := service.PutRequest{Tenant: metadata.DefaultTenant, Client: segment.ClientID{1}, Config: service.PutConfig{Replicas: 1}}
	var items []service.PutItem
	for _, key := range keys {
		items = append(items, service.PutItem{Key: key, Size: 100})
	}
	_, failed, err := r.master.BatchPutStart(r.t.Context(), start, items)
	if err := errors.Join(append(failed, err)...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) mount(n byte, name string, size uint64) {
	r.t.Helper()
	err := r.master.MountSegment(r.t.Context(), segment.Spec{
		ID: segment.ID{n}, Name: name, Base: uint64(n) << 40, Size: size, Endpoint: name + ":1", Protocol: "tcp", Client: segment.ClientID{n},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}
