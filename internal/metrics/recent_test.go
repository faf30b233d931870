package metrics

import (
	"testing"
	"time"
)

// An outage counts for ten minutes as a slow commit and as a lapse, and no longer, however
// long the node runs on; and what is kept for that is bounded.
func TestRecentFiguresForgetAnOutage(t *testing.T) {
	r := newRig(t)
	r.status.Window = 600 * time.Millisecond
	pass := func(d time.Duration) {
		for end := r.clock + d; r.clock < end; {
			r.clock += time.Second
			r.Committed(t.Context(), 1, 1, 5*time.Millisecond, 0)
			r.poll(t.Context(), false)
		}
	}
	recent := func(what string, commits, mean, slow, lapses float64) {
		t.Helper()
		r.values(what, map[string]float64{
			"understudy_recent_commits": commits, "understudy_recent_slow_commits": slow, "understudy_recent_serve_lapses": lapses,
		})
		if got, ok := r.value("understudy_recent_commit_mean_seconds"); !ok || got < mean*0.999 || got > mean*1.001 {
			t.Errorf("%s: the mean is %v (shown: %v), want %v", what, got, ok, mean)
		}
	}
	recent("at the start", 0, 0, 0, 0)
	pass(time.Minute)
	recent("in the first minute", 60, .005, 0, 0)
	r.Committed(t.Context(), 1, 1, 30*time.Second, 0)
	r.status.Lapses = 1
	recent("just after an outage", 61, (60*.005+30)/61, 1, 1)
	pass(9 * time.Minute)
	recent("nine minutes after it", 601, (600*.005+30)/601, 1, 1)
	pass(2 * time.Minute)
	recent("eleven minutes after it", 600, .005, 0, 0)
	r.values("since the start", map[string]float64{"understudy_serve_lapses_total": 1})
	pass(time.Hour)
	recent("an hour after it", 600, .005, 0, 0)
	if n := len(r.tallies.list); n > int(recentTime/recentStep)+1 || cap(r.tallies.list) > 4*n {
		t.Errorf("%d marks with room for %d are kept, want those of ten minutes", n, cap(r.tallies.list))
	}
}
