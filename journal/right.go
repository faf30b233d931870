package journal

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal/nowait"
)

// A Right says until when the primary of a term may answer calls, by its own
// clock (docs/design.md, section 8, Beats).
//
// A commit that succeeded extends it to the time at which that commit was first
// sent, plus the serve window in its head, less what two clocks, each within 1/1000 of
// a common rate, may differ in that time. Whoever is elected next waits for that window from
// when it learned of the head, which is later than the sending.
//
// While heads carry no window, for nodes of an older version, the deadline of the
// session counts instead, from the first such commit that succeeded: until then
// followers may depose by the head before it. Safe for concurrent use.
type Right struct {
	clock clock.Clock
	until atomic.Int64 // by the clock, in ns; stopped after Stop

	mu       sync.Mutex    // guards all below
	window   time.Duration // of the newest head that was sent, 0 for none
	session  time.Duration // deadline of the session, by the clock
	counts   bool          // the session counts: the newest commit has no window
	patience time.Duration // how long a lapsed right is waited for
	renewed  chan struct{} // closed and replaced when the right is extended or stopped
	waiting  int
	lapses   int
	last     time.Duration // by the clock: when the newest commit that succeeded was first sent
}

// maxWaiting bounds the callers that wait for a lapsed right. Further ones are
// turned away.
const maxWaiting = 4096

// stopped is the deadline of a right that was given up.
const stopped = math.MinInt64

// NewRight returns a right that nothing has extended yet.
func NewRight(clk clock.Clock) *Right {
	return &Right{clock: clk, renewed: make(chan struct{})}
}

// Valid reports whether the right has not lapsed.
func (r *Right) Valid() bool {
	return int64(r.clock()) < r.until.Load()
}

// Fence returns nil while the right is valid. When it has lapsed, Fence waits for
// the commit that renews it, but not beyond the time from which another node may
// be elected; then it returns errs.NotLeader.
func (r *Right) Fence(ctx context.Context) error {
	for !r.Valid() {
		if nowait.Asked(ctx) {
			return nowait.Err
		}
		if !r.wait(ctx) {
			return errLapsed
		}
	}
	return nil
}

var errLapsed = errs.New(errs.NotLeader, "fence", "this node has committed nothing for too long: another node may be the primary")

// wait waits until the right is extended, and reports whether it was.
func (r *Right) wait(ctx context.Context) bool {
	r.mu.Lock()
	until, renewed := r.until.Load(), r.renewed
	left := time.Duration(until) + r.patience - r.clock()
	if until == stopped || left <= 0 || r.waiting >= maxWaiting {
		r.mu.Unlock()
		return r.Valid()
	}
	r.waiting++
	r.mu.Unlock()
	timer := time.NewTimer(left)
	defer timer.Stop()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.waiting--
	}()
	select {
	case <-renewed:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// Until returns when the right ends, by the clock, and a channel that is closed
// when that changes.
func (r *Right) Until() (time.Duration, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(r.until.Load()), r.renewed
}

// Lapses returns how often the right has lapsed and come back.
func (r *Right) Lapses() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lapses
}

// Stop gives the right up for good.
func (r *Right) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until.Store(stopped)
	r.signalLocked()
}

// sending notes that a commit is about to be sent with a window in its head, and
// the time after which followers depose. Whoever learns of it relies on that
// window alone, so nothing that was sent before may reach beyond it.
func (r *Right) sending(now, window, failover time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := now + window - margin(window)
	if window == 0 {
		limit = r.session
	}
	if shorter := window < r.window || r.window == 0; shorter && r.until.Load() > int64(limit) {
		r.until.Store(int64(limit))
	}
	r.window, r.patience = window, failover-window
	r.counts = r.counts && window == 0
}

// committed notes that the commit sent at a time succeeded.
func (r *Right) committed(sent, window time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = sent
	if r.counts = window == 0; r.counts {
		r.extendLocked(r.session)
		return
	}
	r.extendLocked(sent + window - margin(window))
}

// LastCommit returns when, by the clock, the newest commit that succeeded was first sent; 0
// if there was none.
func (r *Right) LastCommit() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Session notes the deadline of the session, which counts while heads carry no
// window.
func (r *Right) Session(deadline time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session = deadline
	if r.counts {
		r.extendLocked(deadline)
	}
}

// margin is what two clocks, each within 1/1000 of a common rate, may differ in d.
func margin(d time.Duration) time.Duration { return d / 500 }

func (r *Right) extendLocked(to time.Duration) {
	until := r.until.Load()
	if until == stopped || int64(to) <= until {
		return
	}
	if now := int64(r.clock()); until > 0 && until <= now && int64(to) > now {
		r.lapses++
	}
	r.until.Store(int64(to))
	r.signalLocked()
}

func (r *Right) signalLocked() {
	close(r.renewed)
	r.renewed = make(chan struct{})
}
