package ctl

import (
	"context"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/cli"
)

// keysCommand completes a command on any number of keys. call returns the result for all
// keys and a function that prints it for people. The keys that failed become the command's
// error.
func (f *Flags) keysCommand(cmd *cobra.Command, call func(context.Context, *session, []string, *failedItems) (any, func(io.Writer), error)) *cobra.Command {
	cmd.Args = cli.Arguments(1, -1, "at least one KEY")
	cmd.ValidArgsFunction = f.completeKeys
	cmd.RunE = func(cmd *cobra.Command, keys []string) error {
		return f.call(cmd, uuid.Nil, func(ctx context.Context, s *session) error {
			failed := &failedItems{}
			result, people, err := call(ctx, s, keys, failed)
			if err != nil {
				return err
			}
			if err := f.Print(cmd, result, people); err != nil || len(failed.errors) == 0 {
				return err
			}
			return failed
		})
	}
	return cmd
}

type getResult struct {
	term
	Objects []objectResult `json:"objects"` // in the order of the keys
}

func (f *Flags) getCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get KEY...",
		Short: "Print where objects can be read",
		Long: `Prints where the bytes of objects can be read, and for how long the lease that
comes with the answer holds. Like every read it extends the objects' leases.`,
	}
	return f.keysCommand(cmd, func(ctx context.Context, s *session, keys []string, failed *failedItems) (any, func(io.Writer), error) {
		objects, err := s.BatchGetReplicaList(ctx, keys)
		result := getResult{term: s.term()}
		for i := range objects {
			o := objectResult{Key: keys[i], Error: failed.add(keys[i], objects[i].Err)}
			if o.Error == nil {
				o = found(keys[i], &objects[i].Object)
			}
			result.Objects = append(result.Objects, o)
		}
		return result, func(w io.Writer) { objectTable(w, result.Objects) }, err
	})
}

// A keysResult is what `masterctl exists` and `masterctl rm` print.
type keysResult[R any] struct {
	term
	Keys []R `json:"keys"` // in the order of the keys
}

type existenceResult struct {
	Key    string       `json:"key"`
	Exists bool         `json:"exists"`
	Error  *faultResult `json:"error,omitempty"`
}

func (f *Flags) existsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exists KEY...",
		Short: "Print whether objects can be read",
		Long: `Prints whether objects can be read. A missing object is no error, so it exits
with 0. Like every read it extends the leases of those that exist.`,
	}
	return f.keysCommand(cmd, func(ctx context.Context, s *session, keys []string, failed *failedItems) (any, func(io.Writer), error) {
		answers, err := s.BatchExistKey(ctx, keys)
		result := keysResult[existenceResult]{term: s.term()}
		for i, a := range answers {
			result.Keys = append(result.Keys, existenceResult{keys[i], a.Exists, failed.add(keys[i], a.Err)})
		}
		people := func(w io.Writer) {
			t := cli.NewTable(w, "KEY", "EXISTS")
			for _, k := range result.Keys {
				if k.Error == nil {
					t.Row(cli.Key(k.Key), fmt.Sprint(k.Exists))
				}
			}
			t.End()
		}
		return result, people, err
	})
}

type removalResult struct {
	Key     string       `json:"key"`
	Removed bool         `json:"removed"`
	Error   *faultResult `json:"error,omitempty"`
}

func (f *Flags) removeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "rm KEY...", Short: "Remove objects", SuggestFor: []string{"remove", "delete", "del"}}
	how := removal(cmd)
	return f.keysCommand(cmd, func(ctx context.Context, s *session, keys []string, failed *failedItems) (any, func(io.Writer), error) {
		outcomes, err := s.BatchRemove(ctx, keys, *how)
		result := keysResult[removalResult]{term: s.term()}
		for i, err := range outcomes {
			result.Keys = append(result.Keys, removalResult{keys[i], err == nil, failed.add(keys[i], err)})
		}
		people := func(w io.Writer) {
			for _, k := range result.Keys {
				if k.Removed {
					fmt.Fprintf(w, "removed %s\n", cli.Key(k.Key))
				}
			}
		}
		return result, people, err
	})
}

func removal(cmd *cobra.Command) *client.Removal {
	how := &client.Removal{}
	cmd.Flags().BoolVar(&how.Force, "force", false, "also remove what a reader holds a lease on; its memory is reused only after that lease has ended")
	return how
}

func (f *Flags) removeRegexCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm-regex REGEX",
		Short: "Remove the objects whose keys contain a match of a regular expression (Go's syntax)",
		Long: `Removes the objects whose keys contain a match of a regular expression (Go's
syntax). It passes over what rm would refuse: leased objects, unless forced, and
those that are being written.

With --dry-run it only counts them and prints some of their keys. On a terminal it
does that first, and asks; elsewhere it needs --yes.`,
		Args: cli.Arguments(1, 1, "one REGEX"),
	}
	how := removal(cmd)
	sure := f.bindSure(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return cli.Misusef("an empty pattern matches every key; rm-all --yes removes all")
		}
		consequence := fmt.Sprintf("this removes every object whose key contains a match of %q", args[0])
		return sure.then(cmd, consequence, func() (matches, error) { return f.countMatches(cmd, args[0]) }, func() error {
			return f.removeMany(cmd, func(ctx context.Context, s *session) (client.RemovalResult, error) {
				return s.RemoveByRegex(ctx, args[0], *how)
			})
		})
	}
	return cmd
}

func (f *Flags) removeAllCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm-all",
		Short: "Remove all objects",
		Long: `Removes all objects, of all tenants unless --tenant names one. It passes over what
rm would refuse: leased objects, unless forced, and those that are being written.

With --dry-run it only counts them and prints some of their keys. On a terminal it
does that first, and asks; elsewhere it needs --yes.`,
		Args: cli.NoArguments,
	}
	how := removal(cmd)
	sure := f.bindSure(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.tenant == "" && cmd.Flags().Changed("tenant") {
			return cli.Misusef("--tenant is empty; leave it out to remove the objects of all tenants")
		}
		const consequence = "this removes all objects of the cluster, or of the tenant that --tenant names"
		return sure.then(cmd, consequence, func() (matches, error) { return f.countAll(cmd) }, func() error {
			return f.removeMany(cmd, func(ctx context.Context, s *session) (client.RemovalResult, error) {
				if f.tenant == "" && !f.Mooncake { // a call of Mooncake without a tenant covers all tenants
					return s.RemoveAllTenants(ctx, *how)
				}
				return s.RemoveAll(ctx, *how)
			})
		})
	}
	return cmd
}

// A removedResult is what removing many objects prints.
type removedResult struct {
	term
	Removed        uint64 `json:"removed"`
	KeptLeased     uint64 `json:"kept_leased"`
	KeptInProgress uint64 `json:"kept_in_progress"`
}

func (r *removedResult) print(w io.Writer) {
	fmt.Fprintf(w, "removed %s object(s)\n", cli.Count(r.Removed))
	if r.KeptLeased > 0 {
		fmt.Fprintf(w, "kept %s object(s) on which readers have leases (--force removes them)\n", cli.Count(r.KeptLeased))
	}
	if r.KeptInProgress > 0 {
		fmt.Fprintf(w, "kept %s object(s) that are being written, copied or moved\n", cli.Count(r.KeptInProgress))
	}
}

func (f *Flags) removeMany(cmd *cobra.Command, remove func(context.Context, *session) (client.RemovalResult, error)) error {
	return f.call(cmd, uuid.Nil, func(ctx context.Context, s *session) error {
		n, err := remove(ctx, s)
		if err != nil {
			return err
		}
		result := removedResult{s.term(), n.Removed, n.Leased, n.InProgress}
		return f.Print(cmd, result, result.print)
	})
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
