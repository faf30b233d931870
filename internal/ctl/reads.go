package ctl

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// A getResult is what `masterctl get` prints.
type getResult struct {
	reign
	Objects []objectResult `json:"objects"` // in the order of the keys
}

func (g *globals) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get KEY...",
		Short: "Print where objects can be read",
		Long: `Prints where the bytes of objects can be read, and for how long the lease that
comes with the answer holds. Like every read it extends the objects' leases.`,
		Args: arguments(1, -1, "at least one KEY"),
		RunE: func(cmd *cobra.Command, keys []string) error {
			return g.call(cmd, writer(), func(ctx context.Context, s *session) error {
				objects, err := s.BatchGetReplicaList(ctx, keys)
				if err != nil {
					return err
				}
				failed := &failedItems{}
				result := getResult{reign: s.reign()}
				for i := range objects {
					o := &objects[i]
					failed.add(keys[i], o.Err)
					result.Objects = append(result.Objects, found(keys[i], &o.Object, o.Err))
				}
				if err := g.print(cmd, result, func(w io.Writer) { objectTable(w, result.Objects) }); err != nil {
					return err
				}
				return failed.err()
			})
		},
	}
}

// An existsResult is what `masterctl exists` prints.
type existsResult struct {
	reign
	Keys []existenceResult `json:"keys"` // in the order of the keys
}

type existenceResult struct {
	Key    string       `json:"key"`
	Exists bool         `json:"exists"`
	Error  *faultResult `json:"error,omitempty"`
}

func (g *globals) existsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "exists KEY...",
		Short: "Print whether objects can be read",
		Long: `Prints whether objects can be read. A missing object is no error, so it exits
with 0. Like every read it extends the leases of those that exist.`,
		Args: arguments(1, -1, "at least one KEY"),
		RunE: func(cmd *cobra.Command, keys []string) error {
			return g.call(cmd, writer(), func(ctx context.Context, s *session) error {
				answers, err := s.BatchExistKey(ctx, keys)
				if err != nil {
					return err
				}
				failed := &failedItems{}
				result := existsResult{reign: s.reign()}
				for i, a := range answers {
					failed.add(keys[i], a.Err)
					result.Keys = append(result.Keys, existenceResult{keys[i], a.Exists, faultOf(a.Err)})
				}
				if err := g.print(cmd, result, func(w io.Writer) { existenceTable(w, result.Keys) }); err != nil {
					return err
				}
				return failed.err()
			})
		},
	}
}

func existenceTable(w io.Writer, keys []existenceResult) {
	t := newTable(w, "KEY", "EXISTS")
	for _, k := range keys {
		if k.Error == nil {
			t.row(k.Key, fmt.Sprint(k.Exists))
		}
	}
	t.end()
}
