package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/netfault"
	"github.com/understudy-store/understudy/promote"
)

// The drills in which the primary goes, or might.

const (
	handoverOutage = 100 * time.Millisecond
	// outageGrace is how much longer than the failover time a takeover may take; half of
	// the failover time if that is more.
	outageGrace = 300 * time.Millisecond
)

// failoverOutage returns how long clients may be without an answer when the primary dies.
func (e *Env) failoverOutage() time.Duration {
	if e.cluster != nil && e.cluster.OwnEtcd {
		return e.Failover + max(outageGrace, e.Failover/2) + etcdElection
	}
	return e.Failover + max(outageGrace, e.Failover/2)
}

// etcdElection is how much longer a takeover may take if etcd's leader dies with the primary.
const etcdElection = 1500 * time.Millisecond

// window returns how long a primary may answer after its last commit, unless slow commits
// raise that time.
func (e *Env) window() time.Duration { return e.Failover * 3 / 5 }

// inForce returns the serve window that the last commit gives, at least window.
func (e *Env) inForce(ctx context.Context) time.Duration {
	return max(e.window(), must(e.cluster.Head(ctx)).Head.ServeWindow())
}

// fewRounds is the least number of rounds for which the p99 is checked. With fewer it is the
// worst round, which may be late on a busy machine although no promise is broken.
const fewRounds = 50

// boundOutages checks that the p99 of the outages is within bound. With few rounds it
// checks instead that the best is within bound, and the worst within without, the time that
// a recovery takes without the mechanism under test.
func (e *Env) boundOutages(bound, without time.Duration) {
	bound, without = e.Access.Outage(bound, false), e.Access.Outage(without, false)
	o, rounds := outagesOf(e.result.bounded), len(e.result.bounded)
	switch {
	case rounds >= fewRounds:
		e.result.check("outage", o.P99 <= bound.Milliseconds(), "p99 %d ms of %d rounds, at most %d ms are promised", o.P99, rounds, bound.Milliseconds())
	case rounds > 0:
		least := slices.Min(e.result.bounded)
		e.result.check("outage", least <= bound && o.Max <= without.Milliseconds(), "%d to %d ms in %d rounds, at most %d and %d ms are expected",
			least.Milliseconds(), o.Max, rounds, bound.Milliseconds(), without.Milliseconds())
	}
}

// boundTakeovers is boundOutages for a primary that dies. Without a deposal, the takeover
// would wait for the end of its session.
func (e *Env) boundTakeovers() { e.boundOutages(e.failoverOutage(), e.SessionTTL+time.Second) }

func killPrimary(ctx context.Context, e *Env) {
	defer e.boundTakeovers()
	e.rounds(ctx, episode{work: &work{}}, e.killAndRestart)
}

// handOver hands over again and again, by order and by SIGTERM.
func handOver(ctx context.Context, e *Env) {
	defer func() {
		e.boundOutages(handoverOutage, e.failoverOutage())                // without a handover, clients would wait as if the primary had died
		if n := e.result.Counts["calls_unanswered"]; !e.Access.Mooncake { // also those that failed after their round
			e.result.check("no failed call", n == 0, "%d calls failed in all, after the clients' own retries", n)
		}
	}()
	e.rounds(ctx, episode{work: &work{}}, func(ctx context.Context) {
		p := e.ready(ctx)
		do(p.primary.UntilHandover(ctx))
		e.letWork(ctx)
		before := e.load.failed()
		if e.result.Rounds%2 == 0 {
			e.failover(ctx, p.primary, p.term, "handover by", func() error { return handover(ctx, p) })
			e.handedOver(e.load.failed() - before)
			return
		}
		e.failover(ctx, p.primary, p.term, "SIGTERM of", p.primary.Terminate)
		e.handedOver(e.load.failed() - before)
		if err := p.primary.Wait(30 * time.Second); err != nil {
			e.result.check("ends in order", false, "after SIGTERM: %v", err)
		}
		e.restart(ctx, p.primary)
	})
}

func handover(ctx context.Context, p pair) error {
	_, err := p.primary.Admin.Handover(ctx, &pb.HandoverRequest{Term: p.term})
	return err
}

// handedOver checks that no call failed. Over Mooncake's protocol a node can refuse a
// call only by closing its connection. A call that must not be repeated then fails: at
// most one for each client on each of the two connections that it may have tried.
func (e *Env) handedOver(failed int) {
	if e.Access.Mooncake {
		e.result.check("few failed calls", failed <= 2*clients, "%d calls of %d clients failed in round %d, after the clients' own retries",
			failed, clients, e.result.Rounds+1)
		return
	}
	e.result.check("no failed call", failed == 0, "%d calls failed in round %d, after the clients' own retries", failed, e.result.Rounds+1)
}

// stopPrimary stops the primary and resumes it: after less than its serve window, which must
// cause no failover, after three failover times, and after three session TTLs.
func stopPrimary(ctx context.Context, e *Env) {
	defer e.boundTakeovers()
	lengths := []time.Duration{3 * e.SessionTTL, 3 * e.Failover, 200 * time.Millisecond}
	e.rounds(ctx, episode{work: &work{}}, func(ctx context.Context) {
		p := e.working(ctx)
		old, length := p.primary, lengths[e.result.Rounds%len(lengths)]
		if length < e.window() {
			e.load.Mark("SIGSTOP of " + old.Name + " for a moment")
			do(old.Pause())
			err := clock.Sleep(ctx, length)
			do(errors.Join(err, old.Resume()))
			e.load.answers(ctx, answersPerWait)
			e.sameTerm(ctx, p.term, fmt.Sprintf("the primary was stopped for %v", length))
			return
		}
		calls := e.probe(ctx, old, 4*e.SessionTTL)
		defer calls.stop()
		until(ctx, time.Minute, "the primary answers", func(context.Context) (bool, error) { return calls.count() > probeCalls, nil })
		window, stopped := e.inForce(ctx), time.Duration(0)
		e.failover(ctx, old, p.term, "SIGSTOP of", func() error {
			err := old.Pause()
			stopped = e.Now()
			return err
		})
		window = max(window, e.inForce(ctx)) // a takeover keeps a window that was raised before
		do(clock.Sleep(ctx, stopped+length-e.Now()))
		e.load.Mark("SIGCONT of " + old.Name)
		goesOn := e.Now()
		do(old.Resume())
		refusesEnough(ctx, calls, goesOn)
		e.fenced(calls.end(), p.term, stopped+window)
		do(old.UntilPromotable(ctx))
	})
}

// refusesEnough waits until a node has refused many calls that were sent at or after from.
func refusesEnough(ctx context.Context, calls *prober, from time.Duration) {
	const many = 200
	until(ctx, time.Minute, fmt.Sprintf("the former primary has refused %d calls", many), func(context.Context) (bool, error) {
		return calls.refusals(errs.NotLeader, from) >= many, nil
	})
}

// A parting is a way to lose etcd.
type parting struct {
	how string
	// slow is how much etcd's answers are delayed for a while before the fault. A session
	// must count from the sending of a keepalive, not from its answer.
	slow  time.Duration
	fault netfault.Fault
	// late says that what was held back, a commit of the old term included, reaches etcd as
	// soon as another node serves.
	late bool
	// vanish says that the fault also breaks the connections of clients and peers.
	vanish bool
}

func (e *Env) partings() []parting {
	slow := e.window() / 4 // too little to raise the failover time
	return []parting{
		// Answers still arrive, so the next commit is what is held back.
		{how: "holding back what goes to etcd from", fault: netfault.Fault{Up: netfault.Flow{Hold: true}}, late: true},
		{how: "losing what goes to etcd from", slow: slow, fault: netfault.Fault{Up: netfault.Flow{Drop: true}, Down: netfault.Flow{Delay: slow}}},
		{how: "cutting off from etcd", fault: netfault.Cut},
		{how: "losing what etcd answers to", fault: netfault.LoseAnswers},
	}
}

// partPrimaryFromEtcd cuts the primary off from etcd; clients still reach it.
func partPrimaryFromEtcd(ctx context.Context, e *Env) {
	defer e.boundTakeovers()
	e.part(ctx, e.partings())
}

// losePackets drops all traffic to and from the primary, without resetting connections.
func losePackets(ctx context.Context, e *Env) {
	defer e.boundTakeovers()
	lost := netfault.Fault{Up: netfault.Flow{Drop: true}, Down: netfault.Flow{Drop: true}}
	e.part(ctx, []parting{
		{how: "losing every packet of", fault: lost, vanish: true},
		{how: "losing what etcd answers to", fault: netfault.LoseAnswers},
	})
	e.episode(ctx, episode{work: &work{}}, e.loseJournalConnection)
}

// loseJournalConnection breaks the one connection over which the primary commits. The
// primary must connect anew, or be deposed.
func (e *Env) loseJournalConnection(ctx context.Context) {
	for range 3 {
		p := e.working(ctx)
		e.load.Mark("losing the journal's connection of " + p.primary.Name)
		raised, since := e.raised(ctx), e.load.Now()
		p.primary.LoseBusiest()
		e.load.answers(ctx, 2*answersPerWait)
		outage := e.outage(since, raised)
		next, now := e.primary(ctx, 0)
		e.did("lost the journal's connection of %s; %s serves in term %d, before %d; outage %d ms", p.primary.Name, next.Name, now, p.term, outage.Milliseconds())
		p.primary.SetEtcd(netfault.Fault{})
		do(e.cluster.Settled(ctx))
		e.result.Rounds++
	}
}

func (e *Env) part(ctx context.Context, all []parting) {
	e.rounds(ctx, episode{work: &work{}}, func(ctx context.Context) {
		p := e.working(ctx)
		old := p.primary
		calls := e.probe(ctx, old, time.Second)
		defer calls.stop()
		part := all[e.result.Rounds%len(all)]
		if part.slow > 0 {
			old.SetEtcd(netfault.SlowAnswers(part.slow))
			do(clock.Sleep(ctx, e.SessionTTL))
		}
		window, parted := e.inForce(ctx), time.Duration(0)
		e.failover(ctx, old, p.term, part.how, func() error {
			old.SetEtcd(part.fault)
			parted = e.Now() // the primary may commit until then
			if part.vanish {
				old.Front.Set(part.fault)
			}
			return nil
		})
		if part.late {
			old.SetEtcd(netfault.Fault{})
		}
		silent := parted + max(window, e.inForce(ctx))
		refusesEnough(ctx, calls, silent)
		old.SetEtcd(netfault.Fault{})
		old.Front.Heal()
		e.fenced(calls.end(), p.term, silent)
		do(old.UntilPromotable(ctx))
	})
}

// partPrimaryFromClients cuts the primary off from clients and peers, but not from etcd.
func partPrimaryFromClients(ctx context.Context, e *Env) {
	away := 3 * e.SessionTTL
	ep := episode{work: &work{}}
	// The cut is longer than the client TTL. No client may expire.
	ep.Args = []string{"--client_ttl=" + (away - time.Second).String()}
	e.rounds(ctx, ep, func(ctx context.Context) {
		p := e.working(ctx)
		e.load.Mark("cutting clients off " + p.primary.Name)
		since := e.load.Now()
		p.primary.Front.Set(netfault.Cut)
		do(clock.Sleep(ctx, away))
		p.primary.Front.Heal()
		e.load.answers(ctx, 100)
		now := e.sameTerm(ctx, p.term, fmt.Sprintf("clients were cut off for %v", away))
		e.did("cut clients off %s for %v; still term %d; they had no answer for %v", p.primary.Name, away, now, e.load.Outage(since).Round(time.Millisecond))
	})
}

// pressure is how many puts a second keep eviction going.
const pressure = 500

// twice fails over twice within a lease, while memory is full.
func twice(ctx context.Context, e *Env) {
	lease := 4 * e.SessionTTL
	ep := episode{nodes: 3, work: &work{keys: 2048, memory: 1 << 20, evicts: true}}
	ep.LeaseTTL = lease
	e.rounds(ctx, ep, e.underPressure(pressure, func(ctx context.Context) {
		do(e.cluster.Settled(ctx))
		first, term := e.primary(ctx, 0)
		e.evicts(ctx, first)
		began := e.Now()
		second, term := e.kill(ctx, first, term)
		e.kill(ctx, second, term)
		took := e.Now() - began
		e.result.check("within a lease", took < lease, "both failovers took %v, a lease %v", took.Round(time.Millisecond), lease)
		e.restart(ctx, first)
		e.restart(ctx, second)
	}))
}

// fiveInAMinute fails over five times in a minute, and then kills all nodes at once: first
// keeping their state files, then deleting them.
func fiveInAMinute(ctx context.Context, e *Env) {
	ep := episode{nodes: 3, work: &work{}}
	// Leases outlast the loss of all nodes: nobody may get their memory.
	ep.LeaseTTL = 8 * e.SessionTTL
	e.episode(ctx, ep, func(ctx context.Context) {
		began := e.Now()
		for range 5 {
			e.killAndRestart(ctx)
		}
		took := (e.Now() - began).Round(time.Second)
		e.result.check("within a minute", took <= time.Minute, "five failovers took %v", took)
		e.did("five failovers in %v", took)
		e.result.Rounds = 5
		e.letWork(ctx)
		e.restartAll(ctx, false, nil)
		e.coldStart(ctx)
	})
}

// coldStart kills all nodes at once, deletes their state files, and starts the cluster
// over.
func (e *Env) coldStart(ctx context.Context) {
	e.letWork(ctx)
	before := must(e.cluster.Head(ctx))
	serves := e.load.MayLose("SIGKILL of all nodes")
	for _, n := range e.cluster.Nodes {
		n.Kill()
		do(e.cluster.ForgetState(n))
	}
	first := e.cluster.Nodes[0]
	do(e.cluster.StartNode(ctx, first, promote.Primary))
	// The node must not serve by itself: another node might have the state. The drill
	// checks that it does not for alone.
	alone := 3 * e.SessionTTL
	do(clock.Sleep(ctx, alone))
	s := must(first.Status(ctx))
	e.result.check("no silent empty start", !cluster.Serves(s), "the first node is %v, %v after all were killed", s.GetNode().GetRole(), alone)
	e.did("%s waits: %s", first.Name, s.GetNode().GetNotPromotableReason())
	for _, n := range e.cluster.Nodes[1:] {
		if _, err := first.Admin.Forget(ctx, &pb.ForgetRequest{NodeId: n.Name}); err != nil {
			do(fmt.Errorf("giving up %s: %w", n.Name, err))
		}
	}
	if _, err := first.Admin.StartEmpty(ctx, &pb.StartEmptyRequest{Term: s.GetJournal().GetHeadTerm(), NoWriters: true}); err != nil {
		do(fmt.Errorf("starting empty: %w", err))
	}
	s = must(first.UntilServes(ctx))
	serves()
	term := s.GetHeader().GetTerm()
	e.result.check("says that it is empty", s.GetState().GetStartedEmpty(), "the status of the new primary says started empty: %t", s.GetState().GetStartedEmpty())
	e.result.check("a new term", term > uint64(before.Head.Term), "term %d follows %d, so no id is given twice", term, before.Head.Term)
	for _, n := range e.cluster.Nodes[1:] {
		do(e.cluster.StartNode(ctx, n, promote.Standby))
	}
	e.did("%s started empty in term %d", first.Name, term)
	e.job = "" // it went with the state
	e.hasRoom(ctx)
	e.load.answers(ctx, answersPerWait)
}

// hasRoom waits until puts get memory again: when the leases of the lost state have ended.
func (e *Env) hasRoom(ctx context.Context) {
	b := e.newBulk()
	defer b.end(e)
	began := e.Now()
	until(ctx, e.cluster.LeaseTTL+time.Minute, "memory is given out again", func(ctx context.Context) (bool, error) {
		failed, err := b.tryPut(ctx, []string{bulkKey(0, 0)}, bulkSize, client.PutConfig{})
		return err == nil && failed[0] == nil, err
	})
	e.did("memory is given out again after %v, leases are for %v", (e.Now() - began).Round(time.Millisecond), e.cluster.LeaseTTL)
}
