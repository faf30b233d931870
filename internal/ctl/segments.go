package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// A segmentsResult is what `masterctl segments` prints.
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
}

func (g *globals) segmentsCommand() *cobra.Command {
	list := &cobra.Command{
		Use:   "list",
		Short: "Print the mounted segments",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return g.listSegments(cmd) },
	}
	cmd := &cobra.Command{
		Use:   "segments",
		Short: "Print the mounted segments; mount and unmount some",
		Args:  noSuchCommand,
		RunE:  list.RunE,
	}
	cmd.AddCommand(list, g.mountCommand(), g.unmountCommand())
	return cmd
}

func (g *globals) listSegments(cmd *cobra.Command) error {
	ctx, cancel, err := g.begin(cmd)
	if err != nil {
		return err
	}
	defer cancel()
	result, err := g.segments(ctx)
	if err != nil {
		return err
	}
	return g.print(cmd, result, func(w io.Writer) {
		t := newTable(w, "NAME", "ID", "SIZE", "USED", "QUARANTINED", "ENDPOINT", "BASE", "CLIENT")
		for i := range result.Segments {
			s := &result.Segments[i]
			t.row(s.Name, s.ID, sizeText(s.Size), sizeText(s.Used), sizeText(s.Quarantined), or(s.Endpoint), fmt.Sprintf("%#x", s.Base), s.Client)
		}
		t.end()
	})
}

// segments returns the mounted segments as the primary knows them, or else a
// node that answers.
func (g *globals) segments(ctx context.Context) (segmentsResult, error) {
	all, err := g.survey(ctx)
	defer all.close()
	if err != nil {
		return segmentsResult{}, err
	}
	n := all.best()
	resp, err := n.admin.ListSegments(ctx, &pb.ListSegmentsRequest{})
	if err != nil {
		return segmentsResult{}, readError(err)
	}
	result := segmentsResult{NodeID: n.id, Segments: []segmentResult{}}
	for _, s := range resp.GetSegments() {
		spec := s.GetSegment()
		result.Segments = append(result.Segments, segmentResult{
			ID: spec.GetId(), Name: spec.GetName(), Client: s.GetClientId(), Base: spec.GetBase(), Size: spec.GetSize(),
			Endpoint: spec.GetEndpoint(), Protocol: spec.GetProtocol(), HostID: spec.GetHostId(),
			Capacity: s.GetCapacityBytes(), Used: s.GetUsedBytes(), Quarantined: s.GetQuarantinedBytes(),
		})
	}
	return result, nil
}

func (g *globals) unmountCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unmount ID|NAME",
		Short: "Take a segment away, with all replicas on it, whoever mounted it",
		Long: `Takes a segment away, with all replicas on it, whoever mounted it.

A host that lives is not told. After the next takeover it mounts the segment again.
To take its memory away for good, end the host.`,
		Args: arguments(1, 1, "the ID or NAME of one segment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.call(cmd, writer(), func(ctx context.Context, s *session) error {
				id, err := g.findSegment(ctx, args[0])
				if err != nil {
					return err
				}
				if err := s.UnmountSegment(ctx, id); err != nil {
					return err
				}
				result := unmountResult{id.String(), s.reign()}
				return g.print(cmd, result, func(w io.Writer) { fmt.Fprintf(w, "unmounted %s\n", result.ID) })
			})
		},
	}
}

// An unmountResult is what `masterctl segments unmount` prints.
type unmountResult struct {
	ID string `json:"id"`
	reign
}

// findSegment returns the id of the one segment that has an id or a name.
func (g *globals) findSegment(ctx context.Context, which string) (uuid.UUID, error) {
	if id, err := uuid.Parse(which); err == nil && g.protocol == client.Mooncake {
		return id, nil
	}
	list, err := g.segments(ctx)
	if err != nil {
		return uuid.Nil, err
	}
	var ids []string
	for _, s := range list.Segments {
		if s.ID == strings.ToLower(which) {
			return uuid.Parse(s.ID)
		}
		if s.Name == which {
			ids = append(ids, s.ID)
		}
	}
	switch len(ids) {
	case 0:
		return uuid.Nil, errs.New(errs.SegmentNotFound, "UnmountSegment", "no segment has the id or name %q", which)
	case 1:
		return uuid.Parse(ids[0])
	default:
		return uuid.Nil, errs.New(errs.InvalidParams, "UnmountSegment", "%d segments have the name %q; give the id of one: %s", len(ids), which, strings.Join(ids, ", "))
	}
}

// Defaults of memory that does not exist.
const (
	mountBase     = 1 << 32
	mountTransfer = "tcp"
)

// mountFlags are the flags of `masterctl segments mount`.
type mountFlags struct {
	segment client.Segment
	id      segmentIDFlag
	keep    bool
}

func (g *globals) mountCommand() *cobra.Command {
	f := &mountFlags{}
	cmd := &cobra.Command{
		Use:   "mount NAME --size N",
		Short: "Lend memory to the store, as a host would, until Ctrl-C",
		Long: `Mounts a segment and stays, because a master forgets a client that it does not
hear of for its --client_ttl (10 s): it pings, also the next primary, and mounts
the segment again if it was forgotten. Ctrl-C unmounts it; with --keep it is left to
the master to notice.

The memory does not exist. The segment is for trying out a cluster: objects can be
put and found, and have no bytes. A segment mounted before at the same --endpoint
and --base is replaced.`,
		Args: arguments(1, 1, "the NAME of one segment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s := &f.segment
			if s.Name, s.ID = args[0], f.id.given; s.Size == 0 {
				return usagef("%s needs --size, such as --size 64MiB", cmd.CommandPath())
			}
			if s.ID == uuid.Nil {
				s.ID = uuid.New()
			}
			if s.Endpoint == "" {
				s.Endpoint = s.Name
			}
			if s.Base == 0 || s.Base+s.Size < s.Base {
				return usagef("--base is %#x: it must not be 0, and %s must fit behind it", s.Base, sizeText(s.Size))
			}
			return g.mount(cmd, f)
		},
	}
	flags := cmd.Flags()
	flags.Var(sizeFlag{&f.segment.Size}, "size", "bytes of the segment, such as 64MiB or 1GiB")
	flags.Uint64Var(&f.segment.Base, "base", mountBase, "address of its first byte")
	flags.StringVar(&f.segment.Endpoint, "endpoint", "", "where its bytes would be reached (default NAME)")
	flags.StringVar(&f.segment.Protocol, "transfer-protocol", mountTransfer, "how its bytes would travel, such as tcp or rdma")
	flags.StringVar(&f.segment.HostID, "host-id", "", "stable identity of the host")
	flags.Var(&f.id, "id", "id of the segment, a UUID (default a new one)")
	flags.BoolVar(&f.keep, "keep", false, "do not unmount it at the end")
	return cmd
}

// A mountResult is what `masterctl segments mount` prints once it is mounted.
type mountResult struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Base     uint64 `json:"base"`
	Size     uint64 `json:"size"`
	Endpoint string `json:"endpoint"`
	Client   string `json:"client_id"`
	reign
}

// mount lends a segment until the command is interrupted. Each such process is
// a client of its own: one that shares its id with another is not told to mount
// again when only the other has done so.
func (g *globals) mount(cmd *cobra.Command, f *mountFlags) error {
	ctx, cancel, err := g.beginLong(cmd)
	if err != nil {
		return err
	}
	defer cancel()
	if err := g.widen(ctx); err != nil {
		return err
	}
	c, err := g.newSession(uuid.New(), cmd.PrintErrf)
	if err != nil {
		return err
	}
	defer c.Close()
	s := f.segment
	once, done := context.WithTimeout(ctx, g.timeout)
	defer done()
	if err := c.MountSegment(once, s); err != nil {
		return err
	}
	result := mountResult{s.ID.String(), s.Name, s.Base, s.Size, s.Endpoint, c.ID().String(), c.reign()}
	err = g.print(cmd, result, func(w io.Writer) {
		fmt.Fprintf(w, "mounted %s: %s at %#x of %s, segment %s of client %s in %s\n",
			result.Name, sizeText(result.Size), result.Base, result.Endpoint, result.ID, result.Client, result.when())
	})
	if err != nil {
		return err
	}
	cmd.PrintErrln("It stays mounted while this command runs. Ctrl-C ends it.")
	<-ctx.Done()
	if f.keep {
		return nil
	}
	last, end := context.WithTimeout(context.WithoutCancel(ctx), g.timeout)
	defer end()
	if err := c.UnmountSegment(last, s.ID); err != nil {
		return err
	}
	cmd.PrintErrf("unmounted %s\n", s.Name)
	return nil
}

// A segmentIDFlag is the id of a segment.
type segmentIDFlag struct{ given uuid.UUID }

func (f *segmentIDFlag) String() string { return "" }
func (f *segmentIDFlag) Type() string   { return "uuid" }

func (f *segmentIDFlag) Set(s string) (err error) {
	if f.given, err = uuid.Parse(s); err != nil || f.given == uuid.Nil {
		return errors.New("must be a UUID such as " + uuid.New().String())
	}
	return nil
}
