package coro

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// budgetBytes is what all large requests and answers may take together: four of
	// the largest requests. With what the collector has not freed yet it is several
	// times as much.
	budgetBytes = 64 << 20
	// answerFactor is how many bytes of an answer a byte of a large request is taken
	// to ask for, until the answer is there. A key of 40 bytes has a replica list of
	// some 300.
	answerFactor = 16
	// unknownAnswers is how many calls make an answer at a time whose size nobody knows.
	unknownAnswers = 2
	// largestShare is the part of the budget that one request may take before its
	// answer is there.
	largestShare = 4
)

// errBusy means that a peer would take memory that others have.
var errBusy = errors.New("too many large requests and answers are under way")

// A Budget bounds the memory of requests and answers that are larger than the buffers
// of a connection. A request waits for its share before it is read; an answer that
// turns out larger, when there is no more, ends its connection. Servers may share one.
type Budget struct {
	bytes   int64
	free    *semaphore.Weighted
	unknown *semaphore.Weighted // of unknownAnswers
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget {
	return &Budget{bytes, semaphore.NewWeighted(bytes), semaphore.NewWeighted(unknownAnswers)}
}

// A share is what one connection has of a budget.
type share struct {
	budget  *Budget
	bytes   int64
	unknown bool // it makes an answer of unknown size
}

// await takes what a request of so many bytes needs, and waits for it.
func (s *share) await(ctx context.Context, body uint32, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	n := min(max(int64(body), min(answerFactor*int64(body), s.budget.bytes/largestShare)), s.budget.bytes)
	if err := s.budget.free.Acquire(ctx, n); err != nil {
		return errBusy
	}
	s.bytes += n
	return nil
}

// reserve waits until an answer of unknown size may be made. Apart from the bytes, so
// that it holds up no request of known size.
func (s *share) reserve(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := s.budget.unknown.Acquire(ctx, 1); err != nil {
		return errBusy
	}
	s.unknown = true
	return nil
}

// become makes the share one of so many bytes, of an answer that is there.
func (s *share) become(n int64) error {
	if s.unknown {
		s.unknown = false
		s.budget.unknown.Release(1)
	}
	n = min(n, s.budget.bytes) // alone, an answer may have any size
	switch more := n - s.bytes; {
	case more < 0:
		s.budget.free.Release(-more)
	case more > 0 && !s.budget.free.TryAcquire(more):
		return errBusy
	}
	s.bytes = n
	return nil
}
