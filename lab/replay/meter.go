package replay

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
)

// A meter is the observer of all clients of a replay. It records how long calls took, when
// the cluster answered, and who is primary.
type meter struct {
	clock    clock.Clock
	onLeader func(term uint64)

	mu      sync.Mutex
	calls   map[string]*hdrhistogram.Histogram // µs
	total   int64
	failed  int64         // calls that the cluster did not answer
	last    time.Duration // when the last answer came
	silence []gap         // the long gaps between answers
	term    uint64
}

// A gap is a time without an answer to any client.
type gap struct{ from, to time.Duration }

// shortGap is the longest gap that is no outage: a busy machine may pause that long.
const shortGap = 20 * time.Millisecond

func newMeter(clk clock.Clock, onLeader func(term uint64)) *meter {
	return &meter{clock: clk, onLeader: onLeader, calls: make(map[string]*hdrhistogram.Histogram)}
}

func (m *meter) Call(method string, _ int, kind errs.Kind, took time.Duration) {
	now := m.clock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if method == "Ping" {
		return // the call is not part of the load
	}
	m.total++
	switch kind {
	case errs.Unavailable, errs.Unresolved, errs.NotLeader:
		m.failed++
		return
	default: // the cluster answered, even if with an error
	}
	h := m.calls[method]
	if h == nil {
		h = hdrhistogram.New(1, 600_000_000, 3)
		m.calls[method] = h
	}
	_ = h.RecordValue(took.Microseconds())
	if m.last != 0 && now-m.last > shortGap {
		m.silence = append(m.silence, gap{m.last, now})
	}
	m.last = now
}

func (m *meter) LeaderChanged(l client.Leader) {
	m.mu.Lock()
	first := l.Term > m.term
	m.term = max(m.term, l.Term)
	m.mu.Unlock()
	if first {
		m.onLeader(l.Term)
	}
}

func (m *meter) Remounted(int, error) {}

// outage returns the longest time without an answer that ended after since.
func (m *meter) outage(since time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	var longest time.Duration
	for _, g := range m.silence {
		if g.to >= since {
			longest = max(longest, g.to-g.from)
		}
	}
	return longest
}

// Latency are percentiles of one call, in milliseconds.
type Latency struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

func (m *meter) latencies() map[string]Latency {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make(map[string]Latency, len(m.calls))
	for method, h := range m.calls {
		at := func(p float64) float64 { return float64(h.ValueAtPercentile(p)) / 1000 }
		list[method] = Latency{Count: h.TotalCount(), P50: at(50), P90: at(90), P99: at(99), Max: float64(h.Max()) / 1000}
	}
	return list
}

func (m *meter) counts() (total, failed int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total, m.failed
}
