package drill

import (
	"context"
	"slices"
	"syscall"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/clock"
)

// The drills about time.

// shiftClocks runs failovers with wall clocks that differ by two hours and step. A
// real clock cannot be shifted for one process alone, so the nodes are built with a
// patch that does it (shifted-clocks). The nodes of the simulation share one correct wall
// clock instead; there the clocks that measure deadlines differ in rate. Package
// docs/archtest checks that only internal/clock reads the time.
func shiftClocks(ctx context.Context, e *Env) {
	ep := episode{work: &work{}}
	ep.NodeArgs = func(i int) []string {
		return []string{"--shift-wall=" + []string{"1h", "-1h"}[i%2], "--step-wall=10m"}
	}
	e.rounds(ctx, ep, func(ctx context.Context) {
		e.ready(ctx)
		do(clock.Sleep(ctx, stepAfter)) // under load
		e.killAndRestart(ctx)
		e.gapIsShort(ctx)
	})
}

// gapIsShort checks that the last term began after a gap that a round has room for, whatever the
// wall clocks say: its node watched.
func (e *Env) gapIsShort(ctx context.Context) {
	p := e.working(ctx)
	terms := must(p.primary.Admin.History(ctx, &pb.HistoryRequest{})).GetTerms()
	gap := time.Duration(terms[len(terms)-1].GetGapMs()) * time.Millisecond
	e.result.check("the gap is right", gap < time.Minute, "the history says %v", gap)
}

// stepAfter is a little longer than a node runs until its wall clock steps.
const stepAfter = 3500 * time.Millisecond

// stallLone stops a lone master for longer than the client TTL.
func stallLone(ctx context.Context, e *Env) {
	const clientTTL = 10 * time.Second
	stall := clientTTL + 5*time.Second
	ep := episode{lone: true, nodes: 1, work: &work{}}
	ep.Args = []string{"--client_ttl=" + clientTTL.String()}
	e.rounds(ctx, ep, func(ctx context.Context) {
		n := e.cluster.Nodes[0]
		mounts := func() (ids []string) {
			for _, s := range must(n.Admin.ListSegments(ctx, &pb.ListSegmentsRequest{})).GetSegments() {
				ids = append(ids, s.GetSegment().GetId())
			}
			return ids
		}
		e.letWork(ctx)
		before := mounts()
		e.load.Mark("SIGSTOP of the lone master")
		do(n.Signal(syscall.SIGSTOP))
		do(clock.Sleep(ctx, stall))
		e.load.Mark("SIGCONT of the lone master")
		do(n.Signal(syscall.SIGCONT))
		// If the master expires clients, it does so within a few ticks. In that time the
		// clients get many answers.
		e.load.answers(ctx, 4*answersPerWait)
		after := mounts()
		same := slices.Equal(before, after) // a segment that was lost and mounted again is last in the list
		e.result.check("no client expired", same, "%d segments were mounted before a stall of %v, %d after it, the same: %t", len(before), stall, len(after), same)
		e.did("stopped the lone master for %v; %d segments before, %d after", stall, len(before), len(after))
	})
}
