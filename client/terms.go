package client

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
)

const (
	// lapseAfter is for how long a term that nobody serves shuts out the answers of a
	// lower one. Nodes answer by their own right only: by then nothing is on its way any
	// more that a replaced one has answered, and whoever still answers leads, be it that
	// the higher term came to nothing or that the cluster began anew.
	lapseAfter = 10 * time.Second
	// lapseGap is how far apart answers that are refused may be, to count as one time.
	lapseGap = 2 * time.Second
)

// terms knows the highest term: answers of lower ones come from a replaced primary.
type terms struct {
	clock    clock.Clock
	highest  atomic.Uint64
	refusing atomic.Bool // an answer was refused, and none of the highest term has come since

	mu          sync.Mutex    // guards what follows, and refusing; a leaf
	since, last time.Duration // of the answers that were refused
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

// served takes note of the term of a primary's answer. It reports false if that is to be
// refused. 0 is none: not every transport has terms.
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
