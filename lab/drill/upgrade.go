package drill

import (
	"context"
	"slices"
	"time"

	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/promote"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// lastRelease is the last commit before heads carried histories and serve windows.
const lastRelease = "1af5d025fd64b4e102ffb294c9c072ead06bfec4"

// upgrade restarts one node after the other, with its data, as this program instead of the last
// release. Each node is primary before and after its restart. So an upgraded primary has
// followers of the old release, which must be able to apply all that it writes and to become
// primary again. Each round begins with nodes of the last release.
func upgrade(ctx context.Context, e *Env) {
	ep := episode{nodes: 3, once: true, work: &work{old: true}}
	ep.Old = e.old
	e.rounds(ctx, ep, func(ctx context.Context) {
		for _, n := range e.cluster.Nodes {
			e.lead(ctx, n)
			e.replace(ctx, n)
			e.lead(ctx, n)
		}
		e.allFollow(ctx)
		until(ctx, time.Minute, "heads are in the new format", func(ctx context.Context) (bool, error) {
			at, err := e.cluster.Head(ctx)
			return at.Head.History != "" && at.Head.Window > 0, err
		})
		want := int64((e.result.Rounds + 1) * len(e.cluster.Nodes))
		e.result.check("each round upgrades", e.result.Counts["upgraded"] == want, "%d nodes were of the last release before their restart, want %d", e.result.Counts["upgraded"], want)
		e.did("restarted all three nodes; handovers cost %d ms at most", outagesOf(e.result.outages).Max)
	})
}

// replace stops the primary with SIGTERM, and starts it again as this program.
func (e *Env) replace(ctx context.Context, n *cluster.Node) {
	before, since := e.load.failed(), e.load.Now()
	e.load.Mark("SIGTERM of " + n.Name)
	do(n.Terminate())
	if err := n.Wait(30 * time.Second); err != nil {
		e.result.check("ends in order", false, "after SIGTERM: %v", err)
	}
	if n.Program != "" {
		e.result.Counts["upgraded"]++
	}
	n.Program = ""
	do(e.cluster.StartNode(ctx, n, promote.Standby))
	e.load.answers(ctx, answersPerWait)
	e.handedOver(e.load.failed() - before)
	e.result.outages = append(e.result.outages, e.load.Outage(since))
}

// lead hands over to a node, unless it is primary, and waits until all others follow it while
// clients work.
func (e *Env) lead(ctx context.Context, n *cluster.Node) {
	e.allFollow(ctx)
	if primary, term := e.primary(ctx, 0); primary != n {
		_, err := primary.Until(ctx, "knows that "+n.Name+" could take over", func(s *pb.StatusResponse) bool {
			return slices.ContainsFunc(s.GetNodes(), func(other *pb.Node) bool { return other.GetPromotable() && other.GetNodeId() == n.Name })
		})
		do(err)
		before := e.load.failed()
		next, _ := e.failover(ctx, primary, term, "handover to "+n.Name+" by", func() error {
			_, err := primary.Admin.Handover(ctx, &pb.HandoverRequest{Term: term, TargetNodeId: n.Name})
			return err
		})
		e.result.check("the heir leads", next == n, "%s leads, and not %s", next.Name, n.Name)
		e.handedOver(e.load.failed() - before)
	}
	e.letWork(ctx)
	e.allFollow(ctx)
}

// allFollow waits until one node serves and all others could take over.
func (e *Env) allFollow(ctx context.Context) {
	err := e.cluster.Settled(ctx)
	e.result.check("all nodes follow", err == nil, "%v", err)
	do(err)
}
