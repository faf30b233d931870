package ctl

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
)

// A forgetResult is what `masterctl forget` prints.
type forgetResult struct {
	NodeIDs []string `json:"node_ids"`
}

func (f *Flags) forgetCommand() *cobra.Command {
	return confirmed(&cobra.Command{
		Use:   "forget --yes NODE...",
		Short: "Give up what nodes hold that do not come back",
		Long: `Strikes nodes off the list of those that hold the whole state. A cluster in which no
node holds the state waits for them before it starts empty. It is refused while such
a node runs.`,
		Args: cli.Arguments(1, -1, "at least one NODE"),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
				for _, id := range ids {
					if _, err := all.best().admin.Forget(ctx, &pb.ForgetRequest{NodeId: id}); err != nil {
						return adminError(err)
					}
				}
				return f.Print(cmd, forgetResult{ids}, func(w io.Writer) {
					fmt.Fprintf(w, "nobody waits for %s any more\n", strings.Join(ids, ", "))
				})
			})(cmd, ids)
		},
	}, "this gives up what these nodes hold")
}
