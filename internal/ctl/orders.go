package ctl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/cli"
)

type handoverResult struct {
	From     string `json:"from_node_id"`
	To       string `json:"to_node_id"`
	Address  string `json:"to_address"`
	Duration uint64 `json:"duration_ms"` // from the last answers of the former primary until it saw the next one serve
}

func (f *Flags) handoverCommand() *cobra.Command {
	to, yes := "", false
	cmd := &cobra.Command{
		Use:   "handover",
		Short: "Make a standby the primary, without waiting for a timeout",
		Long: `Makes the primary hand over to a standby that could take over now: to the one that
is named with --to, or to the one that is closest behind. Settings that this changes
are printed first. If there are any, it asks on a terminal; elsewhere it needs --yes.`,
		Args: cli.NoArguments,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("to") && to == "" {
			return cli.Misusef("--to is empty; leave it out for the node that is closest behind")
		}
		var shown *handoverPlan
		// It asks with no connection and no time limit, so the nodes are asked again after it.
		err := f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
			plan, err := all.planHandover(to)
			if err != nil {
				return err
			}
			for _, line := range plan.changes {
				cmd.PrintErrln(line)
			}
			if !yes && len(plan.changes) > 0 {
				shown = plan
				return nil
			}
			return f.handOver(ctx, cmd, plan)
		})(cmd, args)
		if err != nil || shown == nil {
			return err
		}
		if !canAsk(cmd) {
			return cli.Misusef("this handover changes settings; give all nodes the same, or confirm with --yes")
		}
		if err := ask(cmd, "Hand over?", "nothing was handed over"); err != nil {
			return err
		}
		return f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
			plan, err := all.planHandover(to)
			if err == nil && (plan.term != shown.term || !slices.Equal(plan.changes, shown.changes)) {
				err = errs.New(errs.Unavailable, "Handover", "the term or what would change is no longer as shown, so nothing was handed over; try again")
			}
			if err != nil {
				return err
			}
			return f.handOver(ctx, cmd, plan)
		})(cmd, args)
	}
	cmd.Flags().StringVar(&to, "to", "", "node that takes over; none means the one closest behind")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	completeFlag(cmd, "to", f.completeStandbys)
	return cmd
}

// A handoverPlan is a handover that may be ordered, with what it would change.
type handoverPlan struct {
	primary *node
	term    uint64 // that it would end
	to      string // empty for the node that is closest behind
	changes []string
}

// planHandover returns the handover to a node, or without an id to any that could take over.
func (ns nodes) planHandover(to string) (*handoverPlan, error) {
	primary := ns.primary()
	if primary == nil {
		return nil, errs.New(errs.NotLeader, "Handover", "no node serves, so none can hand over")
	}
	plan := &handoverPlan{primary: primary, term: primary.status.GetHeader().GetTerm(), to: to}
	for _, n := range primary.status.GetNodes() {
		if changes := n.GetTakeoverChanges(); len(changes) > 0 && (n.GetNodeId() == to || to == "" && n.GetPromotable()) {
			plan.changes = append(plan.changes, fmt.Sprintf("if %s takes over: %s", cli.Printable(n.GetNodeId()), cli.Printable(strings.Join(changes, "; "))))
		}
	}
	return plan, nil
}

func (f *Flags) handOver(ctx context.Context, cmd *cobra.Command, plan *handoverPlan) error {
	h, err := plan.primary.admin.Handover(ctx, &pb.HandoverRequest{Term: plan.term, TargetNodeId: plan.to})
	if err != nil {
		return adminError(err)
	}
	result := handoverResult{plan.primary.id, h.GetLeaderNodeId(), h.GetLeaderAddress(), h.GetDurationMs()}
	return f.Print(cmd, result, func(w io.Writer) {
		fmt.Fprintf(w, "%[1]s has handed over to %[2]s at %[3]s; no node served for %[4]d ms, as %[1]s measured until it saw %[2]s serve (masterctl history has what %[2]s measured)\n",
			cli.Printable(result.From), cli.Printable(result.To), cli.Printable(result.Address), result.Duration)
	})
}

type startEmptyResult struct {
	NodeID string `json:"node_id"`
	Term   uint64 `json:"term"`
}

func (f *Flags) startEmptyCommand() *cobra.Command {
	id, noWriters := "", false
	cmd := &cobra.Command{
		Use:   "start-empty --yes",
		Short: "Discard the cache and start over, when no node with a complete state is left",
		Long: `Makes a node the primary of a cluster in which no node has a complete state. It
starts empty: everything cached is lost, and clients mount their memory again.
It is refused while a primary or a node that could take over exists, and while a node
that holds the whole state is away (see masterctl forget).

An earlier writer may still write to memory that is mounted again. So that memory is
given out only when its put has timed out (put_start_release_timeout_sec,
10 minutes). If you know that no such writer is left, add --no-writers: then it is
given out after the lease TTL.`,
		Args: cli.NoArguments,
		RunE: f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
			n, err := all.choose(id)
			if err != nil {
				return err
			}
			begun, err := n.admin.StartEmpty(ctx, &pb.StartEmptyRequest{Term: n.status.GetJournal().GetHeadTerm(), NoWriters: noWriters})
			if err != nil {
				return adminError(err)
			}
			result := startEmptyResult{n.id, begun.GetHeader().GetTerm()}
			return f.Print(cmd, result, func(w io.Writer) {
				fmt.Fprintf(w, "%s has started empty in term %d\n", cli.Printable(result.NodeID), result.Term)
			})
		}),
	}
	cmd.Flags().BoolVar(&noWriters, "no-writers", false, "no earlier writer writes any more")
	cmd.Flags().StringVar(&id, "node", "", "node that becomes the primary; needed if several answer")
	completeFlag(cmd, "node", f.completeNodes)
	return confirmed(cmd, "this discards everything that is cached")
}

// A pauseResult is what `masterctl pause` and `masterctl resume` print.
type pauseResult struct {
	PausedMillis int64 `json:"paused_for_ms"` // from now on; 0 if takeover is not paused
}

func (f *Flags) pauseCommand() *cobra.Command {
	lasts := time.Hour
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Pause automatic takeover for a time",
		Long: `Until the time is over, or until masterctl resume, no node deposes the primary, and
none takes over from a primary that is gone, except that primary itself when it is
back. masterctl handover works as ever. Status shows the pause as a warning.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lasts < time.Second {
				return cli.Misusef("--for is %v: it must be 1s at least", lasts)
			}
			return f.pauseFor(cmd, lasts, "automatic takeover is paused for "+cli.Days(lasts))
		},
	}
	cmd.Flags().DurationVar(&lasts, "for", lasts, "how long, up to 24h")
	return cmd
}

func (f *Flags) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "End a pause of automatic takeover",
		Args:  cli.NoArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.pauseFor(cmd, 0, "automatic takeover goes on") },
	}
}

// pauseFor pauses automatic takeover; for 0 it ends a pause.
func (f *Flags) pauseFor(cmd *cobra.Command, d time.Duration, says string) error {
	return f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
		if _, err := all.best().admin.PauseTakeover(ctx, &pb.PauseTakeoverRequest{ForMs: uint64(d.Milliseconds())}); err != nil {
			return adminError(err)
		}
		return f.Print(cmd, pauseResult{d.Milliseconds()}, func(w io.Writer) { fmt.Fprintln(w, says) })
	})(cmd, nil)
}

type forgetResult struct {
	NodeIDs   []string `json:"node_ids"`             // struck off
	NotListed []string `json:"not_listed,omitempty"` // each of them failed
}

func (f *Flags) forgetCommand() *cobra.Command {
	return confirmed(&cobra.Command{
		Use:   "forget --yes NODE...",
		Short: "Give up what nodes hold that do not come back",
		Long: `Strikes nodes off the list of those that hold the whole state. A cluster in which no
node holds the state waits for them before it starts empty. It is refused for a node
that runs, and for one that is not listed, with the ids of those that are; the others
are struck off all the same. A node that was struck off is listed no more: where an
answer was lost, a second run says so.`,
		Args:              cli.Arguments(1, -1, "at least one NODE"),
		ValidArgsFunction: f.completeNodes,
		RunE: func(cmd *cobra.Command, ids []string) error {
			if slices.Contains(ids, "") {
				return cli.Misusef("a NODE is empty")
			}
			return f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
				result, failed := forgetResult{NodeIDs: []string{}}, &failedItems{}
				for _, id := range ids {
					result.add(id, all.best().forget(ctx, id), failed)
				}
				if err := f.Print(cmd, result, result.print); err != nil || len(failed.errors) == 0 {
					return err
				}
				return failed
			})(cmd, ids)
		},
	}, "this gives up what these nodes hold")
}

// forget strikes the node with an id off the list of complete nodes.
func (n *node) forget(ctx context.Context, id string) error {
	if _, err := n.admin.Forget(ctx, &pb.ForgetRequest{NodeId: id}); err != nil {
		return adminError(err)
	}
	return nil
}

func (r *forgetResult) add(id string, err error, failed *failedItems) {
	if errs.KindOf(err) == errs.InvalidParams { // the only reason for it
		r.NotListed = append(r.NotListed, id)
	} else if err == nil {
		r.NodeIDs = append(r.NodeIDs, id)
	}
	failed.add(id, err)
}

func (r *forgetResult) print(w io.Writer) {
	if len(r.NodeIDs) > 0 {
		fmt.Fprintf(w, "nobody waits for %s any more\n", joined(r.NodeIDs))
	}
}
