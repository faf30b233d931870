package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

const (
	// maxLearned is how many addresses are kept besides the configured ones.
	maxLearned = 16
	// quietFor is how long a leader may answer nothing, with calls in progress,
	// before all nodes are asked whether they lead: one whose process is stopped
	// takes calls and never answers. It is shorter than most failover times, so
	// that the next leader is found when it begins to serve.
	quietFor = 250 * time.Millisecond
	// lostAfter is how long a leader may answer nothing, though it is asked whether it
	// leads, before it is called at another address where it answers.
	lostAfter = 3 * probeTimeout
	// drainFor is how long the connection of a replaced leader stays open, for answers
	// that may still arrive; not longer, so that calls that hang there come back. It is
	// closed at once if the leader was quiet before.
	drainFor = 250 * time.Millisecond
)

// A leader is a primary that has answered, with the connection to it.
type leader struct {
	Leader
	candidate *candidate
	conn      Conn
	answered  atomic.Int64 // when it last did, on the client's clock
}

// A finder knows the leader. Hints, and the leader key in etcd, only say whom to
// ask: a leader is a node that has answered as such, with a term that is not
// lower than any that is known (see terms).
//
// It asks only while calls wait for a leader. All callers share the one search.
type finder struct {
	view     *view
	config   Config
	clock    clock.Clock
	ctx      context.Context // ends with the client
	spawn    func(func(context.Context)) bool
	calls    atomic.Int64           // in progress
	current  atomic.Pointer[leader] // nil while none is known
	wake     chan struct{}          // starts a search
	arrivals chan struct{}          // makes the search look for new candidates

	mu         sync.Mutex // guards what follows, and changes of current but to nil
	candidates []*candidate
	latest     *leader       // elected last, and not retired; it may be dropped
	searching  bool          // a search is in progress, or about to begin
	news       chan struct{} // closed, and replaced, when waiting callers must look again
	met        bool          // a node of this cluster has answered, ever
	fault      *errs.Error   // why no search will find a leader; nil if one may
	reported   Leader        // the last one that the observer got
	closed     bool
}

func newFinder(c *Client) *finder {
	f := &finder{
		view: c.view, config: c.config, clock: c.clock, ctx: c.ctx, spawn: c.spawn,
		wake: make(chan struct{}, 1), arrivals: make(chan struct{}, 1), news: make(chan struct{}),
	}
	for _, address := range f.config.Addresses {
		f.candidateLocked(address).configured = true
	}
	return f
}

// wait returns the leader as soon as there is one. It fails when the context ends, when
// the client is closed, or when the addresses cannot be right.
func (f *finder) wait(ctx context.Context) (*leader, error) {
	for {
		if l := f.current.Load(); l != nil {
			return l, nil
		}
		news, err := f.look()
		if err != nil {
			return nil, err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-f.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// look begins a search unless one is in progress, and returns a channel that is
// closed when there is something to see.
func (f *finder) look() (<-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.searching && f.fault != nil:
		return nil, f.fault
	case !f.searching:
		f.searching, f.fault = true, nil
		for _, c := range f.candidates {
			c.state, c.problem = unasked, nil
		}
		notify(f.wake)
	}
	news := f.news
	if f.current.Load() != nil { // found meanwhile
		f.wakeCallersLocked()
	}
	return news, nil
}

func (f *finder) wakeCallersLocked() {
	close(f.news)
	f.news = make(chan struct{})
}

// drop gives up a leader that turned a call away, or cannot be reached. from is
// what it knew of its successor.
func (f *finder) drop(l *leader, from rpcerr.Source) {
	if from.Leader != "" {
		f.hint(from.Leader, from.Term)
	}
	if f.current.CompareAndSwap(l, nil) {
		f.config.Log.Debug("the leader turns calls away or cannot be reached", "address", l.Address, "term", l.Term)
	}
}

// hint makes the search ask the node at an address at once, because another node takes it
// for the leader of a term. It does so once for each term: two nodes that take each other
// for the leader would keep this client busy otherwise.
func (f *finder) hint(address string, term uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.candidateLocked(address); term > c.hinted {
		c.hinted = term
		notify(c.kick)
	}
}

// announced takes note of the leader key in etcd: the node was elected, or serves.
func (f *finder) announced(address string, term uint64) {
	f.view.terms.announce(term)
	f.mu.Lock()
	c := f.candidateLocked(address)
	c.hinted = max(c.hinted, term)
	notify(c.kick)
	known := false
	if l := f.current.Load(); l != nil {
		if known = l.Term >= term; !known {
			f.current.Store(nil)
			f.retireLocked()
		}
	}
	f.mu.Unlock()
	if !known {
		_, _ = f.look()
	}
}

// elect notes that a node has answered as the leader. It reports false if the leader that
// is known stays.
func (f *finder) elect(c *candidate, conn Conn, h *pb.ResponseHeader) bool {
	l := &leader{Leader: Leader{c.address, h.GetNodeId(), h.GetTerm()}, candidate: c, conn: conn}
	l.answered.Store(int64(f.clock()))
	f.mu.Lock()
	old := f.current.Load()
	switch {
	case f.closed || c.conn != conn: // it was given up meanwhile
		f.mu.Unlock()
		return false
	case old != nil && old.Term >= l.Term && old.candidate == c:
		old.answered.Store(l.answered.Load())
		f.mu.Unlock()
		return true
	case old != nil && old.Term >= l.Term && f.silence(old) < lostAfter:
		f.mu.Unlock() // the same node by another address: wait for what the first one brings
		return false
	case f.latest != nil && f.latest.conn != conn:
		f.retireLocked()
	}
	f.latest = l
	for _, c := range f.candidates {
		c.vain = 0
	}
	f.current.Store(l)
	f.wakeCallersLocked()
	changed := f.reported != l.Leader
	f.reported = l.Leader
	f.mu.Unlock()
	if changed {
		f.config.Log.Debug("found the leader", "address", l.Address, "node", l.NodeID, "term", l.Term)
		if f.config.Observer != nil {
			f.config.Observer.LeaderChanged(l.Leader)
		}
	}
	return true
}

// retireLocked gives up the connection to the latest leader, which is replaced:
// calls that hang there come back, and are made again at its successor.
func (f *finder) retireLocked() {
	l := f.latest
	f.latest = nil
	if l.candidate.conn == l.conn {
		l.candidate.conn = nil
	}
	if f.silence(l) > quietFor {
		_ = l.conn.Close()
		return
	}
	f.closeLater(l.conn)
}

func (f *finder) closeLater(conn Conn) {
	running := f.spawn(func(ctx context.Context) {
		_ = clock.Sleep(ctx, drainFor)
		_ = conn.Close()
	})
	if !running {
		_ = conn.Close()
	}
}

// quiet reports whether calls are in progress and the leader answers none.
func (f *finder) quiet() bool {
	l := f.current.Load()
	return l != nil && f.calls.Load() > 0 && f.silence(l) > quietFor
}

// needed reports whether calls need another leader than is known.
func (f *finder) needed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.searching
}

func (f *finder) silence(l *leader) time.Duration {
	return f.clock() - time.Duration(l.answered.Load())
}

// why returns why no node leads as far as is known, if none does.
func (f *finder) why() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current.Load() != nil || f.closed {
		return ""
	}
	return f.whyLocked()
}

func (f *finder) whyLocked() string {
	const most = 8
	var list []string
	for _, c := range f.candidates {
		switch {
		case len(list) == most || c.state == ours && c.problem == nil:
		case c.problem == nil:
			list = append(list, c.address+": "+rpcerr.NoAnswer)
		default:
			list = append(list, notServing(c.address, c.problem))
		}
	}
	if len(f.candidates) == 0 {
		list = append(list, "etcd names no leader, or does not answer")
	}
	return strings.Join(list, "; ")
}

// notServing says why the node at an address does not serve. Its kind is left out if that is
// all that the kind says.
func notServing(address string, problem error) string {
	if e, ok := errors.AsType[*errs.Error](problem); ok && (e.Kind == errs.NotLeader || e.Kind == errs.Unavailable) && !rpcerr.Unanswered(e) && e.Detail != "" {
		return address + ": " + e.Detail
	}
	return rpcerr.At(address, problem)
}

// close ends all calls.
func (f *finder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	f.current.Store(nil)
	for _, c := range f.candidates {
		c.closeLocked()
	}
}

// candidateLocked returns the candidate at an address, and makes one if it was not known.
func (f *finder) candidateLocked(address string) *candidate {
	for _, c := range f.candidates {
		if c.address == address {
			return c
		}
	}
	c := &candidate{address: address, kick: make(chan struct{}, 1)}
	f.forgetLocked()
	f.candidates = append(f.candidates, c)
	notify(f.arrivals)
	return c
}

// forgetLocked makes room for a learned address: if there are maxLearned, it forgets the
// one that was learned first and does not lead.
func (f *finder) forgetLocked() {
	learned, oldest := 0, -1
	current := f.current.Load()
	for i, c := range f.candidates {
		if c.configured || current != nil && current.candidate == c {
			continue
		}
		if learned++; oldest < 0 {
			oldest = i
		}
	}
	if learned >= maxLearned {
		c := f.candidates[oldest]
		c.forgotten = true
		if c.conn != nil {
			f.closeLater(c.conn)
			c.conn = nil
		}
		f.candidates = slices.Delete(f.candidates, oldest, oldest+1)
	}
}

// notify fills a channel of capacity 1.
func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
