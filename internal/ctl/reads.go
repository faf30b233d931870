package ctl

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/cli"
)

// keysCommand completes a command on any number of keys. The call returns the
// result for all keys and a function that prints it for people; keys that
// failed are printed as the command's error.
func (f *Flags) keysCommand(cmd *cobra.Command, call func(context.Context, *session, []string, *failedItems) (any, func(io.Writer), error)) *cobra.Command {
	cmd.Args = cli.Arguments(1, -1, "at least one KEY")
	cmd.RunE = func(cmd *cobra.Command, keys []string) error {
		return f.call(cmd, writer(), func(ctx context.Context, s *session) error {
			failed := &failedItems{}
			result, people, err := call(ctx, s, keys, failed)
			if err != nil {
				return err
			}
			if err := f.Print(cmd, result, people); err != nil {
				return err
			}
			if len(failed.errors) > 0 {
				return failed
			}
			return nil
		})
	}
	return cmd
}

// A getResult is what `masterctl get` prints.
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

// An existsResult is what `masterctl exists` prints.
type existsResult struct {
	term
	Keys []existenceResult `json:"keys"` // in the order of the keys
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
		result := existsResult{term: s.term()}
		for i, a := range answers {
			result.Keys = append(result.Keys, existenceResult{keys[i], a.Exists, failed.add(keys[i], a.Err)})
		}
		return result, func(w io.Writer) { existenceTable(w, result.Keys) }, err
	})
}

func existenceTable(w io.Writer, keys []existenceResult) {
	t := cli.NewTable(w, "KEY", "EXISTS")
	for _, k := range keys {
		if k.Error == nil {
			t.Row(k.Key, fmt.Sprint(k.Exists))
		}
	}
	t.End()
}
