package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
)

// An eventResult is an event of the journal in JSON.
type eventResult struct {
	Term     uint64          `json:"term"`
	Sequence uint64          `json:"sequence"`
	Time     int64           `json:"cluster_time_ms"`
	Stream   string          `json:"stream"`
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Event    json.RawMessage `json:"event,omitempty"` // all of it
}

// eventFlags say which events.
type eventFlags struct {
	from   uint64
	limit  uint64
	follow bool
}

func (f *Flags) eventsCommand() *cobra.Command {
	which := eventFlags{}
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print the newest events of the journal, decoded",
		Long: `Prints the events that etcd still has, oldest first: with --limit the newest so many
of them. With --follow it prints what is committed from now on, until Ctrl-C, or
until it has printed --limit events; when its node ends it goes on with another one.
Heartbeats are left out.

As JSON it prints one event a line.`,
		Args: cli.NoArguments,
	}
	once := f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
		return f.events(ctx, cmd.OutOrStdout(), all.best(), which)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if which.follow {
			return f.follow(cmd, which)
		}
		return once(cmd, args)
	}
	cmd.Flags().BoolVarP(&which.follow, "follow", "f", false, "print what is committed from now on")
	cmd.Flags().Uint64Var(&which.limit, "limit", 0, "most events to print; 0 for all")
	cmd.Flags().Uint64Var(&which.from, "from", 0, "sequence to begin with; with --follow, events from there on are printed first")
	return cmd
}

func (f *Flags) events(ctx context.Context, w io.Writer, n *node, which eventFlags) error {
	stream, err := n.admin.Events(ctx, &pb.EventsRequest{FromSequence: which.from})
	if err != nil {
		return readError(err)
	}
	f.printEventHead(w)
	var newest []*pb.EventsResponse
	for {
		e, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return f.printEvents(w, newest...)
		case err != nil:
			return readError(err)
		case which.limit == 0:
			if err := f.printEvents(w, e); err != nil {
				return err
			}
		default:
			if newest = append(newest, e); uint64(len(newest)) > which.limit {
				newest = newest[1:]
			}
		}
	}
}

// eventLine has columns of fixed width: the table may have no end.
const eventLine = "%-12v %-12v %-16s %s\n"

func (f *Flags) printEventHead(w io.Writer) {
	if !f.JSON {
		fmt.Fprintf(w, eventLine, "TERM/SEQ", "TIME", "TYPE", "EVENT")
	}
}

func (f *Flags) printEvents(w io.Writer, events ...*pb.EventsResponse) error {
	for _, e := range events {
		if !f.JSON {
			position := fmt.Sprintf("%d/%d", e.GetTerm(), e.GetSequence())
			if _, err := fmt.Fprintf(w, eventLine, position, cli.Millis(e.GetClusterTimeMs()), e.GetType(), e.GetText()); err != nil {
				return err
			}
			continue
		}
		stream := strings.ToLower(strings.TrimPrefix(e.GetStream().String(), "EVENT_STREAM_"))
		result := eventResult{e.GetTerm(), e.GetSequence(), e.GetClusterTimeMs(), stream, e.GetType(), e.GetText(), nil}
		if json.Valid([]byte(e.GetJson())) {
			result.Event = json.RawMessage(e.GetJson())
		}
		if err := json.NewEncoder(w).Encode(result); err != nil {
			return err
		}
	}
	return nil
}
