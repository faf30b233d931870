package metrics

import (
	"strings"
	"time"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// A scrape is everything that is read at one moment.
type scrape struct {
	status    promote.Status
	calls     *service.Counters
	renewals  *leasesync.Counters
	evictions *eviction.Counters

	// Of the state; zero while there is none.
	store    *metadata.Store
	stats    metadata.Stats
	leases   metadata.LeaseCounts
	cutoffs  metadata.CutoffCounts
	leaseTTL time.Duration
	segments map[string]use // by name

	// Of the term; zero on a node that does not serve.
	clients     int
	queueBytes  int
	submissions int

	polled
	commitAge time.Duration
}

// use is how much of the memory behind a segment's name is taken, in bytes.
type use struct{ busy, capacity uint64 }

// take reads everything that is not read figure by figure.
func (m *Metrics) take() *scrape {
	s := &scrape{
		status: m.src.Status(), calls: m.src.Calls, renewals: m.src.Renewals, evictions: m.src.Evictions,
		store: m.src.Store(), segments: make(map[string]use),
	}
	s.polled, s.commitAge = m.polls.look(s.status, m.src.Clock())
	if s.store != nil {
		s.stats, s.leases, s.cutoffs = s.store.Stats(), s.store.LeaseCounts(), s.store.CutoffCounts()
		s.leaseTTL = s.store.Params().LeaseTTL
		for _, seg := range s.store.Segments() {
			// Several segments may share a name, or do once it is fit for a label.
			name := strings.ToValidUTF8(seg.Name, "\uFFFD")
			u := s.segments[name]
			s.segments[name] = use{u.busy + seg.Busy, u.capacity + seg.Capacity}
		}
	}
	if master, err := m.src.Gate.Master(); err == nil {
		s.clients = master.Liveness.Active()
		s.queueBytes, s.submissions = master.Queue.Len()
	}
	return s
}

// committed returns the newest sequence that this node knows of.
func (s *scrape) committed() metadata.Seq {
	return max(s.status.Head.Seq, s.status.Position.Seq, s.head.Seq)
}

// term returns the newest term that this node knows of.
func (s *scrape) term() metadata.Term {
	return max(s.status.Leader.Term, s.status.Position.Term, s.status.Head.Term, s.head.Term)
}

// loads returns how many snapshots were loaded for a reason.
func (s *scrape) loads(r journal.Reason) float64 { return float64(s.status.Loads[r]) }
