package ctl

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/cli"
)

type segmentsResult struct {
	NodeID   string          `json:"node_id"` // who was asked
	Segments []segmentResult `json:"segments"`
}

type segmentResult struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Client      string `json:"client_id"`
	Base        uint64 `json:"base"`
	Size        uint64 `json:"size"`
	Endpoint    string `json:"endpoint"`
	Protocol    string `json:"protocol"`
	HostID      string `json:"host_id,omitempty"`
	Capacity    uint64 `json:"capacity_bytes"`
	Used        uint64 `json:"used_bytes"`
	Quarantined uint64 `json:"quarantined_bytes"`
	Status      string `json:"status"`
}

func (f *Flags) segmentsCommand() *cobra.Command {
	list := &cobra.Command{
		Use:   "list",
		Short: "Print the mounted segments",
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.Run(cmd, func(ctx context.Context) error {
				result, err := f.segments(ctx, "")
				if err != nil {
					return err
				}
				return f.Print(cmd, result, func(w io.Writer) { segmentTable(w, result.Segments) })
			})
		},
	}
	cmd := &cobra.Command{Use: "segments", Short: "Print the mounted segments; mount and unmount some", RunE: list.RunE}
	return cli.Group(cmd, list, f.mountCommand(), f.unmountCommand())
}

func segmentTable(w io.Writer, segments []segmentResult) {
	t := cli.NewTable(w, "NAME", "STATUS", "ID", "SIZE", "USED", "QUARANTINED", "ENDPOINT", "BASE", "CLIENT")
	for i := range segments {
		s := &segments[i]
		t.Row(s.Name, cli.Or(s.Status), s.ID, cli.SizeText(s.Size), cli.SizeText(s.Used), cli.SizeText(s.Quarantined), cli.Or(s.Endpoint), fmt.Sprintf("%#x", s.Base), s.Client)
	}
	t.End()
}

// segments returns the mounted segments of a name, or all if it is empty. It asks the
// primary, or another node if none is primary.
func (f *Flags) segments(ctx context.Context, name string) (segmentsResult, error) {
	all, err := f.survey(ctx)
	defer all.close()
	if err != nil {
		return segmentsResult{}, err
	}
	n := all.best()
	resp, err := n.admin.ListSegments(ctx, &pb.ListSegmentsRequest{Name: name})
	if err != nil {
		return segmentsResult{}, readError(err)
	}
	result := segmentsResult{NodeID: n.id, Segments: []segmentResult{}}
	for _, s := range resp.GetSegments() {
		spec := s.GetSegment()
		result.Segments = append(result.Segments, segmentResult{
			ID: spec.GetId(), Name: spec.GetName(), Client: s.GetClientId(), Base: spec.GetBase(), Size: spec.GetSize(),
			Endpoint: spec.GetEndpoint(), Protocol: spec.GetProtocol(), HostID: spec.GetHostId(),
			Capacity: s.GetCapacityBytes(), Used: s.GetUsedBytes(), Quarantined: s.GetQuarantinedBytes(), Status: s.GetStatus(),
		})
	}
	return result, nil
}

// SegmentNames returns the names of the mounted segments.
func (f *Flags) SegmentNames(ctx context.Context) (names []string, err error) {
	result, err := f.segments(ctx, "")
	for _, s := range result.Segments {
		names = append(names, s.Name)
	}
	return names, err
}

// An unmountResult is what `masterctl segments unmount` prints. Over Mooncake's protocol only
// the id is known.
type unmountResult struct {
	ID       string  `json:"id"`
	Name     string  `json:"name,omitempty"`
	Endpoint string  `json:"endpoint,omitempty"`
	Size     uint64  `json:"size,omitempty"`
	Objects  *uint64 `json:"objects,omitempty"` // that had a replica on it; left out if they were not counted
	term
}

func (f *Flags) unmountCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unmount ID|NAME",
		Short: "Take a segment away, with all replicas on it, whoever mounted it",
		Long: `Takes a segment away, with all replicas on it, whoever mounted it. Objects without
another replica are gone.

With --dry-run it only counts the objects with a replica on it, and prints some of
their keys. On a terminal it does that first, and asks; elsewhere it needs --yes.

The host is not notified. If it still runs, it mounts the segment again after the
next takeover. To take its memory away for good, stop the host. (masterctl segments
mount notices it within seconds, and ends.)`,
		Args:              cli.Arguments(1, 1, "the ID or NAME of one segment"),
		ValidArgsFunction: f.completeSegments,
	}
	sure := f.bindSure(cmd)
	sure.question, sure.refused, sure.always = "Unmount it?", "nothing was unmounted", true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var which segmentResult
		err := f.Run(cmd, func(ctx context.Context) (err error) {
			which, err = f.findSegment(ctx, "UnmountSegment", args[0])
			return err
		})
		if err != nil {
			return err
		}
		var objects *uint64
		count := func() (matches, error) {
			found, err := f.countOn(cmd, which.ID)
			objects = &found.Matches
			return found, err
		}
		consequence := fmt.Sprintf("this takes %s away, with all replicas on it", cli.Printable(args[0]))
		return sure.then(cmd, consequence, count, func() error { return f.unmount(cmd, which, objects) })
	}
	return cmd
}

func (f *Flags) unmount(cmd *cobra.Command, which segmentResult, objects *uint64) error {
	id, err := uuid.Parse(which.ID)
	if err != nil {
		return err
	}
	return f.call(cmd, uuid.Nil, func(ctx context.Context, s *session) error {
		if err := s.UnmountSegment(ctx, id); err != nil {
			return err
		}
		result := unmountResult{which.ID, which.Name, which.Endpoint, which.Size, objects, s.term()}
		return f.Print(cmd, result, result.print)
	})
}

func (r *unmountResult) print(w io.Writer) {
	fmt.Fprintf(w, "unmounted %s", r.ID)
	if r.Name != "" {
		fmt.Fprintf(w, ": %s, %s of %s", cli.Printable(r.Name), cli.SizeText(r.Size), cli.Printable(r.Endpoint))
	}
	if r.Objects != nil {
		fmt.Fprintf(w, "; %s object(s) had a replica on it", cli.Count(*r.Objects))
	}
	fmt.Fprintln(w)
}

// findSegment returns the one segment that has an id or a name; over Mooncake's protocol only
// its id. op is for errors.
func (f *Flags) findSegment(ctx context.Context, op, which string) (segmentResult, error) {
	id, err := uuid.Parse(which)
	if err == nil && f.Mooncake {
		return segmentResult{ID: id.String()}, nil
	}
	name := which
	if err == nil { // an id is searched among all segments
		name = ""
	}
	list, err := f.segments(ctx, name)
	if err != nil {
		return segmentResult{}, err
	}
	var found []segmentResult
	var ids []string
	for _, s := range list.Segments {
		if s.ID == strings.ToLower(which) {
			return s, nil
		}
		if s.Name == which {
			found, ids = append(found, s), append(ids, s.ID)
		}
	}
	switch len(found) {
	case 0:
		return segmentResult{}, errs.New(errs.SegmentNotFound, op, "no segment has the id or name %q", which)
	case 1:
		return found[0], nil
	default:
		return segmentResult{}, errs.New(errs.InvalidParams, op, "%d segments have the name %q; give the id of one: %s", len(ids), which, strings.Join(ids, ", "))
	}
}
