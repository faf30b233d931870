package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/clock"
)

// A follower prints the events of the journal. With --follow it goes on at another node
// when the one that sends them stops.
type follower struct {
	*Flags
	cmd     *cobra.Command
	limit   uint64        // most events to print; 0 for all
	since   time.Duration // how old events may be; 0 for any age
	types   []string      // only these; empty for all
	about   []*subject    // only events that name each of these; empty for all
	times   *wallTimes    // of the newest survey
	looked  time.Time     // when all nodes were asked again for it
	passed  []string      // types that have come
	until   int64         // cluster time of the newest event received, wanted or not
	from    uint64        // sequence to ask for next; 0 until a node has answered
	of      uint64        // events of the commit from that were handled, by any node
	seen    uint64        // events of the commit from that the current node has sent
	printed uint64
	begun   bool // a node has answered
	headed  bool // the head of the table is printed
	noted   bool // the notice that events have stopped is printed, and no event came since
}

// follow prints events until the context ends, the limit is reached, or an error persists.
// If the node that sends them stops, it goes on at another one.
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
			e.cmd.PrintErrf("no more events: %s; looking for a node that goes on\n", cli.Printable(err.Error()))
			e.noted = true
		}
	}
	_, err := backoff.Retry(ctx, attempt, backoff.WithBackOff(pauses), backoff.WithNotify(stopped), backoff.WithMaxElapsedTime(0))
	if e.begun && ctx.Err() != nil {
		return nil // an interrupt is the normal end of --follow
	}
	return err
}

// read prints the events that one node sends, and returns an error when the node stops. It
// returns nil when the limit is reached.
func (e *follower) read(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := e.Widen(ctx); err != nil { // the flags may name only a node that is gone
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
		if errors.Is(err, io.EOF) { // only the node can have ended the stream
			return fmt.Errorf("node %s: %w", n.id, errs.New(errs.Unavailable, "Events", "the node has stopped sending them"))
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", n.id, readError(err))
		}
		if !e.fresh(event.GetSequence()) || !e.wanted(event) {
			continue
		}
		e.lookForClock(ctx)
		if err := e.print(e.cmd.OutOrStdout(), event); err != nil {
			return err
		}
		e.noted = false
		if e.printed++; e.printed == e.limit {
			return nil
		}
	}
}

// lookForClock asks all nodes again, once a second at most, if no primary was there that could
// say when commits were made. An event that has come shows that there is one by now.
func (e *follower) lookForClock(ctx context.Context) {
	if now := clock.Wall(); e.times.asked.IsZero() && now.Sub(e.looked) >= time.Second {
		all, err := e.survey(ctx)
		defer all.close()
		if e.looked = clock.Wall(); err == nil {
			e.times = all.wallTimes(ctx)
		}
	}
}

// begin prepares for the stream of a node, which begins with the first event of the commit
// from.
func (e *follower) begin(n *node) {
	e.begun = true
	e.head(e.cmd.OutOrStdout())
	e.from = cmp.Or(e.from, n.status.GetState().GetSequence()+1)
	e.seen = 0
}

// fresh counts an event that has come, and reports whether it is new. A commit may have many
// events, and a node may stop amid them. The next node then sends the whole commit again, and
// fresh reports false for the events that came before.
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
