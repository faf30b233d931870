package console

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/net/html"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/httpapi"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// noon is the time of the rigs' clocks.
var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// A rig is a console of a node that says what a test wants.
type rig struct {
	Sources
	t        testing.TB
	node     httpapi.NodeStatus
	terms    []*pb.TermRecord
	termErr  error
	reads    int
	status   *pb.StatusResponse
	events   []*pb.EventsResponse
	eventErr error
	store    *metadata.Store
	reading  Reading
	now      time.Time
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, now: noon, status: &pb.StatusResponse{}, node: httpapi.NodeStatus{NodeID: "b", Role: "primary", Term: 2}, reading: Reading{Role: "primary"}}
	now := func() time.Time { return r.now }
	r.Sources = Sources{
		Node: r, Brief: func() httpapi.NodeStatus { return r.node }, Cluster: "c1", Version: "v-test", Now: now, Gate: service.NewGate(), Scans: service.NewScans(),
		Calls: service.NewCounters(), Log: zerolog.Nop(), Evicted: func() Evictions { return Evictions{} },
		Settings: func(context.Context) ([]NodeSettings, error) { return nil, nil }, Default: func(string) string { return "10s (the default)" }, Recorder: &Recorder{Now: now, Read: func() Reading { return r.reading }},
	}
	return r
}

func (r *rig) Store() *metadata.Store                             { return r.store }
func (r *rig) Status(context.Context) (*pb.StatusResponse, error) { return r.status, nil }
func (r *rig) History(context.Context) (*pb.HistoryResponse, error) {
	r.reads++
	return &pb.HistoryResponse{Terms: r.terms}, r.termErr
}

func (r *rig) Events(_ context.Context, from metadata.Seq, _ bool) iter.Seq2[*pb.EventsResponse, error] {
	return func(yield func(*pb.EventsResponse, error) bool) {
		if r.eventErr != nil {
			yield(nil, r.eventErr)
			return
		}
		for _, e := range r.events {
			if e.GetSequence() >= uint64(from) && !yield(e, nil) {
				return
			}
		}
	}
}

// get returns an answer.
func (r *rig) get(path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	Handler(r.Sources).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// body returns the body of an answer.
func body(h http.Handler, path string) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Body.String()
}

// page returns a page as a tree, and its text.
func (r *rig) page(path string) (*html.Node, string) {
	r.t.Helper()
	w := r.get(path)
	if w.Code != http.StatusOK {
		r.t.Fatalf("GET %s: got %d %s, want 200", path, w.Code, w.Body)
	}
	return parse(r.t, w.Body.String())
}

func parse(t testing.TB, page string) (*html.Node, string) {
	t.Helper()
	tree, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for n := range tree.Descendants() {
		if n.Type == html.TextNode {
			words = append(words, strings.Fields(n.Data)...)
		}
	}
	return tree, strings.Join(words, " ")
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// has checks parts of a text.
func has(t *testing.T, where, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s: got\n%s\nwant %q in it", where, text, part)
		}
	}
}

// Every page has landmarks and one heading, labels what can be filled in, marks itself
// in the navigation, and asks no other host for anything.
func TestStructure(t *testing.T) {
	r := newRig(t)
	r.Recorder.record()
	for _, p := range pages() {
		tree, text := r.page("/console/" + p.Name)
		has(t, p.Name, text, p.Title+" · b · Understudy", "this node is b", "Skip to the page")
		count := map[string]int{}
		current := ""
		for n := range tree.Descendants() {
			if n.Type != html.ElementNode {
				continue
			}
			count[n.Data]++
			for _, name := range []string{"src", "href", "action"} {
				if url := attr(n, name); url != "" && !strings.HasPrefix(url, "/console/") && !strings.HasPrefix(url, "#") {
					t.Errorf("page %s: got <%s %s=%q>, want only links to this node", p.Name, n.Data, name, url)
				}
			}
			for _, a := range n.Attr {
				if a.Key == "style" || strings.HasPrefix(a.Key, "on") {
					t.Errorf("page %s: got <%s %s=%q>, want no inline style or script: the policy forbids them", p.Name, n.Data, a.Key, a.Val)
				}
			}
			if attr(n, "aria-current") == "page" {
				current = attr(n, "href")
			}
			if (n.Data == "input" || n.Data == "select") && n.Parent.Data != "label" && attr(n, "aria-label") == "" {
				t.Errorf("page %s: got <%s name=%q> without a label, want one", p.Name, n.Data, attr(n, "name"))
			}
			if n.Data == "th" && attr(n, "scope") == "" {
				t.Errorf("page %s: got a head of a table without a scope, want one", p.Name)
			}
			if _, live := liveness(n); live && attr(n, "id") == "" {
				t.Errorf("page %s: got a live <%s> without an id, want one", p.Name, n.Data)
			}
		}
		for _, one := range []string{"main", "nav", "header", "footer", "h1", "title"} {
			if count[one] != 1 {
				t.Errorf("%s: %d <%s>, want one", p.Name, count[one], one)
			}
		}
		if current != "/console/"+p.Name {
			t.Errorf("page %s: got %q marked in the navigation, want the page itself", p.Name, current)
		}
	}
}

func liveness(n *html.Node) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == "data-live" {
			return a.Val, true
		}
	}
	return "", false
}

func TestHeadersAndPaths(t *testing.T) {
	r := newRig(t)
	for path, code := range map[string]int{
		"/console/": http.StatusFound, "/console/timeline": 200, "/console/static/console.js": 200, "/console/static/uplot.LICENSE": 200,
		"/console/nothing": 404, "/console/timeline.json?w=1y": 400, "/console/templates/layout.html": 404,
	} {
		w := r.get(path)
		if w.Code != code || !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none'; script-src 'self';") {
			t.Errorf("GET %s: %d with the policy %q, want %d and a strict policy", path, w.Code, w.Header().Get("Content-Security-Policy"), code)
		}
	}
	w := httptest.NewRecorder()
	Handler(r.Sources).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/console/timeline", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d, want %d", w.Code, http.StatusMethodNotAllowed)
	}
}

// Only so many pages are made at once.
func TestPlaces(t *testing.T) {
	r := newRig(t)
	c := &console{Sources: r.Sources, places: make(chan struct{}, 1)}
	h := c.limited(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Context().Deadline(); !ok {
			t.Error("the context of a page: got no deadline, want one")
		}
		inner := httptest.NewRecorder()
		c.limited(nil)(inner, r)
		if inner.Code != http.StatusServiceUnavailable || inner.Header().Get("Retry-After") == "" {
			t.Errorf("without a place: %d, want 503", inner.Code)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	for range 2 {
		w := httptest.NewRecorder()
		h(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != http.StatusNoContent {
			t.Errorf("with a place: %d, want it made", w.Code)
		}
	}
}

// What a request reads for others too is read although that request is cancelled.
func TestCancelledRequest(t *testing.T) {
	r := newRig(t)
	r.Settings = func(ctx context.Context) ([]NodeSettings, error) { return nil, ctx.Err() }
	h := Handler(r.Sources)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/console/settings", nil).WithContext(ctx))
	if page := body(h, "/console/settings"); strings.Contains(page, context.Canceled.Error()) {
		t.Errorf("a request after a cancelled one: got\n%s\nwant no word of the other's end", page)
	}
}

// Whatever names people chose, they are text.
func TestEscaping(t *testing.T) {
	r := newRig(t)
	const evil = `"><script>alert(1)</script>`
	r.Cluster, r.node.NodeID, r.node.Obstacle, r.node.Help = evil, evil, evil, evil
	r.node.Leader = &httpapi.Leader{NodeID: "a", HTTP: `x" onclick="y`}
	r.terms = []*pb.TermRecord{{Term: 1, NodeId: evil, Why: evil, Began: noon.Format(time.RFC3339)}}
	r.termErr = errors.New(evil)
	for _, p := range pages() {
		page := r.get("/console/" + p.Name + "?" + strings.ReplaceAll("at=X&key=X&tenant=X&text=X&type=X", "X", "%22%3E%3Cscript%3Ealert(1)")).Body.String()
		if strings.Contains(page, "<script>alert") || strings.Contains(page, `" onclick="y`) {
			t.Errorf("page %s with names that look like markup: got\n%s\nwant them as text", p.Name, page)
		}
	}
}

// A standby says who the primary is and leads to its console; a banner says why nobody
// serves, and what to do.
func TestStandingAndBanner(t *testing.T) {
	r := newRig(t)
	r.node.Role, r.node.Leader = "standby", &httpapi.Leader{NodeID: "a", HTTP: "10.0.0.1:9003"}
	page := r.get("/console/timeline").Body.String()
	has(t, "standby", page, `<a href="http://10.0.0.1:9003/console/timeline">a's console</a>`)
	w := httptest.NewRecorder()
	Handler(r.Sources).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://10.0.0.2:9003/console/timeline", nil))
	has(t, "over TLS", w.Body.String(), `<a href="https://10.0.0.1:9003/console/timeline">a's console</a>`)
	r.node.Leader = nil
	r.node.Obstacle, r.node.Help, r.reading.Obstacle = "no node holds the previous state", "masterctl start-empty", "no node holds the previous state"
	r.Recorder.record()
	r.now = noon.Add(3 * time.Second)
	_, text := r.page("/console/timeline")
	has(t, "banner", text, "Nobody serves. no node holds the previous state Since 2026-01-31 12:00:00 UTC. What to do: masterctl start-empty",
		"1 gap in service", "3s so far gap nobody served, as this node saw it no node holds the previous state")
}
