package service

import (
	"context"
	"runtime"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/share"
)

// Scans bounds the calls that look at every object, on the primary and on standbys.
// Such a call, with a pattern and millions of keys, takes a processor for seconds. Those
// that wait take turns by peer. So do streams of events that are behind, apart from the
// others, as they wait for etcd.
type Scans struct {
	reads    *share.Budget // half of the processors
	removals *share.Budget // one at a time: they wait for commits, too
	events   *share.Budget // two at a time, so that another peer has one at once
}

// NewScans returns a bound for the calls of one node.
func NewScans() *Scans {
	return &Scans{places(max(1, runtime.GOMAXPROCS(0)/2)), places(1), places(2)}
}

// read waits until a call may look at all keys, at most until the context ends. end
// lets the next one do so.
func (s *Scans) read(ctx context.Context, op string) (end func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	return place(ctx, s.reads, op, ofObjects)
}

// remove is read for a call that removes what it finds.
func (s *Scans) remove(ctx context.Context, op string) (end func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	return place(ctx, s.removals, op, ofObjects)
}

const ofObjects = "other calls that look at every object are under way; nothing was changed, try again"

func place(ctx context.Context, of *share.Budget, op, refusal string) (end func(), err error) {
	peer := callerOf(ctx).Peer
	if err := of.Wait(ctx, peer, 1); err != nil {
		return nil, &errs.Error{Kind: errs.Unavailable, Op: op, Err: err, Detail: refusal}
	}
	return func() { of.GiveBack(peer, 1) }, nil
}

// Look waits until a caller may look at all objects, at most until the context ends. end
// lets the next one do so.
func (s *Scans) Look(ctx context.Context) (end func(), err error) { return s.read(ctx, "census") }

// CatchUp waits until a stream of events that is behind may read or describe a few of them,
// at most until the context ends. end lets the next one do so; call it before anything is
// sent, as a peer may read slowly.
func (s *Scans) CatchUp(ctx context.Context) (end func(), err error) {
	return place(ctx, s.events, "Events", "other streams of events are behind, too; ask again with the sequence behind the last event")
}
