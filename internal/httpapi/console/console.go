package console

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/rs/zerolog"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/httpapi"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// A Node is what the console shows of the node that it runs on.
type Node interface {
	Store() *metadata.Store // nil while there is no state
	Status(ctx context.Context) (*pb.StatusResponse, error)
	History(ctx context.Context) (*pb.HistoryResponse, error)
	Events(ctx context.Context, from metadata.Seq, follow bool) iter.Seq2[*pb.EventsResponse, error]
}

// Sources are what the pages are made of.
type Sources struct {
	Node     Node
	Brief    func() httpapi.NodeStatus // the status, without asking etcd
	Cluster  string                    // its id
	Version  string
	Now      func() time.Time // wall time
	Gate     *service.Gate
	Scans    *service.Scans
	Calls    *service.Counters
	Hot      *service.HotKeys
	Recorder *Recorder
	Evicted  func() Evictions
	Members  func(ctx context.Context) []Member // asks etcd; nil without it
	Settings func(ctx context.Context) ([]NodeSettings, error)
	Default  func(setting string) string // its default, for people
	Own      string                      // all settings of this node, as a file
	Log      zerolog.Logger
}

const (
	// maxRequests bounds the pages that are made at once. Further requests get 503,
	// and the page in the browser asks again.
	maxRequests = 8
	// makeTimeout bounds how long one page takes to make.
	makeTimeout = 4 * time.Second
	// keepTerms and keepAnswers are how long the terms in etcd, and other answers of
	// etcd, are kept for other requests.
	keepTerms   = 200 * time.Millisecond
	keepAnswers = time.Second
)

//go:embed static templates
var files embed.FS

type console struct {
	Sources
	pages  map[string]*template.Template
	places chan struct{}

	terms   shared[[]*pb.TermRecord]
	status  shared[*pb.StatusResponse]
	members shared[[]Member]
	nodes   shared[[]NodeSettings]
	census  shared[figures]
	tail    tail
	tailed  shared[struct{}]
}

type page struct {
	Name, Title string
	build       func(c *console, r *http.Request) (any, error) // returns the body, such as a timelineView
}

// pages are all pages, in the order of the navigation.
func pages() []page {
	return []page{
		{"timeline", "Timeline", (*console).timeline},
		{"cluster", "Cluster", (*console).cluster},
		{"memory", "Memory", (*console).memory},
		{"cache", "Cache", (*console).cache},
		{"key", "Key", (*console).key},
		{"settings", "Settings", (*console).settings},
		{"journal", "Journal", (*console).journal},
		{"leases", "Leases", (*console).leases},
	}
}

// Handler returns what answers below /console/.
func Handler(s Sources) http.Handler {
	c := &console{Sources: s, pages: make(map[string]*template.Template), places: make(chan struct{}, maxRequests)}
	c.terms.keep, c.census.keep, c.tailed.keep = keepTerms, keepCensus, keepTail
	c.status.keep, c.members.keep, c.nodes.keep = keepAnswers, keepAnswers, keepAnswers
	mux := http.NewServeMux()
	for _, p := range pages() {
		c.pages[p.Name] = template.Must(template.New("layout.html").Funcs(formats).ParseFS(files, "templates/layout.html", "templates/"+p.Name+".html"))
		mux.HandleFunc("GET /console/"+p.Name, c.limited(c.show(p)))
	}
	mux.HandleFunc("GET /console/timeline.json", c.limited(c.chart))
	mux.Handle("GET /console/{$}", http.RedirectHandler("/console/timeline", http.StatusFound))
	static, err := fs.Sub(files, "static")
	if err != nil {
		panic(err) // it is in the program
	}
	mux.Handle("GET /console/static/", http.StripPrefix("/console/static/", http.FileServerFS(static)))
	return guarded(mux)
}

// policy lets a page use what this node serves, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Referrer-Policy", "no-referrer") // there are keys in queries
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}

// limited lets a request through while there is a place for it.
func (c *console) limited(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case c.places <- struct{}{}:
			defer func() { <-c.places }()
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the console makes as many pages as it may; try again", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), makeTimeout)
		defer cancel()
		h(w, r.WithContext(ctx))
	}
}

// A view is what the layout shows around a page.
type view struct {
	page
	Pages   []page
	Node    httpapi.NodeStatus
	Cluster string
	Version string
	Now     time.Time
	Gap     *gap   // while nobody serves
	Primary string // where the primary's console is, if that is another node
	Fault   string // why the page is not whole
	Body    any
}

// scheme is how other nodes are reached: as this one is.
func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https://"
	}
	return "http://"
}

func (c *console) show(p page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := view{page: p, Pages: pages(), Node: c.Brief(), Cluster: c.Cluster, Version: c.Version, Now: c.Now().UTC()}
		if l := v.Node.Leader; l != nil && l.NodeID != v.Node.NodeID && l.HTTP != "" {
			v.Primary = scheme(r) + l.HTTP + "/console/" + p.Name
		}
		v.Node.Serving = c.Gate.Serves()
		v.Gap = c.Recorder.open()
		var err error
		if v.Body, err = p.build(c, r); err != nil {
			v.Fault = err.Error()
		}
		var b bytes.Buffer
		if err := c.pages[p.Name].Execute(&b, v); err != nil {
			c.Log.Error().Err(err).Str("page", p.Name).Msg("a page of the console cannot be made")
			http.Error(w, "the page cannot be made; the log says why", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(b.Bytes())
	}
}

func (c *console) history(ctx context.Context) ([]*pb.TermRecord, error) {
	return c.terms.get(ctx, c.Now, func(ctx context.Context) ([]*pb.TermRecord, error) {
		h, err := c.Node.History(ctx)
		return h.GetTerms(), err
	})
}

var formats = template.FuncMap{
	"clock":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
	"rfc3339": func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"lasted":  lasted,
	"role":    role,
	"lag":     lag,
	"float":   func(f float64) string { return fmt.Sprintf("%.2f", f) },
	"minus":   func(a, b float64) string { return fmt.Sprintf("%.2f", max(0, a-b)) },
	"bytes":   humanize.IBytes,
	"count":   countText,
	"percent": func(f float64) string { return fmt.Sprintf("%.1f %%", 100*f) },
}

func countText(n any) string {
	switch n := n.(type) {
	case int:
		return humanize.Comma(int64(n))
	case int64:
		return humanize.Comma(n)
	case uint64:
		return humanize.Comma(int64(n))
	}
	return "?"
}

// lasted writes a duration with as many digits as people need.
func lasted(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	}
	text := d.Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
