package ctl

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/files"
	"github.com/understudy-store/understudy/promote/statefile"
)

type backupResult struct {
	NodeID   string `json:"node_id"`
	File     string `json:"file"`
	Bytes    int64  `json:"bytes"`
	Term     uint64 `json:"term"`
	Sequence uint64 `json:"sequence"`
	History  string `json:"history,omitempty"`
}

func (f *Flags) backupCommand() *cobra.Command {
	id, force := "", false
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Save the state of a running node in a file on this machine",
		Long: `Gets the state from a node that holds all of it and writes it to a file, in the
format of the nodes' own state files: from the node that is named with --node, or
from a standby, or else from the primary. The cluster goes on meanwhile.

The file appears when it is whole and checked, readable by its owner only.
'masterctl refound --from-file' founds a cluster with it. It holds no bytes of
objects, only where they are: it is of use as long as the hosts keep their memory.`,
		Args:              cli.Arguments(1, 1, "the file to write"),
		ValidArgsFunction: fileNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.RunLong(cmd, func(ctx context.Context) error {
				if _, err := os.Lstat(args[0]); err == nil && !force {
					return cli.Misusef("%s exists; to replace it, add --force", args[0])
				}
				all, err := f.survey(ctx)
				defer all.close()
				if err != nil {
					return err
				}
				n, err := all.toSave(id)
				if err != nil {
					return err
				}
				var result backupResult
				upTo, away := all.acknowledged()
				if away != "" {
					cmd.PrintErrf("warning: the primary %s does not answer from here: what it acknowledged last may be missing\n", cli.Printable(away))
				}
				if err = n.reach(ctx, upTo); err == nil {
					result, err = n.backup(ctx, args[0])
				}
				if err != nil {
					return fmt.Errorf("node %s: %w", n.id, err)
				}
				return f.Print(cmd, result, func(w io.Writer) {
					fmt.Fprintf(w, "saved the state of %s at sequence %d of term %d in %s (%s)\n",
						cli.Printable(result.NodeID), result.Sequence, result.Term, result.File, cli.SizeText(uint64(result.Bytes)))
				})
			})
		},
	}
	cmd.Flags().StringVar(&id, "node", "", "node whose state is saved; none means a complete standby, or else the primary")
	completeFlag(cmd, "node", f.completeNodes)
	cmd.Flags().BoolVar(&force, "force", false, "replace the file if it exists")
	return cmd
}

// toSave returns the node with an id. Without an id it prefers, of the nodes whose state is
// complete, a standby, and the one that has applied most.
func (ns nodes) toSave(id string) (*node, error) {
	if id != "" {
		return ns.choose(id)
	}
	worth := func(n *node) int { // a node with a higher worth is preferred
		switch {
		case !n.status.GetJournal().GetComplete():
			return 0 // its answer to Backup says why it has no state
		case n.status.GetNode().GetRole() == pb.Role_ROLE_PRIMARY:
			return 1
		}
		return 2
	}
	return slices.MaxFunc(ns.answering(), func(a, b *node) int {
		return cmp.Or(worth(a)-worth(b), cmp.Compare(a.status.GetState().GetSequence(), b.status.GetState().GetSequence()))
	}), nil
}

// acknowledged returns a sequence up to which the journal holds all that was acknowledged
// when the nodes were asked. If the primary did not answer, it returns the newest head that
// the others saw, and the id of the primary as away.
func (ns nodes) acknowledged() (sequence uint64, away string) {
	if primary := ns.primary(); primary != nil {
		return primary.status.GetState().GetSequence(), ""
	}
	for _, n := range ns.answering() {
		sequence = max(sequence, n.status.GetJournal().GetCommittedSequence())
		away = cmp.Or(away, n.status.GetLeaderNodeId())
	}
	return sequence, away
}

func (n *node) reach(ctx context.Context, sequence uint64) error {
	if sequence <= n.status.GetState().GetSequence() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := n.admin.Digest(ctx, &pb.DigestRequest{Sequence: sequence})
	if err != nil && errs.KindOf(adminError(err)) != errs.InvalidParams { // the node is far beyond that sequence and forgot its digest
		return readError(err)
	}
	return nil
}

// backup writes the node's state aside, checks it, and gives it its name.
func (n *node) backup(ctx context.Context, name string) (result backupResult, err error) {
	aside, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.tmp") // of mode 0600
	if err != nil {
		return result, err
	}
	err = files.Place(aside, name, n.receive(ctx, aside), func() error {
		info, err := statefile.Inspect(aside.Name())
		if err != nil {
			return fmt.Errorf("what came is no whole state file: %w", err)
		}
		result = backupResult{n.id, name, info.Bytes, uint64(info.Head.Term), uint64(info.Head.Seq), string(info.Head.History)}
		return nil
	})
	return result, err
}

func (n *node) receive(ctx context.Context, to io.Writer) error {
	stream, err := n.admin.Backup(ctx, &pb.BackupRequest{})
	if err != nil {
		return readError(err)
	}
	out := bufio.NewWriter(to)
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out.Flush()
		}
		if err != nil {
			return readError(err)
		}
		if _, err := out.Write(part.GetData()); err != nil {
			return err
		}
	}
}
