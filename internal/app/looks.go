package app

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
)

const (
	// looksPerSecond bounds how often a node reads from etcd for those who ask for its status,
	// however many ask: each look takes up to seven reads, and etcd has commits to make.
	looksPerSecond = 20
	// looksAtOnce is how many of them may follow at once where few ask.
	looksAtOnce = 5
)

// looks lets callers share what a read brings. Each gets one that began after it had asked, so
// it sees what it did before.
type looks[T any] struct {
	pace *rate.Limiter

	mu   sync.Mutex
	next *sharedLook[T] // has not begun; nil if nobody waits for it
}

// A sharedLook is for all who asked before it began.
type sharedLook[T any] struct {
	done chan struct{}
	seen T
}

func newLooks[T any]() *looks[T] {
	return &looks[T]{pace: rate.NewLimiter(looksPerSecond, looksAtOnce)}
}

// share returns what a read brings, which may be that of another caller. A read for others goes
// on when its own caller has gone: it bounds its time itself.
func (l *looks[T]) share(ctx context.Context, read func(context.Context) T) T {
	l.mu.Lock()
	own, s := false, l.next
	if s == nil {
		own, s = true, &sharedLook[T]{done: make(chan struct{})}
		l.next = s
	}
	l.mu.Unlock()
	if !own {
		select {
		case <-s.done:
			return s.seen
		case <-ctx.Done(): // nobody waits for it
			var nothing T
			return nothing
		}
	}
	defer close(s.done)
	ctx = context.WithoutCancel(ctx)
	_ = l.pace.Wait(ctx) // a fraction of a second; it has no other error
	l.mu.Lock()
	l.next = nil
	l.mu.Unlock()
	s.seen = read(ctx)
	return s.seen
}
