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

// Pauses before another node is asked for the events: the first and the longest
// one, each half as long or as long again.
const (
	firstFollowPause = 100 * time.Millisecond
	lastFollowPause  = 2 * time.Second
)

// A follower prints the events of `masterctl events --follow`, from whichever
// node tells them.
type follower struct {
	*globals
	cmd   *cobra.Command
	limit uint64 // most events to print; 0 for all

	from    uint64 // sequence to ask for next; 0 until a node has answered
	of      uint64 // events of it that are printed
	skip    uint64 // of those, the ones that are about to come once more
	printed uint64
	begun   bool // a node has answered
	told    bool // that the events have stopped, since the last of them
}

// follow prints events until the command is interrupted, or has printed as many
// as it was asked for. It outlives the node that it has them from.
func (g *globals) follow(cmd *cobra.Command, f eventFlags) error {
	ctx, cancel, err := g.beginLong(cmd)
	if err != nil {
		return err
	}
	defer cancel()
	return (&follower{globals: g, cmd: cmd, limit: f.limit, from: f.from}).run(ctx)
}

// run ends with the context, at the limit, and with an error that stays.
func (e *follower) run(ctx context.Context) error {
	pauses := &backoff.ExponentialBackOff{
		InitialInterval: firstFollowPause, MaxInterval: lastFollowPause, Multiplier: 2, RandomizationFactor: 0.5,
	}
	pauses.Reset()
	for {
		before := e.printed
		err := e.read(ctx)
		switch {
		case err == nil, e.begun && ctx.Err() != nil:
			return nil // this is how following ends
		case !e.begun, !passing(err):
			return err
		}
		if !e.told {
			e.cmd.PrintErrf("no more events: %v; looking for a node that goes on\n", err)
			e.told = true
		}
		if e.printed > before {
			pauses.Reset()
		}
		t := time.NewTimer(pauses.NextBackOff())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}

// passing reports whether the same question may be answered later, or by
// another node.
func passing(err error) bool {
	kind := errs.KindOf(err)
	return kind == errs.Unavailable || kind == errs.NotLeader
}

// read prints the events that one node tells, until it stops. It returns nil
// when the limit is reached.
func (e *follower) read(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := e.widen(ctx); err != nil { // the node may be the only one that it was told of
		return err
	}
	all, err := e.survey(ctx)
	defer all.close()
	if err != nil {
		return err
	}
	n := all.best()
	e.begin(n)
	stream, err := n.admin.Events(ctx, &pb.EventsRequest{FromSequence: e.from, Follow: true})
	if err != nil {
		return fmt.Errorf("node %s: %w", n.id, readError(err))
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("node %s: %w", n.id, streamError(err))
		}
		if !e.fresh(event.GetSequence()) {
			continue
		}
		if err := e.printEvents(e.cmd.OutOrStdout(), []*pb.EventsResponse{event}); err != nil {
			return err
		}
		e.told = false
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
		e.printEventHead(e.cmd.OutOrStdout())
	}
	if e.from == 0 {
		e.from = n.status.GetState().GetSequence() + 1
	}
	e.skip = e.of
}

// fresh takes note of an event that has come, and reports whether it is to be
// printed. A commit may have many events, and a node may end amid them: the
// whole commit is asked for again then, and what was printed of it is not.
func (e *follower) fresh(sequence uint64) bool {
	switch {
	case sequence != e.from:
		e.from, e.of, e.skip = sequence, 0, 0
	case e.skip > 0:
		e.skip--
		return false
	}
	e.of++
	return true
}

// streamError is the error that a node's events ended with. They have no end of
// their own.
func streamError(err error) error {
	if errors.Is(err, io.EOF) {
		return errs.New(errs.Unavailable, "Events", "the node has stopped telling them")
	}
	return readError(err)
}
