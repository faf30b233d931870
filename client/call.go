package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// An attempt makes a call once, at a leader. It returns nil if that has brought
// the answer.
type attempt func(ctx context.Context, l *leader) *failure

// ask makes a call and returns its answer, and the time on the client's clock before it
// was sent. whole, unless nil, says whether an answer is complete. After an error the
// answer is nil, whose getters return zeros.
func ask[R any, P interface {
	*R
	reply
}](ctx context.Context, c *Client, op operation, req proto.Message, whole func(P) bool) (resp P, sent time.Duration, err error) {
	err = c.call(ctx, op, func(ctx context.Context, l *leader) *failure {
		resp, sent = new(R), c.clock()
		f := c.send(ctx, l, op, req, resp)
		if f == nil && whole != nil && !whole(resp) {
			return notWhole(op, resp.GetHeader())
		}
		return f
	})
	if err != nil {
		return nil, sent, err
	}
	return resp, sent, nil
}

func (c *Client) send(ctx context.Context, l *leader, op operation, req proto.Message, resp reply) *failure {
	f := c.view.attempt(ctx, l.conn, op, req, resp)
	if f == nil || f.from.NodeID != "" {
		l.answered.Store(int64(c.clock()))
	}
	return f
}

// call makes attempts until one brings an answer, or the time is up.
func (c *Client) call(ctx context.Context, op operation, try attempt) error {
	c.finder.calls.Add(1)
	defer c.finder.calls.Add(-1)
	started := c.clock()
	op = op.over(c.config.Transport)
	ctx, cancel := c.withDeadline(ctx)
	defer cancel()
	attempts, err := c.repeat(ctx, op, try)
	if c.config.Observer != nil {
		c.config.Observer.Call(op.name, attempts, errs.KindOf(err), c.clock()-started)
	}
	return err
}

func (c *Client) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.config.Timeout)
}

// Pauses between the attempts of a call, and between questions for the leader:
// 10 ms at first, 160 ms at last, each half as long or as long again.
const (
	firstPause  = 10 * time.Millisecond
	lastPause   = 160 * time.Millisecond
	pauseGrowth = 1.5
	pauseSpread = 0.5
)

func newPauses() *backoff.ExponentialBackOff {
	b := &backoff.ExponentialBackOff{
		InitialInterval: firstPause, MaxInterval: lastPause, Multiplier: pauseGrowth, RandomizationFactor: pauseSpread,
	}
	b.Reset()
	return b
}

// repeatFor is how long a call that nodes know by its request id alone is repeated, from
// the sending of the first attempt that may have been applied. Nodes remember such ids
// for a minute; the rest is for an attempt that is still on its way when the time is up.
const repeatFor = 40 * time.Second

// errTooOld ends a call that only repeatFor keeps from going on.
var errTooOld = fmt.Errorf("it was repeated for %v, and nodes forget request ids after a minute", repeatFor)

func (c *Client) repeat(ctx context.Context, op operation, try attempt) (attempts int, err error) {
	var pauses *backoff.ExponentialBackOff
	var last *failure
	var first time.Duration // when an attempt was sent that may have been applied
	stop := func() {}
	defer func() { stop() }()
	open := false
	for {
		l, err := c.finder.wait(ctx)
		if err != nil {
			return attempts, c.gaveUp(op, open, attempts, last, tooOld(ctx, err))
		}
		if !open && op.repeat == byRequestID {
			first = c.clock()
		}
		one, cancel := c.remembered(ctx, op, first)
		if open && one.Err() != nil {
			cancel()
			return attempts, c.gaveUp(op, open, attempts, last, tooOld(one, one.Err()))
		}
		attempts++
		f := try(one, l)
		cancel()
		if f == nil {
			return attempts, nil
		}
		f.at = l.Address
		if f.drop {
			c.finder.drop(l, f.from)
		}
		if !f.repeat {
			if open && !f.settles {
				return attempts, unresolved(op, f, nil)
			}
			return attempts, answer(op, f.err)
		}
		if f.open && op.mutates() && !open {
			open = true
			ctx, stop = c.remembered(ctx, op, first)
		}
		if open && op.repeat == never {
			return attempts, unresolved(op, f, c.ended(ctx))
		}
		if last == nil || !f.cut { // what came before says more than that the time is up
			last = f
		}
		if pauses == nil {
			pauses = newPauses()
		}
		if err := c.pause(ctx, pauses.NextBackOff()); err != nil {
			return attempts, c.gaveUp(op, open, attempts, last, tooOld(ctx, err))
		}
	}
}

// remembered bounds a call by repeatFor, if nodes know it by its request id alone.
func (c *Client) remembered(ctx context.Context, op operation, first time.Duration) (context.Context, context.CancelFunc) {
	if op.repeat != byRequestID {
		return ctx, func() {}
	}
	left := repeatFor - (c.clock() - first)
	if end, ok := ctx.Deadline(); ok && left > 0 && end.Before(clock.Deadline(left)) {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, left, errTooOld)
}

// tooOld returns why a call ended: repeatFor, or what is given.
func tooOld(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errTooOld) {
		return cause
	}
	return err
}

func (c *Client) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return ErrClosed
	}
}

// answer returns what the caller gets for a final failure.
func answer(op operation, e *errs.Error) error {
	if e.Op == "" || e.Op == "grpc" {
		e.Op = op.name
	}
	return e
}

// unresolved returns the error of a call that must not be repeated. ended says why it
// could not have been in any case, if so.
func unresolved(op operation, f *failure, ended error) error {
	return &errs.Error{
		Kind: errs.Unresolved, Op: op.name, Err: ended,
		Detail: fmt.Sprintf("all of it, a part or nothing may be done; it was not repeated, as that might change what was done since: look first (%s)", rpcerr.At(f.at, f.err)),
	}
}

func (c *Client) gaveUp(op operation, open bool, attempts int, last *failure, cause error) error {
	e := &errs.Error{Kind: errs.Unavailable, Op: op.name, Err: cause, Detail: "nothing was changed"}
	if open {
		e.Kind, e.Detail = errs.Unresolved, "the call may have been applied; look, or repeat it"
	}
	if fault, ok := errors.AsType[*errs.Error](cause); ok { // of the addresses
		if !open {
			e.Kind = fault.Kind
		}
		return e
	}
	if last != nil {
		which := "the last one at"
		if last.from.NodeID != "" {
			which = "the last answer from"
		}
		e.Detail += fmt.Sprintf("; %d attempts, %s %s", attempts, which, rpcerr.At(last.at, last.err))
	}
	if why := c.finder.why(); why != "" {
		e.Detail += "; no node serves: " + why
	}
	return e
}

// newRequestID draws the number by which nodes know a repeated call: from 1 on,
// with room for the items of a batch below 2^63.
func newRequestID() uint64 { return 1 + rand.Uint64N(1<<63-1-pb.MaxBatchItems) }
