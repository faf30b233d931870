package client

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// A run is a part of a batch, its items from one to before another.
type run struct{ from, to int }

// A batch is a call that changes many items, each with an outcome of its own.
// Item i is known to the server by request id request + i, so what has no
// outcome yet can be repeated run by run.
type batch struct {
	op      operation
	request uint64
	// send asks for a run, as a batch of its own. The indexes of the item errors
	// that it returns count from the run's begin.
	send func(ctx context.Context, l *leader, request uint64, r run) ([]*pb.ItemError, *failure)

	failed   []error // by item: its outcome, or its last error
	open     []bool  // by item: an attempt may have been applied
	left     []run   // without an outcome, in order
	answered bool    // some items have been answered
}

// changeAll makes a call that changes n items, and returns the outcome of each, or an
// error if no item has got any answer. request makes the request for a run of items. take
// gets the answer to it, and reports whether that is complete.
func changeAll[R any, P interface {
	*R
	reply
	GetErrors() []*pb.ItemError
}](ctx context.Context, c *Client, op operation, n int,
	request func(id uint64, r run) proto.Message, take func(r run, resp P) bool) ([]error, error) {
	b := &batch{op: op.over(c.config.Transport), request: newRequestID(), failed: make([]error, n), open: make([]bool, n), left: []run{{0, n}}}
	b.send = func(ctx context.Context, l *leader, id uint64, r run) ([]*pb.ItemError, *failure) {
		resp := P(new(R))
		if f := c.send(ctx, l, op, request(id, r), resp); f != nil {
			return nil, f
		}
		if !take(r, resp) {
			return nil, notWhole(op, resp.GetHeader())
		}
		return resp.GetErrors(), nil
	}
	err := c.call(ctx, b.op, b.try)
	if err != nil && !b.answered {
		return nil, err
	}
	if err != nil {
		b.abandon(err)
	}
	return b.failed, nil
}

// try makes the call once for all items that are left.
func (b *batch) try(ctx context.Context, l *leader) *failure {
	todo := b.left
	b.left = nil
	var worst *failure
	for i, r := range todo {
		items, f := b.send(ctx, l, b.request+uint64(r.from), r)
		if f != nil {
			for k := r.from; f.open && k < r.to; k++ {
				b.open[k] = true
			}
			b.left = append(b.left, todo[i:]...)
			if worst != nil { // of the runs before
				f.open, f.drop = f.open || worst.open, f.drop || worst.drop
			}
			return f
		}
		b.answered = true
		worst = worse(worst, b.settle(r, items))
	}
	return worst
}

// settle records the answer to a run. It returns the failure of items that are still
// without an outcome, or nil.
func (b *batch) settle(r run, items []*pb.ItemError) (worst *failure) {
	clear(b.failed[r.from:r.to])
	for _, item := range items {
		i := r.from + int(item.GetIndex())
		e := rpcerr.Item(item, b.op.name)
		b.failed[i] = e
		f := judgeKind(e)
		if !f.repeat || f.open && b.op.repeat == never {
			continue
		}
		b.open[i] = b.open[i] || f.open
		if n := len(b.left); n > 0 && b.left[n-1].to == i {
			b.left[n-1].to++
		} else {
			b.left = append(b.left, run{i, i + 1})
		}
		worst = worse(worst, f)
	}
	return worst
}

// worse combines two failures: the call then does all that either of them asks for.
func worse(a, b *failure) *failure {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return &failure{err: a.err, repeat: true, open: a.open || b.open, drop: a.drop || b.drop}
}

// abandon ends the items that are left, with the error that ended the call.
func (b *batch) abandon(err error) {
	var e *errs.Error
	if !errors.As(err, &e) {
		e = &errs.Error{Kind: errs.Internal, Op: b.op.name, Err: err}
	}
	open := &errs.Error{Kind: errs.Unresolved, Op: e.Op, Err: e.Err, Detail: "this item may have been changed; of the call: " + e.Detail}
	unchanged := &errs.Error{Kind: e.Kind, Op: e.Op, Err: e.Err, Detail: "this item was not changed; of the call: " + e.Detail}
	if unchanged.Kind == errs.Unresolved {
		unchanged.Kind = errs.Unavailable
	}
	for _, r := range b.left {
		for i := r.from; i < r.to; i++ {
			if b.failed[i] = unchanged; b.open[i] {
				b.failed[i] = open
			}
		}
	}
}

// acknowledged takes answers that only count their successes.
func acknowledged[P interface {
	GetSucceeded() uint32
	GetErrors() []*pb.ItemError
}](r run, resp P) bool {
	n := r.to - r.from
	return int(resp.GetSucceeded())+len(resp.GetErrors()) == n && inOrder(resp.GetErrors(), n)
}

// inOrder checks that item errors are ascending and of items that exist.
func inOrder(items []*pb.ItemError, n int) bool {
	next := 0
	for _, item := range items {
		i := int(item.GetIndex())
		if i < next || i >= n {
			return false
		}
		next = i + 1
	}
	return true
}

// allThere checks that each of n items has an object or an error.
func allThere(objects []*pb.ReplicaList, items []*pb.ItemError, n int) bool {
	if len(objects) != n || !inOrder(items, n) {
		return false
	}
	for i, o := range objects {
		if len(items) > 0 && int(items[0].GetIndex()) == i {
			items = items[1:]
		} else if o.GetObjectId() == 0 {
			return false
		}
	}
	return true
}
