package drill

import (
	"context"
	"time"

	"github.com/understudy-store/understudy/lab/cluster"
)

// restartLimit is how long a cluster of which everything was killed may take until
// somebody serves.
const restartLimit = 30 * time.Second

// everythingDies kills all nodes and etcd at once and starts them again, in any order.
func everythingDies(ctx context.Context, e *Env) {
	ep := episode{nodes: 3, work: &work{}}
	ep.LeaseTTL = 8 * e.SessionTTL
	e.rounds(ctx, ep, func(ctx context.Context) {
		e.working(ctx)
		e.restartAll(ctx, true)
		e.load.answers(ctx, answersPerWait)
	})
}

// restartAll kills all nodes, and etcd if asked to, and starts them again. All that
// was there must be there again: that the clients' histories say. Nobody gives an
// order to start empty.
func (e *Env) restartAll(ctx context.Context, etcd bool) {
	before := must(e.cluster.Head(ctx))
	e.load.Mark("SIGKILL of everything")
	for _, n := range e.cluster.Nodes {
		n.Kill()
	}
	if etcd {
		for _, m := range e.cluster.Members {
			m.Kill()
		}
		do(e.cluster.StartMembers(ctx, e.cluster.Members...))
	}
	began := e.Now()
	for _, i := range e.rng.Perm(len(e.cluster.Nodes)) {
		e.restart(ctx, e.cluster.Nodes[i])
	}
	var serving *cluster.Node
	err := cluster.Poll(ctx, restartLimit, "a node serves", func(ctx context.Context) (bool, error) {
		for _, n := range e.cluster.Nodes {
			if s, err := n.Status(ctx); err == nil && cluster.Serves(s) && !s.GetState().GetStartedEmpty() {
				serving = n
			}
		}
		return serving != nil, nil
	})
	e.result.check("everything is there again", err == nil, "%v after the start of all nodes none serves with the state that stood at %d: %v",
		restartLimit, before.Head.Seq, err)
	do(err)
	e.did("all nodes were killed at sequence %d, etcd: %t; %s serves %v after their start", before.Head.Seq, etcd, serving.Name,
		(e.Now() - began).Round(time.Millisecond))
}

// loseStates deletes the state files of all nodes.
func (e *Env) loseStates() {
	for _, n := range e.cluster.Nodes {
		do(e.cluster.ForgetState(n))
	}
}
