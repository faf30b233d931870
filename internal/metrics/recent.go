package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const (
	// recentTime is how far back the figures of the last minutes go, so that a trouble which is
	// over does not count for ever.
	recentTime = 10 * time.Minute
	// recentStep is how far apart the tallies are from which they are counted.
	recentStep = 10 * time.Second
)

// A tally is what a node has counted since its start.
type tally struct {
	at      time.Duration // by the clock
	commits uint64
	took    float64  // seconds, of all commits
	within  []uint64 // how many took at most each of seconds; nil for none
	lapses  int
}

func (t tally) since(before tally) tally {
	d := tally{at: t.at - before.at, commits: t.commits - before.commits, took: t.took - before.took, lapses: t.lapses - before.lapses}
	for i, n := range t.within {
		if i < len(before.within) {
			n -= before.within[i]
		}
		d.within = append(d.within, n)
	}
	return d
}

// slower returns how many commits took longer than a time in seconds, as exactly as the bounds
// of the buckets allow.
func (t tally) slower(than float64) uint64 {
	within := uint64(0)
	for i, n := range t.within {
		if seconds[i] <= than {
			within = n
		}
	}
	return t.commits - within
}

// mean returns how long a commit took on average, in seconds; 0 without any.
func (t tally) mean() float64 {
	if t.commits == 0 {
		return 0
	}
	return t.took / float64(t.commits)
}

// tallies are those of the last minutes.
type tallies struct {
	mu   sync.Mutex // guards all below
	list []tally    // oldest first; the first is recentTime old if the node has run for so long
}

// note adds a tally if the newest is old enough, and drops those that are too old.
func (m *tallies) note(now tally) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.list); n > 0 && now.at-m.list[n-1].at < recentStep {
		return
	}
	m.list = append(m.list, now)
	for len(m.list) > 1 && now.at-m.list[1].at >= recentTime {
		m.list = m.list[1:]
	}
}

// oldest returns the tally from which the last minutes are counted; zero before the first note.
func (m *tallies) oldest() (t tally) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.list) > 0 {
		t = m.list[0]
	}
	return t
}

func (m *Metrics) tally(lapses int) tally {
	t := tally{at: m.src.Clock(), lapses: lapses}
	var one dto.Metric
	if m.commit.(prometheus.Metric).Write(&one) != nil {
		return t
	}
	t.commits, t.took = one.GetHistogram().GetSampleCount(), one.GetHistogram().GetSampleSum()
	for _, b := range one.GetHistogram().GetBucket() {
		t.within = append(t.within, b.GetCumulativeCount())
	}
	return t
}

// lately shows the last minutes.
func (s *scrape) lately(commits, takeovers sink) {
	const when = " in the last ten minutes, or since this node started."
	gauge(commits, "understudy_recent_commits", "Commits that the journal wrote"+when, s.recent.commits)
	gauge(commits, "understudy_recent_commit_mean_seconds", "How long these took on average; 0 without any.", s.recent.mean())
	slow := uint64(0)
	if w := s.status.Window.Seconds(); w > 0 {
		slow = s.recent.slower(w / 2)
	}
	gauge(commits, "understudy_recent_slow_commits", "How many of these took longer than half of understudy_serve_window_seconds; 0 while that is not known.", slow)
	gauge(takeovers, "understudy_recent_serve_lapses", "Times at which no commit came through and this node answered nobody until one did,"+when, s.recent.lapses)
}
