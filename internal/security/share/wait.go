package share

import (
	"context"
	"slices"
)

// A line has the calls that wait for one peer, of which the first one is served first. Lines
// take turns, so that a peer that waits often delays others by one turn and no more.
type line struct {
	peer    string
	waiters []*waiter
}

type waiter struct {
	n     int64
	taken chan struct{} // closed when it has what it waits for; guarded by the budget's lock
}

// Wait gives a peer n more. It waits until there is room, at most until the context ends:
// then its error says why it ended. n must be no more than one peer may have.
func (b *Budget) Wait(ctx context.Context, peer string, n int64) error {
	b.mu.Lock()
	l := b.lineOf(peer)
	if l == nil && len(b.waiting) == 0 && b.Room(b.all, b.of[peer], n) {
		b.take(peer, n)
		b.mu.Unlock()
		return nil
	}
	if l == nil {
		l = &line{peer: peer}
		b.waiting = append(b.waiting, l)
	}
	w := &waiter{n, make(chan struct{})}
	l.waiters = append(l.waiters, w)
	b.serve()
	b.mu.Unlock()
	select {
	case <-w.taken:
		return nil
	case <-ctx.Done():
		return b.leave(peer, w, context.Cause(ctx))
	}
}

// leave ends a wait. It may have been served meanwhile.
func (b *Budget) leave(peer string, w *waiter, why error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lineOf(peer)
	i := -1
	if l != nil {
		i = slices.Index(l.waiters, w)
	}
	if i < 0 {
		return nil
	}
	l.waiters = slices.Delete(l.waiters, i, i+1)
	b.serve() // it may have held up others
	return why
}

// serve gives those who wait what there is. One that waits for more than there is keeps its
// turn: only peers with few pass it. The lock is held.
func (b *Budget) serve() {
	for served := true; served; {
		served = false
		held := false // somebody waits for others to give back
		for i := 0; i < len(b.waiting); i++ {
			l := b.waiting[i]
			if len(l.waiters) == 0 {
				b.waiting = slices.Delete(b.waiting, i, i+1)
				i--
				continue
			}
			w, own := l.waiters[0], b.of[l.peer]
			if held && own+w.n > b.Few || !b.Room(b.all, own, w.n) {
				held = held || own+w.n <= b.Peer
				continue
			}
			b.take(l.peer, w.n)
			close(w.taken)
			l.waiters = l.waiters[1:]
			b.waiting = append(slices.Delete(b.waiting, i, i+1), l) // its next turn is the last
			served = true
			break
		}
	}
}

func (b *Budget) take(peer string, n int64) {
	b.all += n
	b.of[peer] += n
}

func (b *Budget) lineOf(peer string) *line {
	for _, l := range b.waiting {
		if l.peer == peer {
			return l
		}
	}
	return nil
}
