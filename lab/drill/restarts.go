package drill

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/netfault"
	"github.com/understudy-store/understudy/promote"
)

// restartLimit is how long it may take until a node serves after everything was killed.
const restartLimit = 30 * time.Second

// everythingDies kills all nodes and etcd at once, and starts them again in random order, at
// once or after a while. In every second round etcd lives, and is compacted after the nodes
// have been away for longer than the events TTL.
func everythingDies(ctx context.Context, e *Env) {
	ep := episode{nodes: 3, work: &work{}}
	ep.LeaseTTL, ep.EventsTTL = 8*e.SessionTTL, e.SessionTTL+time.Second
	e.rounds(ctx, ep, func(ctx context.Context) {
		e.working(ctx)
		if e.result.Rounds%2 == 1 {
			e.restartAll(ctx, false, func(ctx context.Context) {
				do(clock.Sleep(ctx, e.cluster.EventsTTL+expiryGrace))
				do(e.cluster.Compact(ctx))
			})
		} else {
			e.restartAll(ctx, true, nil)
		}
		e.load.answers(ctx, answersPerWait)
	})
}

// expiryGrace is how much longer than the events TTL a record with a lease of that TTL may
// stay in etcd.
const expiryGrace = 10 * time.Second

// restartAll kills all nodes, and etcd too if etcd is set. It calls meanwhile, which may be
// nil, and starts them again. A node must then serve with the old state; the judge checks from
// the clients' histories that all objects are there. Nobody orders an empty start.
func (e *Env) restartAll(ctx context.Context, etcd bool, meanwhile func(context.Context)) {
	before := must(e.cluster.Head(ctx))
	e.load.Mark("SIGKILL of everything")
	for _, n := range e.cluster.Nodes {
		n.Kill()
	}
	if etcd {
		e.killEtcd()
	}
	do(clock.Sleep(ctx, e.Away))
	if meanwhile != nil {
		meanwhile(ctx)
	}
	began := e.Now()
	late := etcd && e.rng.IntN(2) == 0
	if etcd && !late {
		do(e.cluster.StartMembers(ctx, e.cluster.Members...))
	}
	var starting errgroup.Group
	for _, i := range e.rng.Perm(len(e.cluster.Nodes)) {
		role := e.anyRole()
		starting.Go(func() error { return e.cluster.StartNode(ctx, e.cluster.Nodes[i], role) })
	}
	if late {
		do(e.cluster.StartMembers(ctx, e.cluster.Members...))
	}
	do(starting.Wait())
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
	e.did("all nodes were killed at sequence %d, etcd: %t, for %v, etcd started last: %t; %s serves %v after their start", before.Head.Seq, etcd, e.Away, late, serving.Name,
		(e.Now() - began).Round(time.Millisecond))
}

// stateAway cuts the only complete standby off from etcd, kills the primary, and starts it
// without its state and with permission to start empty. It must wait for the standby.
func stateAway(ctx context.Context, e *Env) {
	e.rounds(ctx, episode{work: &work{}}, func(ctx context.Context) {
		p := e.working(ctx)
		until(ctx, time.Minute, "the standby is listed as complete", func(ctx context.Context) (bool, error) {
			resp, err := e.cluster.Client.Get(ctx, e.cluster.Layout.CompleteNode(p.standby.Name))
			return err == nil && len(resp.Kvs) == 1, nil
		})
		e.load.Mark("cutting off " + p.standby.Name + ", SIGKILL of " + p.primary.Name)
		since := e.load.Now()
		p.standby.SetEtcd(netfault.Cut)
		p.primary.Kill()
		do(e.cluster.ForgetState(p.primary))
		do(e.cluster.StartNode(ctx, p.primary, promote.Primary, "--start-empty", "--wait-for-state=1m"))
		away := 3 * e.SessionTTL
		do(clock.Sleep(ctx, away))
		s := must(p.primary.Status(ctx))
		e.result.check("no empty start", !cluster.Serves(s), "the master without state is %v, %v after its start: %s",
			s.GetNode().GetRole(), away, s.GetNode().GetNotPromotableReason())
		p.standby.SetEtcd(netfault.Fault{})
		next, term := e.primary(ctx, p.term)
		e.result.check("no empty start", next == p.standby, "%s serves in term %d, %s holds the state", next.Name, term, p.standby.Name)
		e.load.answers(ctx, answersPerWait)
		e.did("%s was cut off for %v while a master without state waited: %s; then %s serves in term %d; outage %d ms", p.standby.Name, away,
			s.GetNode().GetNotPromotableReason(), next.Name, term, e.load.Outage(since).Milliseconds())
	})
}
