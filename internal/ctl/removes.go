package ctl

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/client"
)

const forceUsage = "remove also what a reader holds a lease on; the memory is given to nobody before that lease has ended"

func (g *globals) removeCommands() []*cobra.Command {
	return []*cobra.Command{g.removeCommand(), g.removeRegexCommand(), g.removeAllCommand()}
}

// A removeResult is what `masterctl rm` prints.
type removeResult struct {
	reign
	Keys []removalResult `json:"keys"` // in the order of the keys
}

type removalResult struct {
	Key     string       `json:"key"`
	Removed bool         `json:"removed"`
	Error   *faultResult `json:"error,omitempty"`
}

func (g *globals) removeCommand() *cobra.Command {
	var how client.Removal
	cmd := &cobra.Command{
		Use:   "rm KEY...",
		Short: "Remove objects",
		Args:  arguments(1, -1, "at least one KEY"),
		RunE: func(cmd *cobra.Command, keys []string) error {
			return g.call(cmd, writer(), func(ctx context.Context, s *session) error {
				outcomes, err := s.BatchRemove(ctx, keys, how)
				if err != nil {
					return err
				}
				failed := &failedItems{}
				result := removeResult{reign: s.reign()}
				for i, err := range outcomes {
					failed.add(keys[i], err)
					result.Keys = append(result.Keys, removalResult{keys[i], err == nil, faultOf(err)})
				}
				err = g.print(cmd, result, func(w io.Writer) {
					for _, k := range result.Keys {
						if k.Removed {
							fmt.Fprintf(w, "removed %s\n", k.Key)
						}
					}
				})
				if err != nil {
					return err
				}
				return failed.err()
			})
		},
	}
	cmd.Flags().BoolVar(&how.Force, "force", false, forceUsage)
	return cmd
}

// A removedResult is what removing many objects prints.
type removedResult struct {
	reign
	Removed uint64 `json:"removed"`
}

func (g *globals) removeRegexCommand() *cobra.Command {
	var how client.Removal
	cmd := &cobra.Command{
		Use:   "rm-regex REGEX",
		Short: "Remove the objects in whose keys a regular expression (Go's syntax) is found",
		Long: `Removes the objects in whose keys a regular expression (Go's syntax) is found.
It passes over what rm would refuse: leased objects, unless forced, and those
that are being written.`,
		Args: arguments(1, 1, "one REGEX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return usagef("an empty pattern matches every key; rm-all --yes removes all")
			}
			return g.removeMany(cmd, func(ctx context.Context, s *session) (uint64, error) { return s.RemoveByRegex(ctx, args[0], how) })
		},
	}
	cmd.Flags().BoolVar(&how.Force, "force", false, forceUsage)
	return cmd
}

func (g *globals) removeAllCommand() *cobra.Command {
	var how client.Removal
	yes := false
	cmd := &cobra.Command{
		Use:   "rm-all --yes",
		Short: "Remove all objects",
		Long: `Removes all objects. It passes over what rm would refuse: leased objects, unless
forced, and those that are being written.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return usagef("this removes all objects of the cluster; if that is meant, add --yes")
			}
			return g.removeMany(cmd, func(ctx context.Context, s *session) (uint64, error) { return s.RemoveAll(ctx, how) })
		},
	}
	cmd.Flags().BoolVar(&how.Force, "force", false, forceUsage)
	cmd.Flags().BoolVar(&yes, "yes", false, "it is meant")
	return cmd
}

func (g *globals) removeMany(cmd *cobra.Command, remove func(context.Context, *session) (uint64, error)) error {
	return g.call(cmd, writer(), func(ctx context.Context, s *session) error {
		n, err := remove(ctx, s)
		if err != nil {
			return err
		}
		return g.print(cmd, removedResult{s.reign(), n}, func(w io.Writer) { fmt.Fprintf(w, "removed %s object(s)\n", count(n)) })
	})
}
