package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"
)

// scrapeEvery is how often nodes are scraped, and how fine queries look.
const scrapeEvery = 500 * time.Millisecond

// A prometheus is Prometheus' storage and engine, in this process.
type prometheus struct {
	t     *testing.T
	db    *tsdb.DB
	began time.Time
	nodes []string // host:port of their HTTP
}

func newPrometheus(t *testing.T, nodes []string) *prometheus {
	t.Helper()
	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &prometheus{t, db, time.Now(), nodes}
}

// scrape scrapes all nodes that answer, until the context ends.
func (p *prometheus) scrape(ctx context.Context) error {
	tick := time.NewTicker(scrapeEvery)
	defer tick.Stop()
	for {
		for _, node := range p.nodes {
			if err := p.scrapeNode(node); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *prometheus) scrapeNode(node string) error {
	resp, err := http.Get("http://" + node + "/metrics") //nolint:noctx // of this machine
	if err != nil {
		return nil // it was killed
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil
	}
	app, now := p.db.Appender(context.Background()), time.Now().UnixMilli()
	parser := textparse.NewPromParser(text, labels.NewSymbolTable(), false)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return app.Commit()
		}
		if err != nil {
			return errors.Join(err, app.Rollback())
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var series labels.Labels
		parser.Labels(&series)
		_, _, value := parser.Series()
		of := labels.NewBuilder(series).Set("job", "lab").Set("instance", node).Labels()
		if _, err := app.Append(0, of, now, value); err != nil {
			return errors.Join(err, app.Rollback())
		}
	}
}

// answers reports whether a query has had a number at some time, as a panel of
// Grafana would show it.
func (p *prometheus) answers(expr string) (bool, error) {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: time.Minute})
	defer func() { _ = engine.Close() }()
	query, err := engine.NewRangeQuery(context.Background(), p.db, nil, expr, p.began, time.Now(), scrapeEvery)
	if err != nil {
		return false, err
	}
	defer query.Close()
	result, err := query.Exec(context.Background()).Matrix()
	if err != nil {
		return false, err
	}
	for _, series := range result {
		for _, point := range series.Floats {
			if !math.IsNaN(point.F) {
				return true, nil
			}
		}
	}
	return false, nil
}

// eventually waits until a query has an answer.
func (p *prometheus) eventually(expr string) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(scrapeEvery) {
		if ok, err := p.answers(expr); err != nil || time.Now().After(deadline) {
			p.t.Fatalf("no answer within a minute: %s: %v", expr, err)
		} else if ok {
			return
		}
	}
}

// A lab runs the program of that name.
type lab struct {
	t       *testing.T
	program string
	Nodes   []struct {
		PID       int
		RPC, HTTP string
	}
}

// startLab builds the program, and starts a cluster that ends with the test.
func startLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, program: filepath.Join(t.TempDir(), "lab")}
	build := exec.Command("go", "build", "-o", l.program, "./cmd/lab")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cluster := exec.Command(l.program, "cluster", "-o", "json", "--etcd-members=1", "--standbys=1", "--prometheus=false", "--", "--state-save-interval=500ms", "--quota_bytes=1GiB")
	cluster.Stderr = os.Stderr
	out, err := cluster.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cluster.Process.Signal(syscall.SIGINT)
		if err := cluster.Wait(); err != nil {
			t.Errorf("lab cluster: %v", err)
		}
	})
	if err := json.NewDecoder(out).Decode(l); err != nil {
		t.Fatalf("lab cluster printed no JSON: %v", err)
	}
	return l
}

// replay plays a load. It returns what waits for its end.
func (l *lab) replay(requests string) (wait func()) {
	l.t.Helper()
	var addresses []string
	for _, n := range l.Nodes {
		addresses = append(addresses, n.RPC)
	}
	var out bytes.Buffer
	cmd := exec.Command(l.program, "replay", "--cluster-id=lab", "--requests="+requests, "--address="+strings.Join(addresses, ","))
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	return func() {
		if err := cmd.Wait(); err != nil {
			l.t.Errorf("lab replay: %v\n%s", err, out.String())
		}
	}
}

// has checks that a query had an answer.
func (p *prometheus) has(what, expr string) {
	p.t.Helper()
	if ok, err := p.answers(expr); !ok || err != nil {
		p.t.Errorf("%s: has no data: %v: %s", what, err, expr)
	}
}

// All that our dashboard and Mooncake's ask has an answer in Prometheus, for a cluster with
// a load and a takeover.
func TestDashboardsHaveData(t *testing.T) {
	l := startLab(t)
	p := newPrometheus(t, []string{l.Nodes[0].HTTP, l.Nodes[1].HTTP})
	ctx, cancel := context.WithCancel(t.Context())
	scraped := make(chan error, 1)
	go func() { scraped <- p.scrape(ctx) }()
	wait := l.replay("1200")
	p.eventually("sum(rate(master_evicted_key_count[5s])) > 0")
	wait() // an idle cluster is taken over in one step
	if err := syscall.Kill(l.Nodes[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.eventually(`sum(rate(understudy_takeover_duration_seconds_count[5s])) > 0`)
	cancel()
	if err := <-scraped; err != nil {
		t.Fatal(err)
	}
	put := strings.NewReplacer("$__rate_interval", "5s", "$job", "lab", "$instance", ".*")
	d, _ := readDashboard(t)
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			p.has(panel.Title+" "+target.RefID, put.Replace(target.Expr))
		}
	}
	for what, expr := range mooncakeQueries(t) {
		p.has("Mooncake's dashboard: "+what, expr)
	}
	for _, a := range d.Annotations.List {
		if _, err := p.answers(put.Replace(a.Expr)); a.Expr != "" && err != nil {
			t.Errorf("annotation: %v", err)
		}
	}
}
