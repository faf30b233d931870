package drill

import (
	"context"
	"time"

	"github.com/understudy-store/understudy/lab/cluster"
)

// machineOutage is how long clients may be without an answer when one of three machines dies.
// Each has a node and a member of etcd.
const machineOutage = 3 * time.Second

// killMachines kills by turns the primary, the node whose member leads etcd, and a random node,
// and starts it again each time.
func killMachines(ctx context.Context, e *Env) { e.killByTurns(ctx, false) }

// killBesideWitness does the same with two nodes and a witness, which has a member of etcd and
// no metadata.
func killBesideWitness(ctx context.Context, e *Env) { e.killByTurns(ctx, true) }

func (e *Env) killByTurns(ctx context.Context, witness bool) {
	e.OwnEtcd = true
	// Without a deposal, the outage lasts until etcd has elected a leader and the primary's
	// session has ended.
	defer func() { e.boundOutages(machineOutage, e.SessionTTL+etcdElection+time.Second) }()
	e.rounds(ctx, episode{Config: cluster.Config{Witness: witness}, work: &work{}}, func(ctx context.Context) {
		do(e.cluster.Settled(ctx))
		p := e.working(ctx)
		leads := e.cluster.NodeOf(must(e.cluster.EtcdLeader(ctx))) // nil if the witness leads
		all := e.cluster.Nodes
		if witness {
			all = append([]*cluster.Node{nil}, all...)
		}
		if victim := e.victim(p.primary, leads, all); victim != nil {
			e.killMachine(ctx, p, victim, leads)
			e.restart(ctx, victim)
			return
		}
		e.killWitness(ctx, leads == nil)
		do(e.cluster.StartWitness(ctx))
	})
}

// victim is in turn the primary, the node whose member leads etcd, and any.
func (e *Env) victim(primary, leads *cluster.Node, all []*cluster.Node) *cluster.Node {
	switch e.result.Rounds % 3 {
	case 1:
		return leads
	case 2:
		return all[e.rng.IntN(len(all))]
	}
	return primary
}

func (e *Env) killWitness(ctx context.Context, leads bool) {
	raised := e.raised(ctx)
	e.load.Mark("SIGKILL of the witness")
	since := e.load.Now()
	e.cluster.WitnessMember().Kill()
	e.load.answers(ctx, answersPerWait)
	e.did("SIGKILL of the witness, its member led etcd: %t; outage %d ms", leads, e.outage(since, raised).Milliseconds())
}

func (e *Env) killMachine(ctx context.Context, p pair, victim, leads *cluster.Node) {
	if victim == p.primary {
		e.kill(ctx, victim, p.term)
		if victim == leads {
			e.result.Counts["primary_and_etcd_leader"]++
		}
		return
	}
	raised := e.raised(ctx)
	e.load.Mark("SIGKILL of " + victim.Name)
	since := e.load.Now()
	victim.Kill()
	e.cluster.Avoid(victim)
	e.load.answers(ctx, answersPerWait)
	outage := e.outage(since, raised)
	_, now := e.primary(ctx, 0)
	e.did("SIGKILL of %s, a standby, its member led etcd: %t; term %d, before %d; outage %d ms", victim.Name, victim == leads, now, p.term, outage.Milliseconds())
}
