package coro

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	peers "github.com/understudy-store/understudy/internal/security/share"
)

const (
	// BudgetBytes is what all large requests and answers may take together: four of
	// the largest requests. With what the collector has not freed yet it is several
	// times as much.
	BudgetBytes = 64 << 20
	// answerFactor is how many bytes of answer a byte of a large request is assumed to
	// ask for, until the answer is there. A key of 40 bytes has a replica list of
	// some 300.
	answerFactor = 16
	// unknownAnswers is how many calls at a time make an answer of unknown size.
	unknownAnswers = 2
	// An eighth of the budget is for hosts with no more than fewBytes.
	fewBytes = 1 << 20
	// A large request comes in pieces of pieceBytes, each within Limits.Frame / slowest:
	// one that stalls gives its share back long before a slow one has to.
	pieceBytes = 256 << 10
	slowest    = 6
	// largestShare is the part of the budget that one request may take before its
	// answer is there.
	largestShare = 4
)

// ErrBusy means that others have the memory that a peer needs.
var ErrBusy = errors.New("too many large requests and answers are under way")

// ErrLargeAnswer means that an answer has more bytes than one host may have of the budget.
var ErrLargeAnswer = errors.New("the answer has more bytes than one host may take; ask for less at once")

// A Budget bounds the memory of requests and answers that are larger than the buffers
// of a connection; one host has half at most. A request waits for its share before it is
// read, in turn with other hosts; a call that makes a larger answer asks first (Conn.Room).
// An answer that turns out larger nevertheless, when there is no more, ends its connection.
// Servers may share one.
type Budget struct {
	bytes   *peers.Budget
	unknown *peers.Budget // of unknownAnswers
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget {
	return &Budget{
		peers.NewBudget(peers.NewRule("bytes", "", bytes, 0.5, fewBytes)),
		peers.NewBudget(peers.Rule{Total: unknownAnswers, Peer: unknownAnswers / 2, Few: unknownAnswers}),
	}
}

func (b *Budget) share(nc net.Conn) share {
	return share{budget: b, host: peers.Host(nc.RemoteAddr())}
}

// A share is what one connection has of a budget.
type share struct {
	budget  *Budget
	host    string
	bytes   int64
	unknown bool // it makes an answer of unknown size
}

// await takes what a request of so many bytes needs, and waits for it.
func (s *share) await(ctx context.Context, body uint32, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b := s.budget.bytes
	n := min(max(int64(body), min(answerFactor*int64(body), b.Total/largestShare)), b.Peer)
	if err := b.Wait(ctx, s.host, n); err != nil {
		return ErrBusy
	}
	s.bytes += n
	return nil
}

// reserve waits until an answer of unknown size may be made. While unread answers to its host
// take all that the host may have, it may not: a further one would be made for nothing. Places
// are counted apart from bytes, so that a call that waits for a place holds up no request of
// known size.
func (s *share) reserve(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if n := min(fewBytes, s.budget.bytes.Peer); s.bytes == 0 {
		if err := s.budget.bytes.Wait(ctx, s.host, n); err != nil {
			return ErrBusy
		}
		s.bytes = n
	}
	if err := s.budget.unknown.Wait(ctx, s.host, 1); err != nil {
		return ErrBusy
	}
	s.unknown = true
	return nil
}

// grow takes what an answer of n bytes needs, before the answer is made. It never waits,
// since others may wait for what the call has already.
func (s *share) grow(n int64) error {
	most := s.budget.bytes.Peer
	switch {
	case n <= s.bytes:
		return nil
	case n > most:
		return ErrLargeAnswer
	}
	n = max(n, min(2*s.bytes, most)) // it grows step by step
	if taken, _, _ := s.budget.bytes.Take(s.host, n-s.bytes); !taken {
		return ErrBusy
	}
	s.bytes = n
	return nil
}

// become sets the share to n bytes, the size of an answer that has been made.
func (s *share) become(n int64) error {
	if s.unknown {
		s.unknown = false
		s.budget.unknown.GiveBack(s.host, 1)
	}
	n = min(n, s.budget.bytes.Peer) // alone, an answer may have any size
	switch more := n - s.bytes; {
	case more < 0:
		s.budget.bytes.GiveBack(s.host, -more)
	case more > 0:
		if taken, _, _ := s.budget.bytes.Take(s.host, more); !taken {
			return ErrBusy
		}
	}
	s.bytes = n
	return nil
}

// receive reads what follows a request's header. A large one has to keep coming.
func (c *Conn) receive(q request) (body string, err error) {
	if q.body <= readBuffer && q.attachment <= readBuffer {
		if body, err = readBody(c.in, q.body, q.body); err == nil {
			err = skip(c.in, q.attachment)
		}
		return body, err
	}
	var b strings.Builder
	b.Grow(int(q.body))
	whole := clock.Deadline(c.server.Limits.Frame)
	if err = c.receivePieces(&b, q.body, whole); err == nil {
		err = c.receivePieces(io.Discard, q.attachment, whole)
	}
	return b.String(), err
}

func (c *Conn) receivePieces(to io.Writer, n uint32, whole time.Time) error {
	for n > 0 {
		by := clock.Deadline(c.server.Limits.Frame / slowest)
		if by.After(whole) {
			by = whole
		}
		if err := c.nc.SetReadDeadline(by); err != nil {
			return err
		}
		piece := min(n, pieceBytes)
		if _, err := io.CopyN(to, c.in, int64(piece)); err != nil {
			return cut(err)
		}
		n -= piece
	}
	return nil
}
