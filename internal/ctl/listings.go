package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
)

type leaseList struct {
	NodeID string         `json:"node_id"` // who was asked
	Leases []*leaseResult `json:"leases"`  // longest first
}

type leaseResult struct {
	Key       string `json:"key"`
	Remaining uint64 `json:"lease_remaining_ms"`
}

func (f *Flags) leasesCommand() *cobra.Command {
	which := &selection{}
	cmd := &cobra.Command{
		Use:   "leases",
		Short: "Print the keys that readers hold leases on, and for how long",
		Long: `Prints the keys that readers hold leases on, the longest leases first. It extends
none of them. If no node serves, another one answers with what the journal says.`,
		Args: cli.NoArguments,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req, err := which.request()
		if err != nil {
			return err
		}
		req.Leased, req.IncludeUnreadable = true, true
		return f.withNodes(func(ctx context.Context, cmd *cobra.Command, ns nodes) error {
			list := leaseList{ns.best().id, []*leaseResult{}}
			err := f.listKeys(ctx, ns, req, func(page *pb.ListKeysResponse) bool {
				list.take(page, which.limit)
				return true
			})
			if err != nil {
				return err
			}
			list.Leases = cut(cmd, list.Leases, which.limit)
			return f.Print(cmd, list, func(w io.Writer) {
				t := cli.NewTable(w, "LEASED FOR", "KEY")
				for _, l := range list.Leases {
					t.Row(cli.Millis(l.Remaining).String(), cli.Key(l.Key))
				}
				t.End()
			})
		})(cmd, args)
	}
	which.bind(cmd)
	return cmd
}

// take adds a page. It keeps the longest leases, one more than the limit, or all if the
// limit is 0.
func (l *leaseList) take(page *pb.ListKeysResponse, limit uint64) {
	left := page.GetLeaseRemainingMs()
	for i, key := range page.GetKeys() {
		if i < len(left) { // a node of an older version sends none
			l.Leases = append(l.Leases, &leaseResult{key, left[i]})
		}
	}
	slices.SortFunc(l.Leases, func(a, b *leaseResult) int {
		return cmp.Or(cmp.Compare(b.Remaining, a.Remaining), cmp.Compare(a.Key, b.Key))
	})
	if limit > 0 && uint64(len(l.Leases)) > limit+1 {
		l.Leases = l.Leases[:limit+1]
	}
}

type clientList struct {
	NodeID  string         `json:"node_id"` // who was asked
	TTL     uint64         `json:"client_ttl_ms,omitempty"`
	Total   uint32         `json:"total"`
	Clients []clientResult `json:"clients"`
}

type clientResult struct {
	ID       string   `json:"client_id"`
	Segments []string `json:"segments"`
	Capacity uint64   `json:"capacity_bytes"`
	Used     uint64   `json:"used_bytes"`
	SSD      bool     `json:"ssd"`
	SSDBytes uint64   `json:"ssd_capacity_bytes,omitempty"`
	Expires  *int64   `json:"expires_in_ms,omitempty"` // null on a node that does not serve
}

func (f *Flags) clientsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clients",
		Short: "Print the clients that lend memory or an SSD, and until when they count as alive",
		Long: `Prints the clients that lend memory or an SSD and, from the primary, all others that
are alive. A client that is not heard for its --client_ttl expires: its memory is
unmounted.`,
		Args: cli.NoArguments,
		RunE: f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
			n := all.best()
			resp, err := n.admin.ListClients(ctx, &pb.ListClientsRequest{})
			if err != nil {
				return readError(err)
			}
			list := clientList{n.id, resp.GetClientTtlMs(), resp.GetTotal(), []clientResult{}}
			for _, c := range resp.GetClients() {
				r := clientResult{ID: c.GetClientId(), Segments: append([]string{}, c.GetSegments()...), Capacity: c.GetCapacityBytes(), Used: c.GetUsedBytes(), SSD: c.GetSsd(), SSDBytes: c.GetSsdCapacityBytes()}
				if left := c.GetExpiresInMs(); c.GetWatched() {
					r.Expires = &left
				}
				list.Clients = append(list.Clients, r)
			}
			return f.Print(cmd, list, func(w io.Writer) { clientTable(w, &list) })
		}),
	}
}

func clientTable(w io.Writer, list *clientList) {
	t := cli.NewTable(w, "CLIENT", "SEGMENTS", "MEMORY", "USED", "SSD", "EXPIRES IN")
	for _, c := range list.Clients {
		ssd, expires := "-", "-"
		switch {
		case c.SSDBytes > 0:
			ssd = cli.SizeText(c.SSDBytes)
		case c.SSD:
			ssd = "yes"
		}
		if c.Expires != nil {
			if expires = cli.Millis(*c.Expires).String(); *c.Expires < 0 {
				expires = "silent, kept for now"
			}
		}
		t.Row(c.ID, cli.Or(strings.Join(c.Segments, ", ")), cli.SizeText(c.Capacity), cli.SizeText(c.Used), ssd, expires)
	}
	t.End()
	if more := int(list.Total) - len(list.Clients); more > 0 {
		fmt.Fprintf(w, "and %s more\n", cli.Count(more))
	}
}

type rangeList struct {
	NodeID   string        `json:"node_id"` // who was asked
	Sequence uint64        `json:"sequence"`
	Ranges   []rangeResult `json:"ranges"`
}

type rangeResult struct {
	Segment   string `json:"segment"`
	SegmentID string `json:"segment_id"`
	Offset    uint64 `json:"offset"`
	Length    uint64 `json:"length"`
	State     string `json:"state"`
	Object    string `json:"object_id,omitempty"`
	Tenant    string `json:"tenant,omitempty"`
	Key       string `json:"key,omitempty"`
	// For memory in quarantine: how long it stays there at least.
	Frees *int64 `json:"frees_in_ms,omitempty"`
}

// rangeStates are the values of --state.
var rangeStates = []string{"live", "reserved", "quarantined"}

func rangeState(s pb.RangeState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "RANGE_STATE_"))
}

func (f *Flags) rangesCommand() *cobra.Command {
	var id, state string
	var limit uint64
	cmd := &cobra.Command{
		Use:   "ranges [SEGMENT]",
		Short: "Print which memory of segments is taken, by which objects, and what is in quarantine",
		Long: `Prints each range of memory that is not free, of all segments or of the one with an
id or name: live (a readable replica), reserved (it is being written) or quarantined
(it was freed, and somebody may still read or write there).

If objects come and go meanwhile, one may be in the list twice, or not at all. With
millions of objects it is work for the node: choose a standby with --node.`,
		Args:              cli.Arguments(0, 1, "at most one SEGMENT"),
		ValidArgsFunction: f.completeSegments,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if state != "" && !slices.Contains(rangeStates, state) {
			return cli.Misusef("--state is %q: it must be one of %s", state, strings.Join(rangeStates, ", "))
		}
		return f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
			n := all.best()
			if id != "" {
				var err error
				if n, err = all.choose(id); err != nil {
					return err
				}
			}
			list, err := f.ranges(ctx, n, args, state, limit)
			if err != nil {
				return err
			}
			list.Ranges = cut(cmd, list.Ranges, limit)
			return f.Print(cmd, list, func(w io.Writer) { rangeTable(w, list.Ranges) })
		})(cmd, args)
	}
	cmd.Flags().StringVar(&id, "node", "", "node that is asked; none means the primary, or else one that answers")
	completeFlag(cmd, "node", f.completeNodes)
	cmd.Flags().StringVar(&state, "state", "", "only ranges in this `state`: live, reserved or quarantined")
	cmd.Flags().Uint64Var(&limit, "limit", 1000, "most ranges to print; 0 for all")
	completeFlag(cmd, "state", values(rangeStates...))
	return cmd
}

func (f *Flags) ranges(ctx context.Context, n *node, segment []string, state string, limit uint64) (list rangeList, err error) {
	list = rangeList{NodeID: n.id, Ranges: []rangeResult{}}
	of := ""
	if len(segment) > 0 {
		if _, err := uuid.Parse(segment[0]); err == nil {
			of = segment[0]
		} else if s, err := f.findSegment(ctx, "DumpRanges", segment[0]); err == nil {
			of = s.ID
		} else {
			return list, err
		}
	}
	order := make(map[string]int) // of the segments
	err = n.eachRun(ctx, of, func(run *pb.DumpRangesResponse) {
		if id := run.GetSegment().GetId(); order[id] == 0 {
			order[id] = len(order) + 1
		}
		list.Sequence = run.GetSequence()
		for _, r := range run.GetRanges() {
			if result := n.rangeOf(run.GetSegment(), r); state == "" || result.State == state {
				list.Ranges = append(list.Ranges, result)
			}
		}
		if limit > 0 && uint64(len(list.Ranges)) > 2*limit+maxRuns {
			lowest(&list, order, limit)
		}
	})
	if err == nil {
		lowest(&list, order, limit)
	}
	return list, err
}

// eachRun calls each with the runs of ranges of the segment with an id, or of all segments if
// that is empty.
func (n *node) eachRun(ctx context.Context, id string, each func(*pb.DumpRangesResponse)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := n.admin.DumpRanges(ctx, &pb.DumpRangesRequest{SegmentId: id})
	if err != nil {
		return readError(err)
	}
	for {
		run, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return readError(err)
		}
		each(run)
	}
}

// maxRuns is how many ranges are added to a list, at least, before it is cut again.
const maxRuns = 10_000

// lowest sorts ranges by segment and offset, and keeps one more than the limit.
func lowest(list *rangeList, order map[string]int, limit uint64) {
	slices.SortFunc(list.Ranges, func(a, b rangeResult) int {
		return cmp.Or(cmp.Compare(order[a.SegmentID], order[b.SegmentID]), cmp.Compare(a.Offset, b.Offset))
	})
	if limit > 0 && uint64(len(list.Ranges)) > limit+1 {
		list.Ranges = list.Ranges[:limit+1]
	}
}

func (n *node) rangeOf(s *pb.Segment, r *pb.Range) rangeResult {
	result := rangeResult{
		Segment: s.GetName(), SegmentID: s.GetId(), Offset: r.GetOffset(), Length: r.GetLength(),
		State: rangeState(r.GetState()), Tenant: r.GetTenant(), Key: r.GetKey(),
	}
	if id := r.GetObjectId(); id != 0 {
		result.Object = fmt.Sprint(id)
	}
	if r.GetState() == pb.RangeState_RANGE_STATE_QUARANTINED {
		left := max(0, r.GetUntilClusterTimeMs()-n.status.GetState().GetClusterTimeMs())
		result.Frees = &left
	}
	return result
}

func rangeTable(w io.Writer, ranges []rangeResult) {
	t := cli.NewTable(w, "SEGMENT", "OFFSET", "LENGTH", "STATE", "OBJECT", "KEY")
	for i := range ranges {
		r := &ranges[i]
		what := cli.Key(r.Key)
		if r.Key == "" {
			what = "-"
		}
		if r.Frees != nil {
			what = "free in " + cli.Millis(*r.Frees).String()
		}
		t.Row(r.Segment, fmt.Sprintf("%#x", r.Offset), cli.SizeText(r.Length), r.State, cli.Or(r.Object), what)
	}
	t.End()
}
