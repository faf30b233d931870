package ctl

import (
	"context"
	"fmt"
	"io"
	"slices"
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

	// Served is for how long the node served, 0 while it lasts or if that is not known. It is
	// derived if the node recorded no end, such as one that was killed: from when the next term
	// began, less the gap before that; then it is the longest possible if that gap is the shortest.
	Served        uint64 `json:"served_ms,omitempty"`
	ServedDerived bool   `json:"served_derived,omitempty"`
	ServedAtMost  bool   `json:"served_at_most,omitempty"`

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
nobody in between and went on, why the term began and how it ended. Times are those of
the nodes' wall clocks.

A time without a primary is what the next primary measured, from the last answer or
commit of the one before until it served itself. masterctl handover prints some
milliseconds more: what the one before measured, until it saw the next one serve. "At
least" stands before it if the next primary had not seen the one before commit, as where
all nodes had ended.

"About" or "at most" stands before how long a node served if it recorded no end, such as
one that was killed: it is counted until the time without a primary before the next term.`,
		Args: cli.NoArguments,
		RunE: f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
			h, err := all.best().admin.History(ctx, &pb.HistoryRequest{})
			if err != nil {
				return readError(err)
			}
			result := historyResult{termsOf(h)}
			return f.Print(cmd, result, func(w io.Writer) { historyTable(w, result.Terms) })
		}),
	}
}

// termsOf returns the terms of a history, with how long each was served in.
func termsOf(h *pb.HistoryResponse) []termResult {
	list := []termResult{}
	for _, t := range h.GetTerms() {
		list = append(list, termResult{
			Term: t.GetTerm(), NodeID: t.GetNodeId(), Began: t.GetBegan(), Why: t.GetWhy(), Gap: t.GetGapMs(), GapAtLeast: t.GetGapAtLeast(), Ended: t.GetEnded(), End: t.GetEnd(),
			Interruptions: t.GetInterruptions(), Interrupted: t.GetInterruptedMs(), LongestInterruption: t.GetLongestInterruptionMs(),
		})
	}
	var next *termResult // the next term in which a node served
	for i := range slices.Backward(list) {
		r := &list[i]
		began, ok := wallTimeOf(r.Began)
		if !ok {
			continue // nobody served in it
		}
		until, ended := wallTimeOf(r.Ended)
		if !ended && next != nil {
			until, ended = wallTimeOf(next.Began)
			until = until.Add(-cli.Millis(next.Gap))
			r.ServedDerived, r.ServedAtMost = true, next.GapAtLeast
		}
		if ended {
			r.Served = uint64(max(0, until.Sub(began).Milliseconds()))
		}
		next = r
	}
	return list
}

func wallTimeOf(text string) (at time.Time, ok bool) {
	at, err := time.Parse(time.RFC3339Nano, text)
	return at, err == nil
}

func historyTable(w io.Writer, terms []termResult) {
	t := cli.NewTable(w, "TERM", "NODE", "SERVED FROM", "FOR", "NO PRIMARY BEFORE", "INTERRUPTED", "WHY IT BEGAN", "HOW IT ENDED")
	for i := range terms {
		r := &terms[i]
		began := "-"
		if from, ok := wallTimeOf(r.Began); ok {
			began = from.Format(time.RFC3339)
		}
		gap := cli.Millis(r.Gap).String()
		if r.GapAtLeast {
			gap = "at least " + gap
		}
		t.Row(fmt.Sprint(r.Term), cli.Or(r.NodeID), began, r.lasted(), gap, interrupted(r), cli.Or(r.Why), cli.Or(r.End))
	}
	t.End()
}

// lasted is for how long the node served, for people.
func (r *termResult) lasted() string {
	switch served := cli.Millis(r.Served); {
	case r.Served == 0:
		return "-"
	case r.ServedAtMost:
		return fmt.Sprintf("at most %v", served)
	case r.ServedDerived:
		return fmt.Sprintf("about %v", served)
	default:
		return served.String()
	}
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
