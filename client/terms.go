package client

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
)

const (
	// lapseAfter is how long a term that nobody serves keeps the answers of a lower one
	// from being used. By then no answer of a replaced primary is under way any more, as
	// nodes answer only while they have the right to. Whoever still answers leads: the
	// higher term came to nothing, or the cluster began anew.
	lapseAfter = 10 * time.Second
	// lapseGap is the longest time between two refused answers that count as one series.
	lapseGap = 2 * time.Second
)

// terms knows the highest term: answers of lower ones come from a replaced primary.
type terms struct {
	clock    clock.Clock
	highest  atomic.Uint64
	refusing atomic.Bool // an answer was refused, and none of the highest term has come since

	mu          sync.Mutex    // guards what follows, and refusing; a leaf
	since, last time.Duration // when the first and the last answer of the series were refused
	lapsed      uint64        // terms up to this one count only once they are served
}

// announce takes note of a term that has begun. 0 is none.
func (t *terms) announce(term uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if term > t.lapsed && term > t.highest.Load() {
		t.highest.Store(term)
		t.refusing.Store(false)
	}
}

// served notes the term of a primary's answer. It reports false if that answer is to be
// refused. 0 is no term: not every transport has terms.
func (t *terms) served(term uint64) bool {
	if term == 0 || term == t.highest.Load() && !t.refusing.Load() {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if highest := t.highest.Load(); term < highest {
		if !t.lapsesLocked() {
			return false
		}
		t.lapsed = max(t.lapsed, highest)
	}
	t.highest.Store(term)
	t.refusing.Store(false)
	return true
}

// lapsesLocked reports whether answers were refused for long enough.
func (t *terms) lapsesLocked() bool {
	now := t.clock()
	if !t.refusing.Swap(true) || now-t.last > lapseGap {
		t.since = now
	}
	t.last = now
	return now-t.since >= lapseAfter
}
