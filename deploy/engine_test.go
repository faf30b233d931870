package deploy_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"
)

// An inProcess is Prometheus' storage and engine in this process, with a scraper of ours.
type inProcess struct {
	db    *tsdb.DB
	began time.Time
	nodes []string // host:port of their HTTP
}

// startInProcess scrapes nodes until the test ends.
func startInProcess(t *testing.T, nodes []string) *inProcess {
	t.Helper()
	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	e := &inProcess{db, time.Now(), nodes}
	ctx, cancel := context.WithCancel(context.Background())
	scraped := make(chan error, 1)
	go func() { scraped <- e.scrape(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-scraped, db.Close()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// scrape scrapes all nodes that answer, until the context ends.
func (e *inProcess) scrape(ctx context.Context) error {
	tick := time.NewTicker(scrapeEvery)
	defer tick.Stop()
	for {
		for _, node := range e.nodes {
			if err := e.scrapeNode(node); err != nil {
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

func (e *inProcess) scrapeNode(node string) error {
	resp, err := http.Get("http://" + node + "/metrics") //nolint:noctx // of this machine
	if err != nil {
		return nil // it was killed
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil
	}
	app, now := e.db.Appender(context.Background()), time.Now().UnixMilli()
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
		of := labels.NewBuilder(series).Set("job", sampleJob).Set("instance", node).Labels()
		if _, err := app.Append(0, of, now, value); err != nil {
			return errors.Join(err, app.Rollback())
		}
	}
}

func (e *inProcess) answers(expr string) (bool, error) {
	runs := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: lookBack})
	defer func() { _ = runs.Close() }()
	query, err := runs.NewRangeQuery(context.Background(), e.db, nil, expr, e.began, time.Now(), scrapeEvery)
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
