package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/netfault"
)

// Soak returns the endless drill: random faults one after the other, on three nodes
// and three etcd members, until the duration is over, the context ends, or a promise
// is broken.
func Soak() Drill {
	return Drill{
		Name: "soak", Promises: []string{"D", "X", "A", "V", "F", "S"}, What: "random sequences of faults", run: soak,
	}
}

// perSoak is how many faults one cluster takes.
const perSoak = 8

func soak(ctx context.Context, e *Env) {
	for e.Duration == 0 || e.Now()-e.began < e.Duration {
		ep := episode{nodes: 3, work: &work{}}
		ep.Etcd, ep.SessionTTL = 3, max(e.SessionTTL, 3*time.Second)
		if e.rng.IntN(2) == 0 {
			ep.work = &work{keys: 2048, memory: 256 << 10, evicts: true}
		}
		err := e.play(ctx, ep, func(ctx context.Context) {
			for range perSoak {
				e.anyFault(ctx)
				e.result.Rounds++
			}
		})
		switch {
		case ctx.Err() != nil && !e.result.failing():
			return // the normal end of a soak
		case err != nil || e.result.failing():
			do(err)
			return
		}
	}
}

// A fault is something that may happen to a cluster. It is over when it returns.
type fault struct {
	name string
	do   func(ctx context.Context, e *Env, p pair)
}

// anyFault waits until the cluster is whole, and runs a random fault.
func (e *Env) anyFault(ctx context.Context) {
	do(e.cluster.Settled(ctx))
	p := e.working(ctx)
	all := faults()
	f := all[e.rng.IntN(len(all))]
	e.did("%s (primary %s, term %d)", f.name, p.primary.Name, p.term)
	e.load.Mark(f.name)
	if e.rng.IntN(4) == 0 {
		breakConns(p.primary)
	}
	if err := script(func() { f.do(ctx, e, p) }); err != nil {
		do(fmt.Errorf("%s: %w", f.name, err))
	}
	e.load.answers(ctx, answersPerWait/2)
}

func faults() []fault {
	return []fault{
		{"SIGKILL of the primary", func(ctx context.Context, e *Env, p pair) {
			p.primary.Kill()
			e.restart(ctx, p.primary)
		}},
		{"SIGKILL of a standby", func(ctx context.Context, e *Env, p pair) {
			p.standby.Kill()
			e.restart(ctx, p.standby)
		}},
		{"handover", func(ctx context.Context, _ *Env, p pair) {
			do(p.primary.UntilHandover(ctx))
			do(handover(ctx, p))
		}},
		{"SIGSTOP of the primary for a while", func(ctx context.Context, e *Env, p pair) { e.stopForAWhile(ctx, p.primary) }},
		{"SIGSTOP of a standby for a while", func(ctx context.Context, e *Env, p pair) { e.stopForAWhile(ctx, p.standby) }},
		{"the primary without etcd for a while", func(ctx context.Context, e *Env, p pair) {
			e.faulty(ctx, p.primary, e.either(netfault.Cut, netfault.Stall))
		}},
		{"a standby without etcd for a while", func(ctx context.Context, e *Env, p pair) {
			e.faulty(ctx, p.standby, e.either(netfault.Cut, netfault.Stall))
		}},
		{"answers to the primary are lost", func(ctx context.Context, e *Env, p pair) {
			e.faulty(ctx, p.primary, e.either(netfault.LoseAnswers, netfault.LoseRequests))
		}},
		{"answers of etcd are late", func(ctx context.Context, e *Env, p pair) {
			e.faulty(ctx, p.primary, netfault.SlowAnswers(time.Duration(e.rng.Int64N(int64(time.Second)))))
		}},
		{"SIGKILL of an etcd member", func(ctx context.Context, e *Env, _ pair) {
			m := e.cluster.Members[e.rng.IntN(len(e.cluster.Members))]
			m.Kill()
			e.aWhile(ctx)
			do(e.cluster.StartMembers(ctx, m))
		}},
		{"SIGKILL of all of etcd", func(ctx context.Context, e *Env, _ pair) {
			e.killEtcd()
			e.aWhile(ctx)
			do(e.cluster.StartMembers(ctx, e.cluster.Members...))
		}},
		{"the primary without clients for a while", func(ctx context.Context, e *Env, p pair) {
			p.primary.Front.Set(netfault.Cut)
			defer p.primary.Front.Heal()
			e.aWhile(ctx)
		}},
		{"compaction of etcd", func(ctx context.Context, e *Env, _ pair) { do(e.cluster.Compact(ctx)) }},
	}
}

// aWhile sleeps for a random time, up to two session TTLs.
func (e *Env) aWhile(ctx context.Context) {
	do(clock.Sleep(ctx, time.Duration(e.rng.Int64N(int64(2*e.cluster.SessionTTL)))))
}

func (e *Env) either(a, b netfault.Fault) netfault.Fault {
	if e.rng.IntN(2) == 0 {
		return a
	}
	return b
}

func (e *Env) stopForAWhile(ctx context.Context, n *cluster.Node) {
	do(n.Pause())
	err := script(func() { e.aWhile(ctx) })
	do(errors.Join(err, n.Resume()))
}

// faulty breaks a node's connections to etcd for a while.
func (e *Env) faulty(ctx context.Context, n *cluster.Node, f netfault.Fault) {
	n.SetEtcd(f)
	defer n.SetEtcd(netfault.Fault{})
	e.aWhile(ctx)
}
