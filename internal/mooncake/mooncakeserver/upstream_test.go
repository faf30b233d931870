package mooncakeserver

import (
	"errors"
	"testing"
	"time"

	"github.com/understudy-store/understudy/internal/service"
)

// An oracle is an upstream with a clock that stands still.
type oracle struct {
	*upstream
	t   *testing.T
	now time.Duration
}

func newOracle(t *testing.T) *oracle {
	o := &oracle{upstream: newUpstream(service.NewGate()), t: t}
	o.clock = func() time.Duration { return o.now }
	return o
}

// mayAsk takes a turn that must be there.
func (o *oracle) mayAsk() turn {
	o.t.Helper()
	t, wait, _ := o.take()
	if wait != 0 {
		o.t.Errorf("at %v a relay must wait for %v, want 0", o.now, wait)
	}
	return t
}

// mustWait returns how long.
func (o *oracle) mustWait(least, most time.Duration) time.Duration {
	o.t.Helper()
	_, wait, _ := o.take()
	if wait < least || wait > most {
		o.t.Errorf("at %v a relay waits for %v, want %v to %v", o.now, wait, least, most)
	}
	return wait
}

var errRefused = errors.New("refused")

// While the primary fails one relay at a time asks it, less and less often. All
// may when it serves, or when another one is hinted at.
func TestRelaysTakeTurns(t *testing.T) {
	o := newOracle(t)
	o.mustWait(longestPause/2, 3*longestPause/2) // nobody is known
	o.gate.SetHint(service.Hint{Term: 1, RPC: "a"})
	for pause, i := firstPause, 0; i < 8; pause, i = min(2*pause, longestPause), i+1 {
		first, second := o.mayAsk(), turn{}
		if i == 0 {
			second = o.mayAsk() // nothing is wrong yet
		}
		if news := o.failed(first, errRefused); news != (i == 0) {
			t.Errorf("failure %d is news: %v; want the first only", i, news)
		}
		if o.failed(second, errRefused) {
			t.Error("a failure that another relay has found: got it as news, want it known")
		}
		o.now += o.mustWait(pause/2, 3*pause/2)
		if i == 7 {
			break
		}
		o.now += time.Hour
	}
	asking := o.mayAsk()
	o.now += o.mustWait(longestPause/2, 3*longestPause/2) // for what that one hears
	another := o.mayAsk()                                 // it hangs
	_, _, serves := o.take()
	o.connected(another)
	select {
	case <-serves:
	default:
		t.Error("the primary serves again: got those who wait not woken, want them woken")
	}
	o.mayAsk()
	if o.failed(another, errRefused) {
		t.Error("a primary that connects and does not answer: got its failure as news, want it known")
	}
	o.mustWait(longestPause/2, 3*longestPause/2)
	if o.failed(asking, errRefused) {
		t.Error("the failure of a relay that hung: got it as news, want it known")
	}

	o.now += time.Hour
	again := o.mayAsk()
	o.connected(again)
	o.answered(again)
	if o.why() != nil {
		t.Errorf("it has answered, and: %v; want no reason", o.why())
	}
	if !o.failed(again, errRefused) {
		t.Error("a failure after an answer: got it as known, want it as news")
	}
	o.mustWait(firstPause/2, 3*firstPause/2)

	o.gate.SetHint(service.Hint{Term: 2, RPC: "b"})
	next := o.mayAsk()
	if o.failed(again, errRefused) {
		t.Error("a failure of the primary before: got it as news, want it ignored")
	}
	o.mayAsk()
	o.failed(next, errRefused)
	o.gate.SetHint(service.Hint{Term: 3, RPC: "b"}) // the same node, once more
	o.mayAsk()
}
