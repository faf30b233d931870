package ctl

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/cli"
)

func (f *Flags) memberCommand() *cobra.Command {
	list := f.memberListCommand()
	cmd := &cobra.Command{Use: "member", Short: "Print the members of the etcd that the nodes run themselves; replace and remove some", RunE: list.RunE}
	return cli.Group(cmd, list,
		f.memberGoesCommand("replace --yes NAME", "Let a node join again that has lost the data of its member",
			true, "start its node with --join and an empty etcd directory, or leave it waiting: it joins in place of the old member, and votes when it has caught up"),
		f.memberGoesCommand("remove --yes NAME", "Take a member away for good whose node does not come back", false,
			"its node must not be started again, neither with its data nor with --cluster-init; if nodes wait for the state that it held, see masterctl forget"))
}

// A memberResult is a line of `masterctl member list`.
type memberResult struct {
	Name    string `json:"name"`
	PeerURL string `json:"peer_url"`
	Votes   bool   `json:"votes"`
	Alive   bool   `json:"alive"`
	Witness bool   `json:"witness,omitempty"` // its node runs, and holds no metadata
}

func (f *Flags) memberListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Print the members, whether they vote, and whether their nodes run",
		Args:  cli.NoArguments,
		RunE: f.withNodes(func(_ context.Context, cmd *cobra.Command, all nodes) error {
			list := []memberResult{}
			for _, m := range all.members() {
				list = append(list, memberResult{m.GetName(), m.GetPeerUrl(), !m.GetLearner(), m.GetAlive(), m.GetWitness() != nil})
			}
			if len(list) == 0 {
				return errs.New(errs.Unavailable, "member", "no node knows members: the nodes do not run etcd themselves, or their own members do not answer")
			}
			return f.Print(cmd, list, func(w io.Writer) {
				t := cli.NewTable(w, "NAME", "PEER URL", "VOTES", "NODE RUNS")
				for _, m := range list {
					runs := fmt.Sprint(m.Alive)
					if m.Witness {
						runs += " (witness)"
					}
					t.Row(cli.Or(m.Name), m.PeerURL, fmt.Sprint(m.Votes), runs)
				}
				t.End()
			})
		}),
	}
}

// A memberGoes is what `masterctl member replace` and `remove` print.
type memberGoes struct {
	Name string `json:"name"`
	Was  bool   `json:"was_member"` // true: there is no output for a name that is no member's
}

func (f *Flags) memberGoesCommand(use, short string, replace bool, then string) *cobra.Command {
	done := "is no member any more"
	if replace {
		done = "may be replaced"
	}
	return confirmed(&cobra.Command{
		Use:   use,
		Short: short,
		Long: short + `. NAME is that of the node, or the peer URL of a member that
has never started. It is refused while that node runs, and if too few of the other members do.
It fails if there is no such member, and names those that there are. So it does for one
that was removed already: where an answer was lost, see masterctl member list.`,
		Args:              cli.Arguments(1, 1, "one NAME"),
		ValidArgsFunction: f.completeMembers,
		RunE: func(cmd *cobra.Command, names []string) error {
			if names[0] == "" {
				return cli.Misusef("the NAME is empty")
			}
			return f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
				if _, err := all.best().admin.RemoveMember(ctx, &pb.RemoveMemberRequest{Name: names[0], Replace: replace}); err != nil {
					return adminError(err)
				}
				return f.Print(cmd, memberGoes{names[0], true}, func(w io.Writer) { fmt.Fprintf(w, "%s %s; %s\n", cli.Printable(names[0]), done, then) })
			})(cmd, names)
		},
	}, "the data of this member are given up")
}
