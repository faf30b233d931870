package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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
	Wall     string          `json:"wall_time,omitempty"` // RFC 3339, UTC; empty if no node serves
	Rough    bool            `json:"wall_time_approximate,omitempty"`
	Stream   string          `json:"stream"`
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Event    json.RawMessage `json:"event,omitempty"` // all of it
}

func (f *Flags) eventsCommand() *cobra.Command {
	const enough = 100
	e, follow := &follower{Flags: f}, false
	once := f.withNodes(e.once)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print the newest events of the journal, decoded",
		Long: `Prints the newest --limit events of those that etcd still has, oldest first. With
--follow it prints what is committed from now on, until Ctrl-C, or until it has
printed --limit events; when its node ends it goes on with another one. Beats, which
are commits without changes, are left out.

CLUSTER TIME stands still while no node is primary. CLOCK (UTC) is derived from it, by
the clock of this machine and what the primary's cluster time was when it was asked;
it is right to about 0.2 s. A ~ marks times before a change of primary: the time
without one is left out as masterctl history has it.

As JSON it prints one event a line, as YAML one a document.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (follow || e.since != 0) && !cmd.Flags().Changed("limit") {
				e.limit = 0
			}
			if e.since < 0 {
				return cli.Misusef("--since is %v: it must be above 0", e.since)
			}
			if follow {
				e.cmd = cmd
				if e.since != 0 {
					return cli.Misusef("--since and --follow exclude each other")
				}
				return e.RunLong(cmd, e.follow)
			}
			return once(cmd, args)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print what is committed from now on")
	cmd.Flags().Uint64Var(&e.limit, "limit", enough, "most events to print; 0 for all, as with --follow or --since if it is not given")
	cmd.Flags().DurationVar(&e.since, "since", 0, "only events committed no longer than this before the newest one, such as 30s")
	cmd.Flags().StringSliceVar(&e.types, "type", nil, "only events of these `types`, such as PUT_START,REMOVE")
	completeFlag(cmd, "type", completeTypes())
	about := func(flag, usage string) {
		cmd.Flags().Func(flag, usage, func(name string) error {
			e.about = append(e.about, &subject{name: name})
			return nil
		})
	}
	about("mention", "only events that name this key, segment, client or id, or objects with this `name`")
	about("key", "only events about objects with this `key`; the same as --mention")
	about("segment", "only events that name this `segment`, or its id: that it was mounted, closed, drained or unmounted; the same as --mention")
	completeFlag(cmd, "key", f.completeKeys)
	completeFlag(cmd, "segment", f.completeSegments)
	cmd.Flags().Uint64Var(&e.from, "from", 0, "sequence to begin with; with --follow, events from there on are printed first")
	return cmd
}

// once prints the events that the journal has now.
func (e *follower) once(ctx context.Context, cmd *cobra.Command, all nodes) error {
	w := cmd.OutOrStdout()
	e.times = all.wallTimes(ctx)
	stream, err := all.best().admin.Events(ctx, &pb.EventsRequest{FromSequence: e.from})
	if err != nil {
		return readError(err)
	}
	var newest []*pb.EventsResponse
	for {
		event, err := stream.Recv()
		if err == nil || errors.Is(err, io.EOF) {
			e.head(w)
		}
		if err == nil {
			e.until = event.GetClusterTimeMs()
		}
		switch {
		case errors.Is(err, io.EOF):
			e.hint(cmd)
			return e.print(w, e.recent(newest)...)
		case err != nil:
			return readError(err)
		case !e.wanted(event):
		case e.limit == 0 && e.since == 0:
			err = e.print(w, event)
		default:
			if newest = append(newest, event); e.limit > 0 && uint64(len(newest)) > e.limit {
				newest = newest[1:]
			}
		}
		if err != nil {
			return err
		}
	}
}

// recent leaves out what is older than --since allows.
func (e *follower) recent(events []*pb.EventsResponse) []*pb.EventsResponse {
	if e.since == 0 {
		return events
	}
	from := e.until - e.since.Milliseconds()
	return slices.DeleteFunc(events, func(event *pb.EventsResponse) bool { return event.GetClusterTimeMs() < from })
}

// A subject is what --mention or a similar flag names.
type subject struct {
	name    string
	tenant  string   // whose key it is; empty if it may be that of any
	objects []string // ids of the newest objects with that key
}

// wanted reports whether an event passes --type, --mention and the like.
func (e *follower) wanted(event *pb.EventsResponse) bool {
	if !slices.Contains(e.passed, event.GetType()) {
		e.passed = append(e.passed, event.GetType())
	}
	mentioned := true
	for _, s := range e.about { // each subject must see each event, to learn the ids of its objects
		mentioned = s.in(event) && mentioned
	}
	return mentioned && (len(e.types) == 0 || slices.ContainsFunc(e.types, func(t string) bool { return strings.EqualFold(t, event.GetType()) }))
}

// in reports whether an event is about the subject. Only the first event of an object has
// its key; the others have its id.
func (s *subject) in(event *pb.EventsResponse) bool {
	const most = 1000
	var content any
	if json.Unmarshal([]byte(event.GetJson()), &content) != nil {
		return false
	}
	if names(content, s.name) {
		var object struct {
			Tenant string `json:"tenant"`
			Key    string `json:"key"`
			ID     string `json:"object_id"`
		}
		err := json.Unmarshal([]byte(event.GetJson()), &object)
		if err == nil && s.tenant != "" && object.Tenant != "" && object.Tenant != s.tenant {
			return false
		}
		if err == nil && object.Key == s.name && object.ID != "" {
			s.objects = append(s.objects[max(0, len(s.objects)-most):], object.ID)
		}
		return true
	}
	return slices.ContainsFunc(s.objects, func(id string) bool { return names(content, id) })
}

// hint prints the types of the events that came if --type names none of them, since it may
// be misspelled.
func (e *follower) hint(cmd *cobra.Command) {
	came := func(t string) bool {
		return slices.ContainsFunc(e.passed, func(p string) bool { return strings.EqualFold(t, p) })
	}
	if len(e.types) > 0 && !slices.ContainsFunc(e.types, came) {
		if len(e.passed) == 0 {
			cmd.PrintErrln("there are no events")
			return
		}
		slices.Sort(e.passed)
		cmd.PrintErrf("no event has the type %s; there are %s\n", joined(e.types), joined(e.passed))
	}
}

// names reports whether an event names a key, a segment or an id. Other strings in its JSON
// do not count: many are numbers, which may look like keys.
func names(content any, name string) bool {
	switch v := content.(type) {
	case []any:
		return slices.ContainsFunc(v, func(v any) bool { return names(v, name) })
	case map[string]any:
		for field, v := range v {
			if text, ok := v.(string); ok && text == name && isName(field) || names(v, name) {
				return true
			}
			if list, ok := v.([]any); ok && slices.Contains(list, any(name)) && isName(field) {
				return true
			}
		}
	}
	return false
}

// isName reports whether a field of an event names something.
func isName(field string) bool {
	switch field {
	case "key", "segment_name", "segments", "source_segment", "target_segments", "task_ids":
		return true
	}
	return strings.HasSuffix(field, "_id")
}

// eventLine has columns of fixed width, since the table may grow without end.
const eventLine = "%-12v %-13v %-14v %-16s %s\n"

func eventHead(w io.Writer) {
	fmt.Fprintf(w, cli.Bold(strings.TrimSpace(eventLine))+"\n", "TERM/SEQ", "CLOCK (UTC)", "CLUSTER TIME", "TYPE", "EVENT")
}

// head prints the head of the table, once, when a node has answered.
func (e *follower) head(w io.Writer) {
	if e.headed {
		return
	}
	e.headed = true
	if !e.JSON && !e.YAML {
		eventHead(w)
	}
}

func (e *follower) print(w io.Writer, events ...*pb.EventsResponse) error {
	for _, event := range events {
		result := e.times.result(event)
		line := result.row
		if e.JSON || e.YAML {
			line = func(w io.Writer) error { return e.PrintLine(w, result) }
		}
		if err := line(w); err != nil {
			return err
		}
	}
	return nil
}

func resultOf(event *pb.EventsResponse) eventResult {
	stream := strings.ToLower(strings.TrimPrefix(event.GetStream().String(), "EVENT_STREAM_"))
	result := eventResult{Term: event.GetTerm(), Sequence: event.GetSequence(), Time: event.GetClusterTimeMs(), Stream: stream, Type: event.GetType(), Text: event.GetText()}
	if json.Valid([]byte(event.GetJson())) {
		result.Event = json.RawMessage(event.GetJson())
	}
	return result
}

func (r *eventResult) row(w io.Writer) error {
	_, clock, _ := strings.Cut(strings.TrimSuffix(r.Wall, "Z"), "T")
	if r.Rough {
		clock = "~" + clock
	}
	_, err := fmt.Fprintf(w, eventLine, fmt.Sprintf("%d/%d", r.Term, r.Sequence), cli.Or(clock), cli.Millis(r.Time), cli.Printable(r.Type), cli.Printable(r.Text))
	return err
}
