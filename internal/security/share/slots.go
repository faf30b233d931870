package share

import (
	"context"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
)

const (
	// longestRun is how long a connection is served without having waited for its peer before it
	// needs a slot. A client that sends a request after the answer to the one before makes its
	// connection wait for each.
	longestRun = time.Millisecond
	// shortestWait is a wait for a peer: to read what has come already takes less.
	shortestWait = 10 * time.Microsecond
	// longestSlot is how long a connection waits for a slot. Then it goes on without: those of its
	// peer that have one may be held up, by a peer that does not read its answers, for example.
	longestSlot = time.Second
	// manyPeers have slots at a time, at most.
	manyPeers = 1 << 16
)

// Slots are for connections whose peers send without a pause, so that there is always more to
// read. Go's runtime takes a processor from such a connection after 10 ms only, so a hundred of
// them hold up all else by half a second, and a commit has to get a processor several times. With
// slots half of the processors, one at least, serve such connections of one peer.
type Slots struct {
	clock  clock.Clock
	budget *Budget // of processors, for each peer
}

// NewSlots returns slots on so many processors.
func NewSlots(c clock.Clock, processors int) *Slots {
	half := max(1, int64(processors)/2)
	return &Slots{c, NewBudget(Rule{Total: manyPeers * half, Peer: half})}
}

// Empty reports whether nobody has a slot.
func (s *Slots) Empty() bool { return s.budget.Empty() }

// A Slot is what one connection has of them, or does not have. It is for the goroutine that
// reads from the connection, except End.
type Slot struct {
	slots *Slots
	peer  string
	began time.Duration // when the last wait for the peer ended
	needs bool
	has   atomic.Bool
}

// Of returns the slot of a peer's connection, which does not have it yet.
func (s *Slots) Of(peer string) *Slot { return &Slot{slots: s, peer: peer, began: s.clock()} }

// Read ends the slot, reads from the connection, and finds out whether what has been read needs
// a slot.
func (s *Slot) Read(from io.Reader, b []byte) (int, error) {
	s.End()
	asked := s.slots.clock()
	n, err := from.Read(b)
	now := s.slots.clock()
	if now-asked >= shortestWait {
		s.began = now
	}
	s.needs = now-s.began >= longestRun
	return n, err
}

// Waited says that the connection was waited for in another way than by Read.
func (s *Slot) Waited() { s.began = s.slots.clock() }

// Wait waits for the slot, if it is needed, at most until the context ends. End must follow.
func (s *Slot) Wait(ctx context.Context) {
	if !s.needs || s.has.Load() {
		return
	}
	taken, _, _ := s.slots.budget.Take(s.peer, 1)
	if !taken {
		ctx, cancel := context.WithTimeout(ctx, longestSlot)
		defer cancel()
		taken = s.slots.budget.Wait(ctx, s.peer, 1) == nil
	}
	if s.has.Store(taken); !taken {
		s.Waited() // it has waited long enough
	}
}

// Has reports whether the connection has the slot.
func (s *Slot) Has() bool { return s.has.Load() }

// End gives the slot back, if the connection has it. It must come before what may wait.
func (s *Slot) End() {
	if s.Has() && s.has.Swap(false) {
		s.slots.budget.GiveBack(s.peer, 1)
		runtime.Gosched() // whoever has waited for a processor goes first
	}
}
