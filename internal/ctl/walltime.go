package ctl

import (
	"context"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/clock"
)

// wallTimes derives when commits were made, by the wall clock of this machine. Commits carry
// cluster time, which no wall clock sets and which stands still while there is no primary. So
// the wall time of a commit is counted back from the moment at which the primary reported its
// cluster time. For commits of earlier terms, the gaps between terms are subtracted as well,
// as far as the history of terms has them.
type wallTimes struct {
	asked   time.Time // when the primary answered; zero if none serves, so nothing can be derived
	cluster int64     // its cluster time then
	term    uint64
	rough   bool              // asked is when a commit of a newer term came, not when a primary answered
	gaps    map[uint64]uint64 // milliseconds without a primary before a term
}

// wallTimes asks the primary for its history. If no node serves, there are no wall times; if
// the history cannot be read, there are no gaps.
func (ns nodes) wallTimes(ctx context.Context) *wallTimes {
	p := ns.primary()
	if p == nil {
		return &wallTimes{}
	}
	state := p.status.GetState()
	w := &wallTimes{asked: p.asked, cluster: state.GetClusterTimeMs(), term: state.GetTerm(), gaps: map[uint64]uint64{}}
	if h, err := p.admin.History(ctx, &pb.HistoryRequest{}); err == nil {
		for _, t := range h.GetTerms() {
			w.gaps[t.GetTerm()] = t.GetGapMs()
		}
	}
	return w
}

// of returns the wall time of a commit, and whether it is only approximate. It is zero if
// it cannot be derived.
func (w *wallTimes) of(term uint64, cluster int64) (at time.Time, rough bool) {
	switch {
	case w.asked.IsZero():
		return time.Time{}, false
	case term > w.term: // a commit of the next primary, made just now
		w.asked, w.cluster, w.term, w.rough = clock.Wall(), cluster, term, true
	}
	at = w.asked.Add(cli.Millis(cluster) - cli.Millis(w.cluster))
	for later, gap := range w.gaps {
		if later > term && later <= w.term {
			at = at.Add(-cli.Millis(gap))
		}
	}
	return at, w.rough || term < w.term
}

// result is an event for people and programs, with its wall time.
func (w *wallTimes) result(event *pb.EventsResponse) eventResult {
	r := resultOf(event)
	if at, rough := w.of(r.Term, r.Time); !at.IsZero() {
		r.Wall, r.Rough = at.UTC().Format("2006-01-02T15:04:05.000Z"), rough
	}
	return r
}
