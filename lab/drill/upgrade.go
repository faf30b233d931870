package drill

import (
	"context"
	"time"

	"github.com/understudy-store/understudy/promote"
)

// lastRelease is the last commit before heads carried histories and serve windows.
const lastRelease = "1af5d025fd64b4e102ffb294c9c072ead06bfec4"

// upgrade restarts one node after the other: from the last release to this program,
// with its data, and then again and again.
func upgrade(ctx context.Context, e *Env) {
	ep := episode{nodes: 3, work: &work{old: true}}
	ep.Old = e.old
	e.rounds(ctx, ep, func(ctx context.Context) {
		for _, n := range e.cluster.Nodes {
			e.allFollow(ctx)
			p := e.working(ctx)
			if n == p.primary {
				do(n.UntilHandover(ctx))
			}
			before := e.load.failed()
			since := e.load.Now()
			e.load.Mark("SIGTERM of " + n.Name)
			do(n.Terminate())
			if err := n.Wait(30 * time.Second); err != nil {
				e.result.check("ends in order", false, "after SIGTERM: %v", err)
			}
			n.Program = ""
			do(e.cluster.StartNode(ctx, n, promote.Standby))
			e.load.answers(ctx, answersPerWait)
			e.handedOver(e.load.failed() - before)
			if n == p.primary {
				e.result.outages = append(e.result.outages, e.load.Outage(since))
			}
		}
		e.allFollow(ctx)
		until(ctx, time.Minute, "heads are in the new format", func(ctx context.Context) (bool, error) {
			at, err := e.cluster.Head(ctx)
			return at.Head.History != "" && at.Head.Window > 0, err
		})
		e.did("restarted all three nodes; handovers cost %d ms at most", outagesOf(e.result.outages).Max)
	})
}

// allFollow waits until one node serves and all others could take over.
func (e *Env) allFollow(ctx context.Context) {
	err := e.cluster.Settled(ctx)
	e.result.check("all nodes follow", err == nil, "%v", err)
	do(err)
}
