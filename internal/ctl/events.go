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

func (g *globals) eventsCommand() *cobra.Command {
	f := eventFlags{}
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print the newest events of the journal, decoded",
		Long: `Prints the events that etcd still has, oldest first: with --limit the newest so many
of them. With --follow it prints what is committed from now on, until Ctrl-C, or
until it has printed --limit events; when its node ends it goes on with another one.
Heartbeats are left out.

As JSON it prints one event a line.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.follow {
				return g.follow(cmd, f)
			}
			ctx, cancel, err := g.begin(cmd)
			if err != nil {
				return err
			}
			defer cancel()
			all, err := g.survey(ctx)
			defer all.close()
			if err != nil {
				return err
			}
			return g.events(ctx, cmd.OutOrStdout(), all.best(), f)
		},
	}
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "print what is committed from now on")
	cmd.Flags().Uint64Var(&f.limit, "limit", 0, "most events to print; 0 for all")
	cmd.Flags().Uint64Var(&f.from, "from", 0, "sequence to begin with; with --follow, events from there on are printed first")
	return cmd
}

func (g *globals) events(ctx context.Context, w io.Writer, n *node, f eventFlags) error {
	stream, err := n.admin.Events(ctx, &pb.EventsRequest{FromSequence: f.from})
	if err != nil {
		return readError(err)
	}
	g.printEventHead(w)
	newest := &lastEvents{keep: f.limit}
	for {
		e, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return g.printEvents(w, newest.list())
		case err != nil:
			return readError(err)
		case f.limit == 0:
			err = g.printEvents(w, []*pb.EventsResponse{e})
		default:
			newest.add(e)
		}
		if err != nil {
			return err
		}
	}
}

// lastEvents keeps the newest of many events.
type lastEvents struct {
	keep   uint64
	events []*pb.EventsResponse // a ring once it is full
	next   uint64
}

func (l *lastEvents) add(e *pb.EventsResponse) {
	if uint64(len(l.events)) < l.keep {
		l.events = append(l.events, e)
		return
	}
	l.events[l.next] = e
	l.next = (l.next + 1) % l.keep
}

// list returns them, oldest first.
func (l *lastEvents) list() []*pb.EventsResponse {
	return append(append([]*pb.EventsResponse(nil), l.events[l.next:]...), l.events[:l.next]...)
}

// eventLine has columns of fixed width: the table may have no end.
const eventLine = "%-12v %-12v %-16s %s\n"

func (g *globals) printEventHead(w io.Writer) {
	if !g.json {
		fmt.Fprintf(w, eventLine, "TERM/SEQ", "TIME", "TYPE", "EVENT")
	}
}

func (g *globals) printEvents(w io.Writer, events []*pb.EventsResponse) error {
	for _, e := range events {
		stream := strings.ToLower(strings.TrimPrefix(e.GetStream().String(), "EVENT_STREAM_"))
		if !g.json {
			position := fmt.Sprintf("%d/%d", e.GetTerm(), e.GetSequence())
			if _, err := fmt.Fprintf(w, eventLine, position, millis(e.GetClusterTimeMs()), e.GetType(), e.GetText()); err != nil {
				return err
			}
			continue
		}
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
