package drill

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/lab/netfault"
)

// The drills in which etcd fails, or the way to it.

// killEtcdLeader kills the leader of three members again and again, and stops a
// follower for a while.
func killEtcdLeader(ctx context.Context, e *Env) error {
	ttl := max(e.SessionTTL, 5*time.Second) // etcd itself needs one to two seconds to elect
	return e.rounds(ctx, episode{shape: shape{etcd: 3, sessionTTL: ttl}, work: &work{}}, func(ctx context.Context) error {
		_, term, _, err := e.readyPair(ctx)
		if err != nil {
			return err
		}
		leader, err := e.cluster.etcdLeader(ctx)
		if err != nil {
			return err
		}
		if err := e.letWork(ctx); err != nil {
			return err
		}
		e.load.Mark("SIGKILL of " + leader.name)
		since, began := e.load.Now(), e.Now()
		leader.kill()
		if err := poll(ctx, time.Minute, "etcd answers again", func(ctx context.Context) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := e.cluster.etcd.Get(ctx, e.cluster.layout.Head())
			return err == nil, nil
		}); err != nil {
			return err
		}
		away := e.Now() - began
		if err := e.load.answers(ctx, answersPerWait); err != nil {
			return err
		}
		outage := e.load.Outage(since)
		e.result.outages = append(e.result.outages, outage)
		_, now, err := e.cluster.primary(ctx, 0)
		if err != nil {
			return err
		}
		judged := ""
		if away < ttl/2 { // the keepalives after it had time enough
			e.result.Counts["failovers_judged"]++
			e.result.check("no failover", now == term, "the term was %d and is %d; etcd was away for %v, the session TTL is %v", term, now, away.Round(time.Millisecond), ttl)
		} else {
			judged = "; so long that a failover would be right"
		}
		e.did("SIGKILL of the etcd leader %s; etcd answers after %v%s; clients had no answer for %d ms; term %d, before %d",
			leader.name, away.Round(time.Millisecond), judged, outage.Milliseconds(), now, term)
		if err := e.cluster.startMembers(ctx, leader); err != nil {
			return err
		}
		return e.hangEtcdFollower(ctx, now, ttl)
	})
}

// hangTimeout is more than a member that hangs may cost: the patience with it,
// and the first answer of another one.
const hangTimeout = 3 * time.Second

// hangEtcdFollower stops a member that does not lead, the one that nodes use if
// possible, for longer than a session: its connections stay open, and nobody
// answers on them. It must cost no more than a moment.
func (e *Env) hangEtcdFollower(ctx context.Context, term uint64, ttl time.Duration) error {
	leader, err := e.cluster.etcdLeader(ctx)
	if err != nil {
		return err
	}
	hung := e.cluster.members[0]
	if hung == leader {
		hung = e.cluster.members[1]
	}
	if err := e.letWork(ctx); err != nil {
		return err
	}
	e.load.Mark("SIGSTOP of " + hung.name)
	since := e.load.Now()
	if err := hung.process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err = wait(ctx, ttl+ttl/2)
	if err := hung.process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	outage := e.load.Outage(since)
	_, now, err := e.cluster.primary(ctx, 0)
	if err != nil {
		return err
	}
	e.result.check("no failover", now == term, "the term was %d and is %d: an etcd follower hung", term, now)
	e.result.check("a hung follower", outage < hangTimeout, "clients had no answer for %v while the etcd follower %s hung, at most %v are expected", outage, hung.name, hangTimeout)
	e.did("SIGSTOP of the etcd follower %s; clients had no answer for %d ms; term %d", hung.name, outage.Milliseconds(), now)
	return nil
}

// etcdLeader returns the member that leads, by the members' own word.
func (c *cluster) etcdLeader(ctx context.Context) (leader *member, err error) {
	err = poll(ctx, time.Minute, "etcd has a leader", func(ctx context.Context) (bool, error) {
		for _, m := range c.members {
			if m.process == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			s, err := c.etcd.Status(ctx, m.clients.Addr())
			cancel()
			if err == nil && s.Leader != 0 && s.Leader == s.Header.MemberId {
				leader = m
				return true, nil
			}
		}
		return false, nil
	})
	return leader, err
}

// stopAllOfEtcd kills etcd and starts it again on its data.
func stopAllOfEtcd(ctx context.Context, e *Env) error {
	away := max(30*time.Second, 3*e.SessionTTL)
	if e.Short {
		away = 3 * e.SessionTTL
	}
	// While it is gone clients are heard until the session ends, and then not for
	// longer than they live without a Ping: none may expire.
	ttl := away - e.SessionTTL - time.Second
	ep := episode{shape: shape{args: []string{"--client_ttl=" + ttl.String()}}, work: &work{}}
	err := e.rounds(ctx, ep, func(ctx context.Context) error {
		primary, term, _, err := e.readyPair(ctx)
		if err != nil {
			return err
		}
		if err := e.letWork(ctx); err != nil {
			return err
		}
		calls := e.probe(ctx, primary, time.Second)
		defer calls.stop()
		e.load.Mark("SIGKILL of etcd")
		since, gone := e.load.Now(), e.Now()
		for _, m := range e.cluster.members {
			m.kill()
		}
		dead := e.Now()
		if err := wait(ctx, away); err != nil {
			return err
		}
		answers := calls.end()
		e.load.Mark("start of etcd")
		if err := e.cluster.startMembers(ctx, e.cluster.members...); err != nil {
			return err
		}
		e.withoutEtcd(answers, term, gone, dead)
		next, now, err := e.cluster.primary(ctx, 0)
		if err != nil {
			return err
		}
		if err := e.load.answers(ctx, answersPerWait); err != nil {
			return err
		}
		s, err := next.Status(ctx)
		if err != nil {
			return err
		}
		e.result.check("a complete node serves", !s.GetState().GetStartedEmpty(), "%s serves in term %d, started empty: %t", next.name, now, s.GetState().GetStartedEmpty())
		e.did("etcd was gone for %v; then %s serves in term %d; clients had no answer for %d ms", away, next.name, now, e.load.Outage(since).Milliseconds())
		return nil
	})
	e.noFinalErrors()
	return err
}

// repeatable demands that no answer of a node is an error that is final.
func (e *Env) repeatable(answers []answer) {
	refused := 0
	for _, a := range answers {
		switch {
		case final(a.kind):
			e.result.check("errors can be repeated", false, "%v", a)
		case a.kind != errs.OK:
			refused++
		}
	}
	e.result.check("errors can be repeated", refused > 0, "%d of %d calls to one node alone were refused", refused, len(answers))
}

// noFinalErrors demands that no call of a client has ended in an error that says
// more than that it cannot be done now, or what is under the key.
func (e *Env) noFinalErrors() {
	n := e.result.Counts["calls_final_error"]
	e.result.check("errors can be repeated", n == 0, "%d calls of clients ended in an error that is final", n)
}

// withoutEtcd judges what a primary answered while etcd was killed (between gone
// and dead) and stayed away.
func (e *Env) withoutEtcd(answers []answer, term uint64, gone, dead time.Duration) {
	e.fenced(answers, term, dead+e.SessionTTL)
	e.repeatable(answers)
	e.result.violate("D", 0)
	reads, silent := 0, 0
	for _, a := range answers {
		switch {
		case a.sent < gone:
		case a.write && a.kind == errs.OK && a.sent > dead:
			e.result.violate("D", 1, "acknowledged without etcd: "+a.String())
		case !a.write && a.kind == errs.OK && a.sent > dead && a.got < gone+e.SessionTTL/2:
			reads++
		case a.kind == errs.NotLeader && a.sent > dead+e.SessionTTL:
			silent++
			if a.hint != "" {
				e.result.check("no hint", false, "%v names %s as the leader", a, a.hint)
			}
		}
	}
	e.result.check("reads go on", reads > 0, "%d reads were served in the first half of the session", reads)
	e.result.check("then silence", silent > 0, "%d calls got NOT_LEADER without a hint behind its end", silent)
}

// slowEtcd makes all answers of etcd late, and breaks the clients' connections
// now and then meanwhile.
func slowEtcd(ctx context.Context, e *Env) error {
	const delay = 2 * time.Second
	lasts := time.Minute
	if e.Short {
		lasts = 15 * time.Second
	}
	err := e.rounds(ctx, episode{shape: shape{sessionTTL: 10 * time.Second}, work: &work{}}, func(ctx context.Context) error {
		primary, term, _, err := e.readyPair(ctx)
		if err != nil {
			return err
		}
		if err := e.letWork(ctx); err != nil {
			return err
		}
		e.load.Mark("answers of etcd take 2 s")
		for _, n := range e.cluster.nodes {
			n.setEtcd(netfault.SlowAnswers(delay))
		}
		calls := e.probe(ctx, primary, delay/2) // whose time is up before a commit is done
		defer calls.stop()
		const breaks = 15
		for range breaks {
			// At any moment of a commit's way.
			if err := wait(ctx, lasts/breaks/2+time.Duration(e.rng.Int64N(int64(lasts/breaks)))); err != nil {
				return err
			}
			// Who waits for a commit loses the connection and repeats the call
			// while the first one is under way.
			primary.front.Set(netfault.Cut)
			primary.front.Heal()
		}
		e.repeatable(calls.end())
		for _, n := range e.cluster.nodes {
			n.setEtcd(netfault.Fault{})
		}
		e.load.Mark("answers of etcd come at once")
		_, now, err := e.cluster.primary(ctx, 0)
		if err != nil {
			return err
		}
		if err := e.load.answers(ctx, answersPerWait); err != nil {
			return err
		}
		e.did("answers of etcd took %v for %v, connections of clients broke %d times; term %d, before %d", delay, lasts, breaks, now, term)
		return e.bounded()
	})
	e.noFinalErrors()
	return err
}

// memoryCap is what no node of a drill may ever have taken.
const memoryCap = 2 << 30

// bounded demands that no node took too much memory.
func (e *Env) bounded() error {
	e.result.violate("B", 0)
	for _, n := range e.cluster.alive() {
		most, err := peakMemory(n.PID)
		if err != nil {
			return err
		}
		e.result.Counts["peak_memory_bytes"] = max(e.result.Counts["peak_memory_bytes"], most)
		if most > memoryCap {
			e.result.violate("B", 1, fmt.Sprintf("%s took %d bytes of memory", n.name, most))
		}
	}
	return nil
}

// peakMemory is the most that a process ever had resident, in bytes.
func peakMemory(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("the kernel does not say how much memory process %d took", pid)
}

// loseAnswer loses etcd's answer to a commit that it has applied.
func loseAnswer(ctx context.Context, e *Env) error {
	const tries = 5 // until one was to a commit
	// The judge looks for what is in the journal twice: all of it must be there.
	ep := episode{shape: shape{keepHistory: true}, work: &work{}}
	err := e.rounds(ctx, ep, func(ctx context.Context) error {
		primary, term, _, err := e.readyPair(ctx)
		if err != nil {
			return err
		}
		if err := e.letWork(ctx); err != nil {
			return err
		}
		var applied, head uint64
		for try := 0; head == applied; try++ {
			if try == tries {
				return fmt.Errorf("no answer to a commit was lost in %d tries", try)
			}
			e.load.Mark("answers of etcd to " + primary.name + " are lost")
			primary.setEtcd(netfault.LoseAnswers)
			applied, head, err = e.openCommit(ctx, primary)
			primary.setEtcd(netfault.Fault{}) // resets the connections
			if err != nil {
				return err
			}
			if err := e.load.answers(ctx, answersPerWait); err != nil {
				return err
			}
		}
		_, now, err := e.cluster.primary(ctx, 0)
		if err != nil {
			return err
		}
		e.result.check("no failover", now == term, "the term was %d and is %d", term, now)
		e.result.Counts["answers_lost"] += int64(head - applied)
		e.did("etcd had applied commit %d, the primary knew of %d; it went on", head, applied)
		return nil
	})
	if read := e.result.Counts["commits_read"]; e.Break == "" && err == nil {
		e.result.check("the journal is there", read > 0, "the judge has read %d commits of the journal", read)
	}
	return err
}

// openCommit waits until etcd has applied a commit that its primary does not
// know of: then the writer hangs on it, for the answer is lost. If the answer
// that was lost was one to something else, such as the lease of the next
// records, nothing comes of it: then both are the same.
func (e *Env) openCommit(ctx context.Context, primary *node) (applied, head uint64, err error) {
	const still = 5 // polls without a commit
	same := 0
	err = poll(ctx, e.SessionTTL/2, "the primary's writer hangs", func(ctx context.Context) (bool, error) {
		at, err := e.cluster.head(ctx)
		if err != nil {
			return false, err
		}
		d, err := primary.Admin.Digest(ctx, &pb.DigestRequest{})
		if err != nil {
			return false, err
		}
		if uint64(at.Head.Seq) == head && d.GetSequence() == applied {
			same++
		} else {
			same = 0
		}
		applied, head = d.GetSequence(), uint64(at.Head.Seq)
		return same >= still, nil
	})
	return applied, head, err
}
