package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

const (
	// pollEvery is how often Run reads what a scrape cannot read.
	pollEvery = time.Second
	// sizeEvery is the number of polls from one request for etcd's size to the next.
	sizeEvery = 5
	// pollTimeout bounds one request to etcd.
	pollTimeout = 2 * time.Second
)

// polled is the result of the last polls.
type polled struct {
	head       journal.Head // of the journal, as last read from etcd
	lagKnown   bool
	lagEntries uint64
	lagTime    time.Duration
	etcdBytes  uint64
	etcdQuota  uint64
}

// polls keeps the result of the last polls for scrapes.
type polls struct {
	mu    sync.Mutex // guards all below
	last  polled
	seq   metadata.Seq  // of the state at the last look
	moved time.Duration // by the clock, when seq was first seen
}

// Run asks etcd once a second for what a scrape must not wait for, and counts events that
// happen between scrapes, until the context ends. While etcd does not answer, the figures
// stay as they are, and understudy_commit_age_seconds grows.
func (m *Metrics) Run(ctx context.Context) error {
	m.poll(ctx, true)
	n := 0
	return clock.Every(ctx, pollEvery, func() error {
		n++
		m.poll(ctx, n%sizeEvery == 0)
		return nil
	})
}

func (m *Metrics) poll(ctx context.Context, size bool) {
	status := m.src.Status()
	m.polls.look(status, m.src.Clock())
	m.tallies.note(m.tally(status.Lapses))
	if t := status.Takeover; t.Term != 0 && t.Term != m.counted {
		m.counted = t.Term
		m.takeover(t)
	}
	if s := status.Saving; s.Saves > m.saves { // saves are much rarer than polls
		m.saves = s.Saves
		m.snapshot.Observe(float64(s.Took.Milliseconds()))
	}
	m.pollLag(ctx, status)
	if size && m.src.EtcdSize != nil {
		m.pollSize(ctx)
	}
}

// pollLag compares the journal's head with the state a moment later, so that commits which
// are just arriving do not count as lag.
func (m *Metrics) pollLag(ctx context.Context, status promote.Status) {
	if m.src.Head == nil {
		return
	}
	lag := polled{lagKnown: true}
	if status.Self.Role == promote.Standby {
		ctx, cancel := context.WithTimeout(ctx, pollTimeout)
		defer cancel()
		at, err := m.src.Head(ctx)
		if err != nil {
			return
		}
		lag.head = at.Head
		own := m.src.Status().Position
		// A node without a state has no lag.
		lag.lagKnown = own.Seq > 0
		if lag.lagKnown {
			lag.lagEntries, lag.lagTime = at.Head.Lag(own)
		}
	}
	m.polls.mu.Lock()
	defer m.polls.mu.Unlock()
	lag.etcdBytes, lag.etcdQuota = m.polls.last.etcdBytes, m.polls.last.etcdQuota
	m.polls.last = lag
}

func (m *Metrics) pollSize(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	used, quota := m.src.EtcdSize(ctx)
	m.polls.mu.Lock()
	defer m.polls.mu.Unlock()
	m.polls.last.etcdBytes, m.polls.last.etcdQuota = used, quota
}

// look records whether the state has advanced. It returns the result of the last polls, and
// how long ago the state last advanced.
func (p *polls) look(status promote.Status, now time.Duration) (polled, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seq := status.Position.Seq; seq != p.seq {
		p.seq, p.moved = seq, now
	}
	last := p.last
	if status.Self.Role != promote.Standby {
		last.lagEntries, last.lagTime = 0, 0 // they are from when the node was a standby
	}
	return last, now - p.moved
}
