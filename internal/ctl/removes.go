package ctl

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/cli"
)

func bindForce(cmd *cobra.Command, how *client.Removal) {
	cmd.Flags().BoolVar(&how.Force, "force", false, "also remove what a reader holds a lease on; nobody gets the memory before that lease has ended")
}

// A removeResult is what `masterctl rm` prints.
type removeResult struct {
	term
	Keys []removalResult `json:"keys"` // in the order of the keys
}

type removalResult struct {
	Key     string       `json:"key"`
	Removed bool         `json:"removed"`
	Error   *faultResult `json:"error,omitempty"`
}

func (f *Flags) removeCommand() *cobra.Command {
	var how client.Removal
	cmd := &cobra.Command{Use: "rm KEY...", Short: "Remove objects"}
	bindForce(cmd, &how)
	return f.keysCommand(cmd, func(ctx context.Context, s *session, keys []string, failed *failedItems) (any, func(io.Writer), error) {
		outcomes, err := s.BatchRemove(ctx, keys, how)
		result := removeResult{term: s.term()}
		for i, err := range outcomes {
			result.Keys = append(result.Keys, removalResult{keys[i], err == nil, failed.add(keys[i], err)})
		}
		people := func(w io.Writer) {
			for _, k := range result.Keys {
				if k.Removed {
					fmt.Fprintf(w, "removed %s\n", k.Key)
				}
			}
		}
		return result, people, err
	})
}

func (f *Flags) removeRegexCommand() *cobra.Command {
	var how client.Removal
	cmd := &cobra.Command{
		Use:   "rm-regex REGEX",
		Short: "Remove the objects in whose keys a regular expression (Go's syntax) is found",
		Long: `Removes the objects in whose keys a regular expression (Go's syntax) is found.
It passes over what rm would refuse: leased objects, unless forced, and those
that are being written.`,
		Args: cli.Arguments(1, 1, "one REGEX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return cli.Misusef("an empty pattern matches every key; rm-all --yes removes all")
			}
			return f.removeMany(cmd, func(ctx context.Context, s *session) (uint64, error) { return s.RemoveByRegex(ctx, args[0], how) })
		},
	}
	bindForce(cmd, &how)
	return cmd
}

func (f *Flags) removeAllCommand() *cobra.Command {
	var how client.Removal
	cmd := &cobra.Command{
		Use:   "rm-all --yes",
		Short: "Remove all objects",
		Long: `Removes all objects. It passes over what rm would refuse: leased objects, unless
forced, and those that are being written.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.removeMany(cmd, func(ctx context.Context, s *session) (uint64, error) { return s.RemoveAll(ctx, how) })
		},
	}
	bindForce(cmd, &how)
	return confirmed(cmd, "this removes all objects of the cluster")
}

// confirmed makes a command refuse to run without --yes.
func confirmed(cmd *cobra.Command, consequence string) *cobra.Command {
	yes := cmd.Flags().Bool("yes", false, "confirm")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*yes {
			return cli.Misusef("%s; to confirm, add --yes", consequence)
		}
		return run(cmd, args)
	}
	return cmd
}

// A removedResult is what removing many objects prints.
type removedResult struct {
	term
	Removed uint64 `json:"removed"`
}

func (f *Flags) removeMany(cmd *cobra.Command, remove func(context.Context, *session) (uint64, error)) error {
	return f.call(cmd, writer(), func(ctx context.Context, s *session) error {
		n, err := remove(ctx, s)
		if err != nil {
			return err
		}
		return f.Print(cmd, removedResult{s.term(), n}, func(w io.Writer) { fmt.Fprintf(w, "removed %s object(s)\n", cli.Count(n)) })
	})
}
