package scalebench

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/cluster"
)

func rss(pid int) (int64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	s, err := p.Stat()
	return int64(s.RSS) * int64(os.Getpagesize()), err
}

// A peak measures the highest memory of a process until it is stopped.
type peak struct {
	cancel context.CancelFunc
	most   chan int64
}

const peakEvery = 20 * time.Millisecond

func watchPeak(ctx context.Context, pid int) *peak {
	ctx, cancel := context.WithCancel(ctx)
	p := &peak{cancel, make(chan int64, 1)}
	go func() {
		most := int64(0)
		_ = clock.Every(ctx, peakEvery, func() error {
			now, err := rss(pid)
			most = max(most, now)
			return err
		})
		p.most <- most
	}()
	return p
}

func (p *peak) stop() int64 {
	p.cancel()
	return <-p.most
}

// liveHeap makes the primary collect garbage, and returns the size of the live heap.
func (w *world) liveHeap(ctx context.Context) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.primary.HTTP+"/debug/pprof/heap?gc=1", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("collecting garbage: %s, %w", resp.Status, err)
	}
	m, err := w.primary.Metrics(ctx)
	return int64(m["go_gc_heap_live_bytes"]), err
}

// Names of the Go runtime's figures.
const (
	pauseBuckets  = `go_sched_pauses_total_gc_seconds_bucket{le="`
	cyclesMetric  = "go_gc_cycles_total_gc_cycles_total"
	assistSeconds = "go_cpu_classes_gc_mark_assist_cpu_seconds_total"
)

// addCollections adds the garbage collections of a node between two readings to a task.
func (t *Task) addCollections(before, after map[string]float64) {
	t.Collections = int64(after[cyclesMetric] - before[cyclesMetric])
	t.AssistSeconds = after[assistSeconds] - before[assistSeconds]
	var bounds []float64
	counts := make(map[float64]float64) // of pauses up to a bound
	for name, count := range after {
		text, ok := strings.CutPrefix(name, pauseBuckets)
		if !ok {
			continue
		}
		bound, err := strconv.ParseFloat(strings.TrimSuffix(text, `"}`), 64)
		if err == nil {
			bounds = append(bounds, bound)
			counts[bound] = count - before[name]
		}
	}
	slices.Sort(bounds)
	if len(bounds) == 0 {
		return
	}
	all := counts[bounds[len(bounds)-1]]
	upTo := func(part float64) float64 {
		for _, b := range bounds {
			if counts[b] >= part*all && counts[b] > 0 && !math.IsInf(b, 1) {
				return b * 1000
			}
		}
		return 0
	}
	t.PauseP99, t.PauseMax = upTo(0.99), upTo(1)
}

func (t *Task) addPhases(ctx context.Context, n *cluster.Node) error {
	m, err := n.Metrics(ctx)
	if err != nil {
		return err
	}
	t.Phases = make(map[string]float64)
	for name, seconds := range m {
		if text, ok := strings.CutPrefix(name, `understudy_takeover_duration_seconds_sum{phase="`); ok {
			t.Phases[strings.TrimSuffix(text, `"}`)] = seconds * 1000
		}
	}
	return nil
}
