package console

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// A shared value is read once for all requests that come at about the same time. After a
// failure it keeps its earlier value.
type shared[T any] struct {
	keep  time.Duration
	reads singleflight.Group

	mu    sync.Mutex // guards all below
	value T
	err   error
	at    time.Time // zero before the first read
}

// get returns the value, read anew if it is older than it may be. A request that is
// cancelled does not end the read: others wait for it.
func (s *shared[T]) get(ctx context.Context, now func() time.Time, read func(context.Context) (T, error)) (T, error) {
	if !s.fresh(now()) {
		_, _, _ = s.reads.Do("", func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), makeTimeout)
			defer cancel()
			v, err := read(ctx)
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.at, s.err = now(), err; err == nil {
				s.value = v
			}
			return nil, nil //nolint:nilnil // the outcome is kept in s
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.err
}

func (s *shared[T]) fresh(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	age := now.Sub(s.at)
	return !s.at.IsZero() && age >= 0 && age < s.keep
}
