package ctl

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
)

type historyResult struct {
	Terms []termResult `json:"terms"` // oldest first
}

type termResult struct {
	Term       uint64 `json:"term"`
	NodeID     string `json:"node_id,omitempty"` // empty if no node served in the term
	Began      string `json:"began,omitempty"`   // wall time
	Why        string `json:"why"`
	Gap        uint64 `json:"gap_ms"` // how long no node answered before the term
	GapAtLeast bool   `json:"gap_at_least,omitempty"`
	Ended      string `json:"ended,omitempty"` // wall time; empty if it is not known
	End        string `json:"end,omitempty"`   // how it ended; empty while it lasts

	Interruptions       uint64 `json:"interruptions"`  // within the term
	Interrupted         uint64 `json:"interrupted_ms"` // in all
	LongestInterruption uint64 `json:"longest_interruption_ms"`
}

func (f *Flags) historyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "history",
		Short: "Print the last terms: who led, since when, why, and the time without a primary",
		Long: `Prints the last 100 terms that etcd has, oldest first: which node served, since when
and for how long, for how long no node had answered before, how often the node answered
nobody in between and went on, why the term began and how it ended. Times are those of the nodes' wall clocks. "At least" stands before a time
without a primary if the next one had not seen it commit, as where all nodes had ended.`,
		Args: cli.NoArguments,
		RunE: f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
			h, err := all.best().admin.History(ctx, &pb.HistoryRequest{})
			if err != nil {
				return readError(err)
			}
			result := historyResult{Terms: []termResult{}}
			for _, t := range h.GetTerms() {
				result.Terms = append(result.Terms, termResult{
					t.GetTerm(), t.GetNodeId(), t.GetBegan(), t.GetWhy(), t.GetGapMs(), t.GetGapAtLeast(), t.GetEnded(), t.GetEnd(),
					t.GetInterruptions(), t.GetInterruptedMs(), t.GetLongestInterruptionMs(),
				})
			}
			return f.Print(cmd, result, func(w io.Writer) { historyTable(w, result.Terms) })
		}),
	}
}

func historyTable(w io.Writer, terms []termResult) {
	t := cli.NewTable(w, "TERM", "NODE", "SERVED FROM", "FOR", "NO PRIMARY BEFORE", "INTERRUPTED", "WHY IT BEGAN", "HOW IT ENDED")
	for i := range terms {
		r := &terms[i]
		began, lasted := "-", "-"
		if from, err := time.Parse(time.RFC3339Nano, r.Began); err == nil {
			began = from.Format(time.RFC3339)
			if until, err := time.Parse(time.RFC3339Nano, r.Ended); err == nil {
				lasted = until.Sub(from).Round(time.Millisecond).String()
			}
		}
		gap := cli.Millis(r.Gap).String()
		if r.GapAtLeast {
			gap = "at least " + gap
		}
		t.Row(fmt.Sprint(r.Term), cli.Or(r.NodeID), began, lasted, gap, interrupted(r), cli.Or(r.Why), cli.Or(r.End))
	}
	t.End()
}

// interrupted describes how often a term was interrupted, and for how long.
func interrupted(r *termResult) string {
	switch total, longest := cli.Millis(r.Interrupted), cli.Millis(r.LongestInterruption); r.Interruptions {
	case 0:
		return "-"
	case 1:
		return fmt.Sprintf("once, %v", total)
	default:
		return fmt.Sprintf("%d times, %v, the longest %v", r.Interruptions, total, longest)
	}
}
