package drill

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/lab/netfault"
	"github.com/understudy-store/understudy/lab/rig"
)

// The drills in which the primary goes, or might.

const (
	handoverOutage = 300 * time.Millisecond
	// outageGrace is what a takeover may take beyond the session TTL.
	outageGrace = time.Second
)

// boundOutages demands that 99 of 100 outages are short enough.
func (e *Env) boundOutages(bound time.Duration) {
	bound = e.Way.Outage(bound, false)
	o := outagesOf(e.result.outages)
	e.result.check("outage", o.P99 <= bound.Milliseconds(), "p99 %d ms of %d rounds, at most %d ms are promised",
		o.P99, len(e.result.outages), bound.Milliseconds())
}

// killPrimary kills it again and again.
func killPrimary(ctx context.Context, e *Env) error {
	err := e.rounds(ctx, episode{work: &work{}}, func(ctx context.Context) error {
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
	e.boundOutages(e.SessionTTL + outageGrace)
	return err
}

// handOver hands over again and again, by order and by SIGTERM.
func handOver(ctx context.Context, e *Env) error {
	err := e.rounds(ctx, episode{work: &work{}}, func(ctx context.Context) error {
		primary, term, _, err := e.readyPair(ctx)
		if err != nil {
			return err
		}
		if err := registered(ctx, primary); err != nil {
			return err
		}
		if err := e.letWork(ctx); err != nil {
			return err
		}
		before := e.load.failed()
		how, act := "handover by", func() error {
			_, err := primary.Admin.Handover(ctx, &pb.HandoverRequest{Term: term})
			return err
		}
		byTerm := e.result.Rounds%2 == 1
		if byTerm {
			how, act = "SIGTERM of", func() error { return primary.Signal(syscall.SIGTERM) }
		}
		if _, _, err := e.failover(ctx, primary, term, how, act); err != nil {
			return err
		}
		failed := e.load.failed() - before
		e.handedOver(failed)
		if !byTerm {
			return nil
		}
		if err := primary.Wait(30 * time.Second); err != nil {
			e.result.check("ends in order", false, "after SIGTERM: %v", err)
		}
		return e.restart(ctx, primary)
	})
	e.boundOutages(handoverOutage)
	if n := e.result.Counts["calls_unanswered"]; !e.Way.Mooncake { // with those that failed when their round was over
		e.result.check("no failed call", n == 0, "%d calls failed in all, after the clients' own retries", n)
	}
	return err
}

// handedOver demands that no call has failed. Over Mooncake's protocol a node
// can turn a call away only by closing its connection, and what must not be
// repeated has failed then: one call of each client at most, on each of the two
// connections that a client may have tried.
func (e *Env) handedOver(failed int) {
	if e.Way.Mooncake {
		e.result.check("few failed calls", failed <= 2*clients, "%d calls of %d clients failed in round %d, after the clients' own retries",
			failed, clients, e.result.Rounds+1)
		return
	}
	e.result.check("no failed call", failed == 0, "%d calls failed in round %d, after the clients' own retries", failed, e.result.Rounds+1)
}

// registered waits until the primary has seen in etcd that a standby could take
// over: standbys say so there about once a second.
func registered(ctx context.Context, primary *node) error {
	_, err := primary.Until(ctx, "knows of a standby that could take over", func(s *pb.StatusResponse) bool {
		return slices.ContainsFunc(s.GetNodes(), func(n *pb.Node) bool { return n.GetPromotable() && n.GetNodeId() != primary.name })
	})
	return err
}

// stopPrimary stops it for three times its session, and lets it go on.
func stopPrimary(ctx context.Context, e *Env) error {
	return e.rounds(ctx, episode{work: &work{}}, func(ctx context.Context) error {
		old, term, _, err := e.readyPair(ctx)
		if err != nil {
			return err
		}
		if err := e.letWork(ctx); err != nil {
			return err
		}
		calls := e.probe(ctx, old, 4*e.SessionTTL)
		defer calls.stop()
		if err := poll(ctx, time.Minute, "the primary answers", func(context.Context) (bool, error) { return calls.count() > probers, nil }); err != nil {
			return err
		}
		stopped := e.Now()
		if _, _, err := e.failover(ctx, old, term, "SIGSTOP of", old.pause); err != nil {
			return err
		}
		if err := wait(ctx, stopped+3*e.SessionTTL-e.Now()); err != nil {
			return err
		}
		e.load.Mark("SIGCONT of " + old.name)
		goesOn := e.Now()
		if err := old.resume(); err != nil {
			return err
		}
		if err := refusesEnough(ctx, calls, goesOn); err != nil {
			return err
		}
		e.fenced(calls.end(), term, stopped+e.SessionTTL)
		_, err = old.Until(ctx, "could take over", rig.Promotable)
		return err
	})
}

// refusesEnough waits until a node has refused many calls that were sent from
// some time on.
func refusesEnough(ctx context.Context, calls *prober, from time.Duration) error {
	const many = 200
	return poll(ctx, time.Minute, fmt.Sprintf("the former primary has refused %d calls", many), func(context.Context) (bool, error) {
		return calls.refusals(errs.NotLeader, from) >= many, nil
	})
}

// A parting is a way to lose etcd.
type parting struct {
	how string
	// slow is how late answers of etcd come for a while before: a session must
	// count from when a keepalive was sent, not from its answer.
	slow  time.Duration
	fault netfault.Fault
	// late brings what was held back to etcd as soon as another node serves: a
	// commit of the old term among it.
	late bool
}

func (e *Env) partings() []parting {
	slow := 2 * e.SessionTTL / 5
	return []parting{
		// Answers still come, so that the next commit is what is held back.
		{how: "holding back what goes to etcd from", fault: netfault.Fault{Up: netfault.Flow{Hold: true}}, late: true},
		{how: "losing what goes to etcd from", slow: slow, fault: netfault.Fault{Up: netfault.Flow{Drop: true}, Down: netfault.Flow{Delay: slow}}},
		{how: "cutting off from etcd", fault: netfault.Cut},
	}
}

// partPrimaryFromEtcd takes etcd away from the primary; clients still reach it.
func partPrimaryFromEtcd(ctx context.Context, e *Env) error {
	return e.rounds(ctx, episode{work: &work{}}, func(ctx context.Context) error {
		old, term, _, err := e.readyPair(ctx)
		if err != nil {
			return err
		}
		if err := e.letWork(ctx); err != nil {
			return err
		}
		calls := e.probe(ctx, old, time.Second)
		defer calls.stop()
		all := e.partings()
		p := all[e.result.Rounds%len(all)]
		if p.slow > 0 {
			old.setEtcd(netfault.SlowAnswers(p.slow))
			if err := wait(ctx, e.SessionTTL); err != nil {
				return err
			}
		}
		parted := e.Now()
		if _, _, err = e.failover(ctx, old, term, p.how, func() error { old.setEtcd(p.fault); return nil }); err != nil {
			return err
		}
		if p.late {
			old.setEtcd(netfault.Fault{})
		}
		silent := parted + e.SessionTTL
		if err := refusesEnough(ctx, calls, silent); err != nil {
			return err
		}
		old.setEtcd(netfault.Fault{})
		e.fenced(calls.end(), term, silent)
		_, err = old.Until(ctx, "could take over", rig.Promotable)
		return err
	})
}

// partPrimaryFromClients cuts the primary off from clients and peers alone.
func partPrimaryFromClients(ctx context.Context, e *Env) error {
	away := 3 * e.SessionTTL
	// Longer than clients live without a Ping: none may expire.
	ep := episode{shape: shape{args: []string{"--client_ttl=" + (away - time.Second).String()}}, work: &work{}}
	return e.rounds(ctx, ep, func(ctx context.Context) error {
		primary, term, _, err := e.readyPair(ctx)
		if err != nil {
			return err
		}
		if err := e.letWork(ctx); err != nil {
			return err
		}
		e.load.Mark("cutting clients off " + primary.name)
		since := e.load.Now()
		primary.front.Set(netfault.Cut)
		if err := wait(ctx, away); err != nil {
			return err
		}
		primary.front.Heal()
		if err := e.load.answers(ctx, 100); err != nil {
			return err
		}
		_, now, err := e.cluster.primary(ctx, 0)
		if err != nil {
			return err
		}
		e.result.check("no failover", now == term, "the term was %d and is %d, after clients were cut off for %v", term, now, away)
		e.did("cut clients off %s for %v; still term %d; they had no answer for %v", primary.name, away, now, e.load.Outage(since).Round(time.Millisecond))
		return nil
	})
}

// pressure is how many puts a second keep eviction going.
const pressure = 500

// twice fails over twice within a lease, while memory is full.
func twice(ctx context.Context, e *Env) error {
	ep := episode{
		shape: shape{nodes: 3, leaseTTL: 4 * e.SessionTTL},
		work:  &work{keys: 2048, memory: 1 << 20, evicts: true},
	}
	return e.rounds(ctx, ep, e.underPressure(pressure, func(ctx context.Context) error {
		if err := e.cluster.settled(ctx); err != nil {
			return err
		}
		first, term, err := e.cluster.primary(ctx, 0)
		if err != nil {
			return err
		}
		if err := e.evicts(ctx, first); err != nil {
			return err
		}
		began := e.Now()
		second, term, err := e.failover(ctx, first, term, "SIGKILL of", func() error { first.Kill(); return nil })
		if err != nil {
			return err
		}
		if _, _, err := e.failover(ctx, second, term, "SIGKILL of", func() error { second.Kill(); return nil }); err != nil {
			return err
		}
		took := e.Now() - began
		e.result.check("within a lease", took < 4*e.SessionTTL, "both failovers took %v, a lease %v", took.Round(time.Millisecond), 4*e.SessionTTL)
		for _, n := range []*node{first, second} {
			if err := e.restart(ctx, n); err != nil {
				return err
			}
		}
		return nil
	}))
}

// fiveInAMinute fails over five times in a minute, and then takes all nodes
// away at once.
func fiveInAMinute(ctx context.Context, e *Env) error {
	// Leases that outlast the loss of all nodes: nobody may be given their memory.
	ep := episode{shape: shape{nodes: 3, leaseTTL: 8 * e.SessionTTL}, work: &work{}}
	return e.episode(ctx, ep, func(ctx context.Context) error {
		began := e.Now()
		for i := range 5 {
			primary, term, _, err := e.readyPair(ctx)
			if err != nil {
				return err
			}
			if err := e.letWork(ctx); err != nil {
				return err
			}
			if _, _, err := e.failover(ctx, primary, term, "SIGKILL of", func() error { primary.Kill(); return nil }); err != nil {
				return fmt.Errorf("failover %d: %w", i+1, err)
			}
			if err := e.restart(ctx, primary); err != nil {
				return err
			}
		}
		took := (e.Now() - began).Round(time.Second)
		e.result.check("within a minute", took <= time.Minute, "five failovers took %v", took)
		e.did("five failovers in %v", took)
		e.result.Rounds = 5
		return e.coldStart(ctx)
	})
}

// coldStart kills all nodes at once and starts the cluster over.
func (e *Env) coldStart(ctx context.Context) error {
	if err := e.letWork(ctx); err != nil {
		return err
	}
	before, err := e.cluster.head(ctx)
	if err != nil {
		return err
	}
	serves := e.load.MayLose("SIGKILL of all nodes")
	for _, n := range e.cluster.nodes {
		n.Kill()
	}
	first := e.cluster.nodes[0]
	if err := e.cluster.startNode(ctx, first, config.Primary); err != nil {
		return err
	}
	// It must not serve by itself: another node might have the state. For how
	// long nothing happens is the fault.
	alone := 3 * e.SessionTTL
	if err := wait(ctx, alone); err != nil {
		return err
	}
	s, err := first.Status(ctx)
	if err != nil {
		return err
	}
	e.result.check("no silent empty start", !rig.Serves(s), "the first node is %v, %v after all were killed", s.GetNode().GetRole(), alone)
	e.did("%s waits: %s", first.name, s.GetNode().GetNotPromotableReason())
	if _, err := first.Admin.StartEmpty(ctx, &pb.StartEmptyRequest{Term: s.GetJournal().GetHeadTerm()}); err != nil {
		return fmt.Errorf("starting empty: %w", err)
	}
	if s, err = first.Until(ctx, "serves", rig.Serves); err != nil {
		return err
	}
	serves()
	e.result.check("says that it is empty", s.GetState().GetStartedEmpty(), "the status of the new primary says started empty: %t", s.GetState().GetStartedEmpty())
	e.result.check("a new term", s.GetHeader().GetTerm() > uint64(before.Head.Term), "term %d follows %d, so no id is given twice", s.GetHeader().GetTerm(), before.Head.Term)
	for _, n := range e.cluster.nodes[1:] {
		if err := e.cluster.startNode(ctx, n, config.Standby); err != nil {
			return err
		}
	}
	e.did("%s started empty in term %d", first.name, s.GetHeader().GetTerm())
	if err := e.hasRoom(ctx); err != nil {
		return err
	}
	return e.load.answers(ctx, answersPerWait)
}

// hasRoom waits until memory is given out again: when the leases of before have
// ended.
func (e *Env) hasRoom(ctx context.Context) error {
	b, err := e.newBulk()
	if err != nil {
		return err
	}
	defer b.end(e)
	began := e.Now()
	err = poll(ctx, e.cluster.leaseTTL+time.Minute, "memory is given out again", func(ctx context.Context) (bool, error) {
		failed, err := b.tryPut(ctx, []string{bulkKey(0, 0)}, bulkSize, client.PutConfig{})
		return err == nil && failed[0] == nil, err
	})
	if err == nil {
		e.did("memory is given out again after %v, leases are for %v", (e.Now() - began).Round(time.Millisecond), e.cluster.leaseTTL)
	}
	return err
}
