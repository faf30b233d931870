package drill

import (
	"context"
	"syscall"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// The drills about time.

// shiftClocks runs failovers with wall clocks that differ by two hours and step.
// A real clock cannot be shifted for one process alone, so its nodes are built
// with a patch that does it (shifted-clocks). That wall time is read in one package only, for logs
// and display, is checked by internal/archtest; the same stories in virtual time
// by the simulation.
func shiftClocks(ctx context.Context, e *Env) error {
	ep := episode{work: &work{}}
	ep.nodeArgs = func(i int) []string {
		return []string{"--shift-wall=" + []string{"1h", "-1h"}[i%2], "--step-wall=10m"}
	}
	return e.rounds(ctx, ep, func(ctx context.Context) error {
		primary, term, _, err := e.readyPair(ctx)
		if err != nil {
			return err
		}
		if err := e.letWork(ctx); err != nil {
			return err
		}
		if _, _, err := e.failover(ctx, primary, term, "SIGKILL of", func() error { primary.Kill(); return nil }); err != nil {
			return err
		}
		return e.restart(ctx, primary)
	})
}

// stallLone stops a lone master for longer than its clients live without it.
func stallLone(ctx context.Context, e *Env) error {
	const clientTTL = 10 * time.Second
	stall := clientTTL + 5*time.Second
	ep := episode{shape: shape{lone: true, nodes: 1, args: []string{"--client_ttl=" + clientTTL.String()}}, work: &work{}}
	return e.rounds(ctx, ep, func(ctx context.Context) error {
		n := e.cluster.nodes[0]
		if err := e.letWork(ctx); err != nil {
			return err
		}
		before, err := n.Admin.ListSegments(ctx, &pb.ListSegmentsRequest{})
		if err != nil {
			return err
		}
		e.load.Mark("SIGSTOP of the lone master")
		if err := n.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		if err := wait(ctx, stall); err != nil {
			return err
		}
		e.load.Mark("SIGCONT of the lone master")
		if err := n.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		// Whatever it does to its clients it does within a few ticks; the clients
		// get many answers meanwhile.
		if err := e.load.answers(ctx, 4*answersPerWait); err != nil {
			return err
		}
		after, err := n.Admin.ListSegments(ctx, &pb.ListSegmentsRequest{})
		if err != nil {
			return err
		}
		same := sameSegments(before, after)
		e.result.check("no client expired", same, "%d segments were mounted before a stall of %v, %d after it, the same: %t",
			len(before.GetSegments()), stall, len(after.GetSegments()), same)
		e.did("stopped the lone master for %v; %d segments before, %d after", stall, len(before.GetSegments()), len(after.GetSegments()))
		return nil
	})
}

// sameSegments reports whether the same mounts are there, in the same order: one
// that was lost and mounted again comes last.
func sameSegments(a, b *pb.ListSegmentsResponse) bool {
	if len(a.GetSegments()) != len(b.GetSegments()) {
		return false
	}
	for i, s := range a.GetSegments() {
		if s.GetSegment().GetId() != b.GetSegments()[i].GetSegment().GetId() {
			return false
		}
	}
	return true
}
