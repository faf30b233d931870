package app

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/config"
)

// A receiver takes traces over OTLP.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	hang <-chan struct{} // exports wait for this, if it is not nil

	mu      sync.Mutex
	spans   []*otlp.Span
	nodes   map[string]bool // service.instance.id
	changed chan struct{}   // closed by the next export
}

func newReceiver(t *testing.T, hang <-chan struct{}) (r *receiver, endpoint string) {
	t.Helper()
	r = &receiver{hang: hang, nodes: make(map[string]bool), changed: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r, "http://" + l.Addr().String()
}

func (r *receiver) Export(ctx context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	if r.hang != nil {
		select {
		case <-r.hang:
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.instance.id" {
				r.nodes[a.GetValue().GetStringValue()] = true
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
	close(r.changed)
	r.changed = make(chan struct{})
	return &collector.ExportTraceServiceResponse{}, nil
}

// span waits for a span.
func (r *receiver) span(t *testing.T, what string, is func(*otlp.Span) bool) *otlp.Span {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		r.mu.Lock()
		i, changed := slices.IndexFunc(r.spans, is), r.changed
		if i >= 0 {
			defer r.mu.Unlock()
			return r.spans[i]
		}
		r.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("spans after 20 s: got %v, want one of %s", r.spans, what)
		}
	}
}

func attribute(s *otlp.Span, name string) int64 {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == name {
			return a.GetValue().GetIntValue()
		}
	}
	return -1
}

// parent is a trace that a caller has begun.
type parent struct{ trace, span string }

func (p parent) put(t *testing.T, m *member, sampled bool, key string) {
	t.Helper()
	conn, err := grpc.NewClient(m.RPCAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	flags := map[bool]string{true: "01", false: "00"}[sampled]
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+p.trace+"-"+p.span+"-"+flags)
	if _, err := pb.NewObjectServiceClient(conn).PutStart(ctx, &pb.PutStartRequest{ClientId: uuid.NewString(), Key: key, Size: 1}); err != nil {
		t.Fatal(err)
	}
}

// The trace of a put goes on in the primary: the call, and in it the commit that it
// waited for. Its identity stands with the latencies.
func TestTraceOfAPut(t *testing.T) {
	t.Parallel()
	for _, etcd := range [][]string{nil, {}} {
		t.Run(fmt.Sprintf("HA %v", etcd != nil), func(t *testing.T) {
			r, endpoint := newReceiver(t, nil)
			c := settings(config.Primary, "a", etcd)
			c.HA.SessionTTL, c.HA.FailoverAfter = 30*time.Second, 30*time.Second // a slow machine is no reason for another term
			c.Debug.TraceEndpoint, c.Debug.TraceRatio = endpoint, 0
			a := run(t, c)
			a.serves()
			writer(t, client.Config{Addresses: []string{a.RPCAddress()}})
			other, mine := parent{strings.Repeat("c", 32), strings.Repeat("d", 16)}, parent{strings.Repeat("a", 32), strings.Repeat("b", 16)}
			other.put(t, a, false, "untraced")
			mine.put(t, a, true, "k")
			call := r.span(t, "the call", func(s *otlp.Span) bool { return strings.HasSuffix(s.GetName(), "ObjectService/PutStart") })
			if hex.EncodeToString(call.GetTraceId()) != mine.trace || hex.EncodeToString(call.GetParentSpanId()) != mine.span {
				t.Errorf("the call is %v, want a child of %v", call, mine)
			}
			commit := r.span(t, "the commit", func(s *otlp.Span) bool { return s.GetName() == "journal.commit" })
			if string(commit.GetParentSpanId()) != string(call.GetSpanId()) || string(commit.GetTraceId()) != string(call.GetTraceId()) {
				t.Errorf("the commit is %v, want a child of %v", commit, call)
			}
			at := a.node.promoteStatus()
			if seq := attribute(commit, "understudy.sequence"); seq < 2 || seq > int64(at.Position.Seq) || attribute(commit, "understudy.term") != 1 || attribute(commit, "understudy.changes") < 1 {
				t.Errorf("the commit is %v, want its term, sequence and changes", commit)
			}
			a.exemplars(t, mine.trace, "understudy_rpc_duration_seconds", "understudy_commit_duration_seconds")
			if r.span(t, "all", func(*otlp.Span) bool { return true }); !r.nodes["a"] {
				t.Errorf("the spans are of nodes %v, want a", r.nodes)
			}
			for _, s := range r.spans {
				if hex.EncodeToString(s.GetTraceId()) != mine.trace {
					t.Errorf("got %v, want nothing of callers that are not traced", s)
				}
			}
		})
	}
}

// exemplars demands that histograms name a trace when they are scraped as protobuf.
func (m *member) exemplars(t *testing.T, trace string, histograms ...string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.cfg.Node.HTTPAddress+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	named := make(map[string]bool)
	for decoder := expfmt.NewDecoder(resp.Body, expfmt.ResponseFormat(resp.Header)); ; {
		var f dto.MetricFamily
		if decoder.Decode(&f) != nil {
			break
		}
		for _, metric := range f.GetMetric() {
			for _, b := range metric.GetHistogram().GetBucket() {
				if l := b.GetExemplar().GetLabel(); len(l) == 1 && l[0].GetName() == "trace_id" && l[0].GetValue() == trace {
					named[f.GetName()] = true
				}
			}
		}
	}
	for _, h := range histograms {
		if !named[h] {
			t.Errorf("exemplars of trace %s: got them in %v, want one in %s", trace, named, h)
		}
	}
}

// Calls over Mooncake's protocol are traced, too, as often as --trace-ratio says.
func TestTraceOfMooncakesCalls(t *testing.T) {
	t.Parallel()
	r, endpoint := newReceiver(t, nil)
	c := settings(config.Primary, "a", nil)
	c.Debug.TraceEndpoint, c.Debug.TraceRatio = endpoint, 1
	a := run(t, c)
	a.serves()
	put(t, overMooncake(t, a), "k")
	call := r.span(t, "the call", func(s *otlp.Span) bool { return s.GetName() == "mooncake.Mooncake/PutStart" })
	r.span(t, "its commit", func(s *otlp.Span) bool {
		return s.GetName() == "journal.commit" && string(s.GetParentSpanId()) == string(call.GetSpanId())
	})
}

// A collector that is away, or does not answer, costs spans, and no more: calls go on,
// and the node ends.
func TestCollectorAway(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	defer close(hang)
	_, hangs := newReceiver(t, hang)
	for _, endpoint := range []string{hangs, "http://127.0.0.1:1"} {
		c := settings(config.Primary, "a", nil)
		c.Debug.TraceEndpoint, c.Debug.TraceRatio = endpoint, 1
		a := run(t, c)
		a.serves()
		cl := writer(t, client.Config{Addresses: []string{a.RPCAddress()}})
		for i := range 800 { // more spans than may wait
			put(t, cl, fmt.Sprint(i))
			if err := cl.Remove(t.Context(), fmt.Sprint(i), client.Removal{Force: true}); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		cl.Close()
		a.end()
		if took := time.Since(began); took > 8*time.Second { // the exporter would try for 10 s
			t.Errorf("collector %s: got the node's end after %v, want at most 8s: it waits for no collector", endpoint, took)
		}
		if !strings.Contains(a.log.String(), "spans were dropped") {
			t.Errorf("collector %s: got the log\n%s\nwant in it that spans were dropped", endpoint, a.log)
		}
	}
}

// Profiles are served if that is asked for, and with roles to operators only.
func TestPprof(t *testing.T) {
	n := startHTTPNode(t, config.Primary, nil, func(c *config.Config) { c.Debug.Pprof = true })
	n.becomes("/readyz", 200, "")
	for path, want := range map[string]int{
		"/debug/pprof/": 200, "/debug/pprof/heap": 200, "/debug/pprof/goroutine?debug=1": 200, "/debug/pprof/profile?seconds=1": 200, "/debug/pprof/cmdline": 200,
		"/debug/pprof/profile?seconds=100000": 400, "/debug/pprof/profile?seconds=x": 400, "/debug/pprof/nothing": 404,
	} {
		if code, body := n.ask(path); code != want {
			t.Errorf("%s: got %d %.200s, want %d", path, code, body, want)
		}
	}
	off := startHTTPNode(t, config.Primary, nil)
	off.becomes("/readyz", 200, "")
	if code, _ := off.ask("/debug/pprof/"); code != 404 {
		t.Errorf("without --pprof: got %d, want 404", code)
	}
}
