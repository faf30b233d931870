package client

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
)

// lapseAfter is how long a term that nobody serves keeps the answers of a lower one from
// being used. No replaced primary answers an attempt that was begun later, as nodes answer
// only while they have the right to; what it has answered before may still be under way. So
// whoever answers such an attempt leads: the higher term came to nothing, or the cluster began
// anew.
const lapseAfter = 10 * time.Second

// terms knows the highest term: answers of lower ones come from a replaced primary.
type terms struct {
	clock    clock.Clock
	highest  atomic.Uint64
	refusing atomic.Bool // an answer was refused, and none of the highest term has come since

	mu     sync.Mutex    // guards what follows, and refusing; a leaf
	since  time.Duration // when the first answer was refused, while refusing
	lapsed uint64        // terms up to this one count only once they are served
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

// served notes the term of a primary's answer to an attempt that was begun at a time. It
// reports false if that answer is to be refused. 0 is no term: not every transport has terms.
func (t *terms) served(term uint64, begun time.Duration) bool {
	if term == 0 || term == t.highest.Load() && !t.refusing.Load() {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if highest := t.highest.Load(); term < highest {
		if !t.lapsesLocked(begun) {
			return false
		}
		t.lapsed = max(t.lapsed, highest)
	}
	t.highest.Store(term)
	t.refusing.Store(false)
	return true
}

// lapsesLocked reports whether an attempt was begun when answers had been refused for long
// enough. However long its callers rest in between, a client comes back so.
func (t *terms) lapsesLocked(begun time.Duration) bool {
	if !t.refusing.Swap(true) {
		t.since = t.clock()
	}
	return begun-t.since >= lapseAfter
}
