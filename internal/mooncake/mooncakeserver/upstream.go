package mooncakeserver

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/service"
)

// Pauses between attempts at a primary that does not serve.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// An upstream is what all relays of this node know of the primary that the gate
// hints at. There are as many relays as clients: while the primary fails, one at
// a time tries it, and the others wait for its result.
type upstream struct {
	gate  *service.Gate
	clock clock.Clock

	mu      sync.Mutex    // guards all below
	hint    service.Hint  // who it is about
	failing bool          // it cannot be reached, or does not serve
	failure error         // the last one, until it has answered
	round   int           // grows with each failure that counts
	pause   time.Duration // after the last failure; 0 once it has answered
	next    time.Duration // by the clock: when the next relay may ask
	serves  chan struct{} // closed when it fails no more
}

// A turn is one relay's attempt at the primary.
type turn struct {
	hint  service.Hint
	round int
}

func newUpstream(gate *service.Gate) *upstream {
	return &upstream{gate: gate, clock: clock.Runtime(), serves: make(chan struct{})}
}

// take gives a relay its turn, or returns how long it must wait before it asks for
// one again. The channel is closed when the wait is over sooner.
func (u *upstream) take() (t turn, wait time.Duration, serves <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if h := u.gate.Hint(); h != u.hint {
		u.hint, u.failing, u.failure, u.pause = h, false, nil, 0
	}
	now := u.clock()
	switch {
	case u.hint.RPC == "":
		wait = spread(longestPause)
	case u.failing && now < u.next:
		wait = u.next - now
	case u.failing:
		u.next = now + spread(u.pause) // a turn without an answer must not hold up the others
	}
	return turn{u.hint, u.round}, wait, u.serves
}

// failed notes why a turn came to nothing. It reports whether this is news: the
// first failure since the primary has answered.
func (u *upstream) failed(t turn, err error) (news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if t.hint != u.hint || u.failing && t.round != u.round {
		return false // that is known
	}
	news = u.pause == 0
	u.failing, u.failure = true, err
	u.round++
	u.pause = min(max(2*u.pause, firstPause), longestPause)
	u.next = u.clock() + spread(u.pause)
	return news
}

// connected notes that the primary has answered that it serves.
func (u *upstream) connected(t turn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if t.hint == u.hint && u.failing {
		u.failing = false
		close(u.serves)
		u.serves = make(chan struct{})
	}
}

// answered notes that the primary has answered a request: a next failure is the
// first one again.
func (u *upstream) answered(t turn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if t.hint == u.hint {
		u.pause, u.failure = 0, nil
	}
}

func (u *upstream) why() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.failure
}

// spread returns a time between half of a pause and one and a half of it, so
// that nodes do not ask in step.
func spread(pause time.Duration) time.Duration { return pause/2 + rand.N(pause) }
