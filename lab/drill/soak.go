package drill

import (
	"context"
	"fmt"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/lab/netfault"
)

// Soak is the drill without an end: one fault after the other, as chance wills,
// on three nodes and three etcd members, until the duration is over, the context
// ends, or a promise is broken.
func Soak() Drill {
	return Drill{
		Name: "soak", Promises: []string{"D", "X", "A", "V", "F", "S"}, What: "random sequences of faults", run: soak,
	}
}

// perSoak is how many faults one cluster takes.
const perSoak = 8

func soak(ctx context.Context, e *Env) error {
	for e.Duration == 0 || e.Now()-e.began < e.Duration {
		ep := episode{shape: shape{nodes: 3, etcd: 3, sessionTTL: max(e.SessionTTL, 3*time.Second)}, work: &work{}}
		if e.rng.IntN(2) == 0 {
			ep.work = &work{keys: 2048, memory: 256 << 10, evicts: true}
		}
		err := e.episode(ctx, ep, func(ctx context.Context) error {
			for range perSoak {
				if err := e.anyFault(ctx); err != nil {
					return err
				}
				e.result.Rounds++
			}
			return nil
		})
		switch {
		case ctx.Err() != nil && !e.result.failing():
			return nil // this is how it ends
		case err != nil || e.result.failing():
			return err
		}
	}
	return nil
}

// A fault is something that may happen to a cluster. It is over when it returns.
type fault struct {
	name string
	do   func(ctx context.Context, e *Env, primary, standby *node, term uint64) error
}

// anyFault waits until the cluster is whole and does something to it.
func (e *Env) anyFault(ctx context.Context) error {
	if err := e.cluster.settled(ctx); err != nil {
		return err
	}
	primary, term, standby, err := e.readyPair(ctx)
	if err != nil {
		return err
	}
	if err := e.letWork(ctx); err != nil {
		return err
	}
	all := faults()
	f := all[e.rng.IntN(len(all))]
	e.did("%s (primary %s, term %d)", f.name, primary.name, term)
	e.load.Mark(f.name)
	if e.rng.IntN(4) == 0 { // who waits for an answer has to repeat the call
		primary.front.Set(netfault.Cut)
		primary.front.Heal()
	}
	if err := f.do(ctx, e, primary, standby, term); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return e.load.answers(ctx, answersPerWait/2)
}

// faults are what may happen.
func faults() []fault {
	return []fault{
		{"SIGKILL of the primary", func(ctx context.Context, e *Env, primary, _ *node, _ uint64) error {
			primary.Kill()
			return e.restart(ctx, primary)
		}},
		{"SIGKILL of a standby", func(ctx context.Context, e *Env, _, standby *node, _ uint64) error {
			standby.Kill()
			return e.restart(ctx, standby)
		}},
		{"handover", func(ctx context.Context, _ *Env, primary, _ *node, term uint64) error {
			if err := registered(ctx, primary); err != nil {
				return err
			}
			_, err := primary.Admin.Handover(ctx, &pb.HandoverRequest{Term: term})
			return err
		}},
		{"SIGSTOP of the primary for a while", func(ctx context.Context, e *Env, primary, _ *node, _ uint64) error {
			return e.stopped(ctx, primary)
		}},
		{"SIGSTOP of a standby for a while", func(ctx context.Context, e *Env, _, standby *node, _ uint64) error {
			return e.stopped(ctx, standby)
		}},
		{"the primary without etcd for a while", func(ctx context.Context, e *Env, primary, _ *node, _ uint64) error {
			return e.faulty(ctx, primary, e.either(netfault.Cut, netfault.Stall))
		}},
		{"a standby without etcd for a while", func(ctx context.Context, e *Env, _, standby *node, _ uint64) error {
			return e.faulty(ctx, standby, e.either(netfault.Cut, netfault.Stall))
		}},
		{"answers to the primary are lost", func(ctx context.Context, e *Env, primary, _ *node, _ uint64) error {
			return e.faulty(ctx, primary, e.either(netfault.LoseAnswers, netfault.LoseRequests))
		}},
		{"answers of etcd are late", func(ctx context.Context, e *Env, primary, _ *node, _ uint64) error {
			return e.faulty(ctx, primary, netfault.SlowAnswers(time.Duration(e.rng.Int64N(int64(time.Second)))))
		}},
		{"SIGKILL of an etcd member", func(ctx context.Context, e *Env, _, _ *node, _ uint64) error {
			m := e.cluster.members[e.rng.IntN(len(e.cluster.members))]
			m.kill()
			if err := wait(ctx, e.aWhile()); err != nil {
				return err
			}
			return e.cluster.startMembers(ctx, m)
		}},
		{"SIGKILL of all of etcd", func(ctx context.Context, e *Env, _, _ *node, _ uint64) error {
			for _, m := range e.cluster.members {
				m.kill()
			}
			if err := wait(ctx, e.aWhile()); err != nil {
				return err
			}
			return e.cluster.startMembers(ctx, e.cluster.members...)
		}},
		{"the primary without clients for a while", func(ctx context.Context, e *Env, primary, _ *node, _ uint64) error {
			primary.front.Set(netfault.Cut)
			defer primary.front.Heal()
			return wait(ctx, e.aWhile())
		}},
		{"compaction of etcd", func(ctx context.Context, e *Env, _, _ *node, _ uint64) error {
			return e.cluster.compact(ctx)
		}},
	}
}

// aWhile is shorter or longer than a session.
func (e *Env) aWhile() time.Duration {
	return time.Duration(e.rng.Int64N(int64(2 * e.cluster.sessionTTL)))
}

func (e *Env) either(a, b netfault.Fault) netfault.Fault {
	if e.rng.IntN(2) == 0 {
		return a
	}
	return b
}

// stopped stops a node for a while.
func (e *Env) stopped(ctx context.Context, n *node) error {
	if err := n.pause(); err != nil {
		return err
	}
	err := wait(ctx, e.aWhile())
	if e := n.resume(); err == nil {
		err = e
	}
	return err
}

// faulty breaks a node's ways to etcd for a while.
func (e *Env) faulty(ctx context.Context, n *node, f netfault.Fault) error {
	n.setEtcd(f)
	defer n.setEtcd(netfault.Fault{})
	return wait(ctx, e.aWhile())
}
