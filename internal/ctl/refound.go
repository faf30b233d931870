package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/promote/statefile"
)

type refoundResult struct {
	NodeID   string `json:"node_id"`
	Term     uint64 `json:"term"`
	Sequence uint64 `json:"sequence"` // at which the journal was founded anew
}

func (f *Flags) refoundCommand() *cobra.Command {
	from, file, id := "", "", ""
	var giveUp []string
	cmd := &cobra.Command{
		Use:   "refound --from NODE | --from-file FILE",
		Short: "Found the journal anew from the state of a node, or from a backup",
		Long: `Makes a node the primary, with the state that it holds, or with that of a file
which 'masterctl backup' wrote or which stood in a node's state directory. Nodes do
this by themselves when etcd has lost the journal and they know who holds most of
it. This command is for when they cannot know, and for a state that is older.

It is refused while a node serves or holds more, or may do so. The refusal says what
would be lost, and which --yes gives it up: one with the ids of those nodes, such as
--yes=a,b. So run the command without --yes first. Memory that is free in that state
may be in use by others since, so it is given out again only after the longest time
that they may use it.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("yes") && !areIDs(giveUp) {
				return f.yesNeedsIDs(cmd)
			}
			if (from == "") == (file == "") || from != "" && id != "" {
				return cli.Misusef("give either --from, or --from-file and perhaps --node")
			}
			return f.RunLong(cmd, func(ctx context.Context) error {
				all, err := f.survey(ctx)
				defer all.close()
				if err != nil {
					return err
				}
				n, err := all.choose(from + id)
				if err != nil {
					return err
				}
				resp, err := n.refound(ctx, giveUp, file)
				if err != nil {
					return err
				}
				result := refoundResult{n.id, resp.GetHeader().GetTerm(), resp.GetSequence()}
				return f.Print(cmd, result, func(w io.Writer) {
					fmt.Fprintf(w, "%s serves in term %d: the journal was founded anew at sequence %d\n", cli.Printable(result.NodeID), result.Term, result.Sequence)
				})
			})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "node whose state is founded from")
	cmd.Flags().StringVar(&file, "from-file", "", "file whose state is founded from")
	cmd.Flags().StringVar(&id, "node", "", "node that gets the file; needed if several answer")
	completeFlag(cmd, "from", f.completeNodes)
	completeFlag(cmd, "node", f.completeNodes)
	completeFlag(cmd, "from-file", fileNames)
	f.bindGiveUp(cmd, &giveUp)
	return cmd
}

// bindGiveUp adds the flag --yes of refound, which is never bare.
func (f *Flags) bindGiveUp(cmd *cobra.Command, giveUp *[]string) {
	cmd.Flags().StringSliceVar(giveUp, "yes", nil, "confirm: `ids` of the nodes that lose something, as the refusal names them, such as --yes=a,b")
	completeFlag(cmd, "yes", f.completeNodes)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok && bare.GetSpecifiedName() == "yes" {
			return f.yesNeedsIDs(cmd)
		}
		return cli.Misuse(cli.FlagError(cmd, err))
	})
}

// areIDs reports whether the values of --yes may be ids of nodes: without one, the flag takes the
// flag after it for its value.
func areIDs(values []string) bool {
	return len(values) > 0 && !slices.ContainsFunc(values, func(s string) bool { return s == "" || strings.HasPrefix(s, "--") })
}

// yesNeedsIDs returns the error for a --yes that names no node, with the nodes that are known.
func (f *Flags) yesNeedsIDs(cmd *cobra.Command) error {
	text := "--yes needs the ids of the nodes that lose something, such as --yes=a,b; without --yes, the refusal names them"
	if ids, _ := f.completeNodes(cmd, nil, ""); len(ids) > 0 {
		text += "; nodes that are known: " + joined(ids)
	}
	return cli.Misusef("%s", text)
}

func (n *node) refound(ctx context.Context, giveUp []string, name string) (*pb.RefoundResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var file *os.File
	first := &pb.RefoundRequest{GiveUp: giveUp, FromFile: name != ""}
	if name != "" {
		info, err := statefile.Inspect(name)
		if err != nil {
			return nil, fmt.Errorf("%s is no whole state file: %w", name, err)
		}
		if want := n.status.GetHeader().GetClusterId(); info.Cluster != want {
			return nil, fmt.Errorf("%s is of cluster %q, not of %q", name, info.Cluster, want)
		}
		head, err := json.Marshal(info.Head)
		if err != nil {
			return nil, err
		}
		if file, err = os.Open(name); err != nil {
			return nil, err
		}
		first.FileBytes, first.FileHead = uint64(info.Bytes), string(head)
		defer func() { _ = file.Close() }()
	}
	stream, err := n.admin.Refound(ctx)
	if err == nil {
		err = stream.Send(first)
	}
	for buffer := make([]byte, pb.MaxSnapshotChunkBytes); err == nil && file != nil; {
		size, readErr := file.Read(buffer)
		if errors.Is(readErr, io.EOF) {
			break
		}
		if readErr != nil {
			return nil, readErr
		}
		err = stream.Send(&pb.RefoundRequest{Data: buffer[:size]})
	}
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF means that the answer says why the node stopped reading
		return nil, adminError(err)
	}
	resp, err := stream.CloseAndRecv()
	if err != nil {
		return nil, adminError(err)
	}
	return resp, nil
}
