package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
)

// A follower prints the events of the journal. With --follow it has them from
// whichever node serves them.
type follower struct {
	*Flags
	cmd     *cobra.Command
	limit   uint64        // most events to print; 0 for all
	since   time.Duration // how old events may be; 0 for any age
	types   []string      // only these; empty for all
	about   []*subject    // only events that name each of these; empty for all
	times   *wallTimes    // of the newest survey
	passed  []string      // types that have come
	until   int64         // cluster time of the newest event that has come, wanted or not
	from    uint64        // sequence to ask for next; 0 until a node has answered
	of      uint64        // events of it that are printed
	seen    uint64        // events of it that have come from the node asked now
	printed uint64
	begun   bool // a node has answered
	headed  bool // the head of the table is printed
	noted   bool // it is printed that the events have stopped, since the last of them
}

// follow prints events until the context ends, the limit is reached, or an error
// comes that stays. It outlives the node that it has them from.
func (e *follower) follow(ctx context.Context) error {
	pauses := &backoff.ExponentialBackOff{InitialInterval: 100 * time.Millisecond, MaxInterval: 2 * time.Second, Multiplier: 2, RandomizationFactor: 0.5}
	attempt := func() (struct{}, error) {
		before := e.printed
		err := e.read(ctx)
		if kind := errs.KindOf(err); err != nil && (!e.begun || kind != errs.Unavailable && kind != errs.NotLeader) {
			return struct{}{}, backoff.Permanent(err)
		}
		if e.printed > before {
			pauses.Reset()
		}
		return struct{}{}, err
	}
	stopped := func(err error, _ time.Duration) {
		if !e.noted {
			e.cmd.PrintErrf("no more events: %v; looking for a node that goes on\n", err)
			e.noted = true
		}
	}
	_, err := backoff.Retry(ctx, attempt, backoff.WithBackOff(pauses), backoff.WithNotify(stopped), backoff.WithMaxElapsedTime(0))
	if e.begun && ctx.Err() != nil {
		return nil // this is how following ends
	}
	return err
}

// read prints the events of one node, until it stops. It returns nil when the
// limit is reached.
func (e *follower) read(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := e.Widen(ctx); err != nil { // only this node may have been given
		return err
	}
	all, err := e.survey(ctx)
	defer all.close()
	if err != nil {
		return err
	}
	n := all.best()
	e.times = all.wallTimes(ctx)
	e.begin(n)
	stream, err := n.admin.Events(ctx, &pb.EventsRequest{FromSequence: e.from, Follow: true})
	if err != nil {
		return fmt.Errorf("node %s: %w", n.id, readError(err))
	}
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) { // the events have no end of their own
			return fmt.Errorf("node %s: %w", n.id, errs.New(errs.Unavailable, "Events", "the node has stopped sending them"))
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", n.id, readError(err))
		}
		if !e.fresh(event.GetSequence()) || !e.wanted(event) {
			continue
		}
		if err := e.print(e.cmd.OutOrStdout(), event); err != nil {
			return err
		}
		e.noted = false
		if e.printed++; e.printed == e.limit {
			return nil
		}
	}
}

// begin prepares for the events of a node, which begin with the first one of a
// commit.
func (e *follower) begin(n *node) {
	if !e.begun {
		e.begun = true
		e.head(e.cmd.OutOrStdout())
	}
	if e.from == 0 {
		e.from = n.status.GetState().GetSequence() + 1
	}
	e.seen = 0
}

// fresh takes note of an event that has come, and reports whether it is to be
// printed. A commit may have many events, and a node may end amid them: the
// whole commit is asked for again then, and what was printed of it is not.
func (e *follower) fresh(sequence uint64) bool {
	if sequence != e.from {
		e.from, e.of, e.seen = sequence, 0, 0
	}
	if e.seen++; e.seen <= e.of {
		return false
	}
	e.of = e.seen
	return true
}
