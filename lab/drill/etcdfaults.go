package drill

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/netfault"
)

// The drills in which etcd, or the connection to it, fails.

// electionGrace is how much longer than etcd itself reads may be unavailable.
const electionGrace = 200 * time.Millisecond

// killEtcdLeader kills the leader of three members again and again, and stops a
// follower for a while.
func killEtcdLeader(ctx context.Context, e *Env) {
	ttl := max(e.SessionTTL, 5*time.Second) // etcd itself needs one to two seconds to elect
	ep := episode{work: &work{}}
	ep.Etcd, ep.SessionTTL = 3, ttl
	e.rounds(ctx, ep, func(ctx context.Context) {
		p := e.ready(ctx)
		leader := must(e.cluster.EtcdLeader(ctx))
		e.letWork(ctx)
		e.load.Mark("SIGKILL of " + leader.Name)
		since, began := e.load.Now(), e.Now()
		leader.Kill()
		until(ctx, time.Minute, "etcd answers again", func(ctx context.Context) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, electionGrace)
			defer cancel()
			_, err := e.cluster.Client.Get(ctx, e.cluster.Layout.Head())
			return err == nil, nil
		})
		away := e.Now() - began
		e.load.answers(ctx, answersPerWait)
		outage := e.load.Outage(since)
		e.result.outages = append(e.result.outages, outage)
		e.result.check("reads are back", outage <= away+electionGrace, "clients had no answer for %v, etcd was away for %v", outage, away)
		_, now := e.primary(ctx, 0)
		judged := ""
		if away < ttl/2 { // there was time enough for keepalives afterwards
			e.result.Counts["failovers_judged"]++
			e.result.check("no failover", now == p.term, "the term was %d and is %d; etcd was away for %v, the session TTL is %v", p.term, now, away.Round(time.Millisecond), ttl)
		} else {
			judged = "; so long that a failover would be right"
		}
		e.did("SIGKILL of the etcd leader %s; etcd answers after %v%s; clients had no answer for %d ms; term %d, before %d",
			leader.Name, away.Round(time.Millisecond), judged, outage.Milliseconds(), now, p.term)
		do(e.cluster.StartMembers(ctx, leader))
		e.hangEtcdFollower(ctx, now, ttl)
	})
}

// hangTimeout is more than the outage that a hanging member may cause: the timeout of a
// call to it, and the time until another member answers.
const hangTimeout = 3 * time.Second

// hangEtcdFollower stops a member that does not lead, preferably the one that nodes use,
// for longer than a session: its connections stay open, but nothing answers on them. The
// outage must be short.
func (e *Env) hangEtcdFollower(ctx context.Context, term uint64, ttl time.Duration) {
	leader := must(e.cluster.EtcdLeader(ctx))
	hung := e.cluster.Members[0]
	if hung == leader {
		hung = e.cluster.Members[1]
	}
	e.letWork(ctx)
	e.load.Mark("SIGSTOP of " + hung.Name)
	since := e.load.Now()
	do(hung.Signal(syscall.SIGSTOP))
	err := clock.Sleep(ctx, ttl+ttl/2)
	do(hung.Signal(syscall.SIGCONT))
	do(err)
	outage := e.load.Outage(since)
	now := e.sameTerm(ctx, term, "an etcd follower hung")
	e.result.check("a hung follower", outage < hangTimeout, "clients had no answer for %v while the etcd follower %s hung, at most %v are expected", outage, hung.Name, hangTimeout)
	e.did("SIGSTOP of the etcd follower %s; clients had no answer for %d ms; term %d", hung.Name, outage.Milliseconds(), now)
}

func (e *Env) killEtcd() {
	if e.cluster.OwnEtcd {
		return // the members died with their nodes
	}
	for _, m := range e.cluster.Members {
		m.Kill()
	}
}

// stopAllOfEtcd kills etcd and starts it again on its data.
func stopAllOfEtcd(ctx context.Context, e *Env) {
	away := max(30*time.Second, 3*e.SessionTTL)
	if e.Short {
		away = 3 * e.SessionTTL
	}
	ep := episode{work: &work{}}
	// While etcd is gone, no node accepts Pings, for longer than the client TTL. No client
	// may expire.
	ep.Args = []string{"--client_ttl=" + (away - e.SessionTTL - time.Second).String(), "--client-rpc-timeout=0s"}
	defer e.noFinalErrors()
	full := episode{}
	full.Embedded = true
	full.Args = []string{fmt.Sprint("--etcd-quota-bytes=", nearlyFullQuota), fmt.Sprint("--journal-max-bytes=", nearlyFullQuota/4)}
	if len(e.notices) == 0 || slices.Contains(e.notices, changesStop) {
		e.episode(ctx, full, e.nearlyFull)
	}
	if e.noticed() {
		return
	}
	e.rounds(ctx, ep, func(ctx context.Context) {
		p := e.working(ctx)
		calls := e.probe(ctx, p.primary, time.Second)
		defer calls.stop()
		e.load.Mark("SIGKILL of etcd")
		window, since, gone := e.inForce(ctx), e.load.Now(), e.Now()
		e.killEtcd()
		dead := e.Now()
		do(clock.Sleep(ctx, away))
		answers := calls.end()
		e.load.Mark("start of etcd")
		do(e.cluster.StartMembers(ctx, e.cluster.Members...))
		e.fenced(answers, p.term, dead+max(window, e.inForce(ctx)))
		e.withoutEtcd(answers, gone, dead)
		next, now := e.primary(ctx, 0)
		e.load.answers(ctx, answersPerWait)
		empty := must(next.Status(ctx)).GetState().GetStartedEmpty()
		e.result.check("a complete node serves", !empty, "%s serves in term %d, started empty: %t", next.Name, now, empty)
		e.did("etcd was gone for %v; then %s serves in term %d; clients had no answer for %d ms", away, next.Name, now, e.load.Outage(since).Milliseconds())
	})
}

// nearlyFull fills the etcd that is embedded in the primary to more than nine tenths of its
// quota, with keys that no node deletes. The primary must refuse changes while beats and
// reads go on.
func (e *Env) nearlyFull(ctx context.Context) {
	p := e.ready(ctx)
	b := e.newBulk()
	defer b.Close()
	do(b.mount(ctx, "host", 1<<30))
	e.fillEtcd(ctx, nearlyFullQuota/100*92)
	n := 0
	put := func(ctx context.Context) error {
		n++
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		failed, err := b.tryPut(ctx, []string{fmt.Sprint("full/", n)}, bulkSize, client.PutConfig{})
		return errors.Join(append(failed, err)...)
	}
	var refused error
	_ = cluster.Poll(ctx, 10*time.Second, "a put that is refused", func(ctx context.Context) (bool, error) {
		refused = put(ctx)
		return refused != nil, nil
	})
	e.result.check(changesStop, refused != nil && strings.Contains(refused.Error(), "90 %"), "a put: %v", refused)
	if refused == nil {
		return
	}
	before := must(e.cluster.Head(ctx)).Head.Seq
	until(ctx, time.Minute, "beats go on", func(ctx context.Context) (bool, error) {
		at, err := e.cluster.Head(ctx)
		return at.Head.Seq > before+20, err
	})
	s := must(p.primary.Status(ctx))
	e.result.check("reads go on", cluster.Serves(s), "%s: %s", p.primary.Name, s.GetNotServingReason())
	must(e.cluster.Client.Delete(ctx, anotherTenant, clientv3.WithPrefix()))
	until(ctx, time.Minute, "changes are taken again", func(ctx context.Context) (bool, error) { return put(ctx) == nil, nil })
	e.did("the embedded etcd was nearly full: changes were refused, beats and reads went on; with space changes go on too")
	e.compare(ctx)
}

// anotherTenant is the prefix of keys in etcd that do not belong to the cluster.
const anotherTenant = "/another-tenant/"

// fillEtcd fills etcd to a size in bytes, with keys that no node deletes. etcd's size counts
// only what is on its disk. So each step of the second half waits until the size has grown;
// otherwise a busy machine would write past the quota.
func (e *Env) fillEtcd(ctx context.Context, bytes int64) {
	const each, of = 64, 8 << 10
	etcd, value := e.cluster.Client, strings.Repeat("x", of)
	for i, size, used := 0, int64(0), int64(0); size < bytes; i++ {
		var puts []clientv3.Op
		for j := range each {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("%s%d/%d", anotherTenant, i, j), value))
		}
		must(etcd.Txn(ctx).Then(puts...).Commit())
		if int64(i*each*of) < bytes/2 {
			continue
		}
		until(ctx, time.Minute, "etcd counts what was written", func(ctx context.Context) (bool, error) {
			st, err := etcd.Status(ctx, e.cluster.Endpoints()[0])
			if err != nil || st.DbSize == size && st.DbSizeInUse == used {
				return false, err
			}
			size, used = st.DbSize, st.DbSizeInUse
			return true, nil
		})
	}
}

const (
	nearlyFullQuota = 32 << 20 // of the embedded etcd
	changesStop     = "changes stop before etcd is full"
)

// repeatable checks that no answer of a node is a final error: one that tells clients not to
// repeat the call.
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

func (e *Env) noFinalErrors() {
	n := len(e.finals)
	e.result.check("errors can be repeated", n == 0, "%d calls of clients ended in an error that is final: %q", n, e.finals[:min(n, 5)])
}

// withoutEtcd judges the answers of a primary from when etcd was killed, which happened
// between gone and dead, and while it stayed away.
func (e *Env) withoutEtcd(answers []answer, gone, dead time.Duration) {
	e.repeatable(answers)
	e.result.violate("D", 0)
	reads, silent := 0, 0
	for _, a := range answers {
		switch {
		case a.sent < gone:
		case a.write && a.kind == errs.OK && a.sent > dead:
			e.result.violate("D", 1, "acknowledged without etcd: "+a.String())
		case !a.write && a.kind == errs.OK && a.sent > dead && a.got < gone+e.window():
			reads++
		case a.kind == errs.NotLeader && a.sent > dead+e.window():
			silent++
			if a.hint != "" {
				e.result.check("no hint", false, "%v names %s as the leader", a, a.hint)
			}
		}
	}
	e.result.check("reads go on", reads > 0, "%d reads were served in the serve window of the last commit", reads)
	e.result.check("then silence", silent > 0, "%d calls got NOT_LEADER without a hint behind its end", silent)
}

// setEtcd breaks, or heals, the connections of all nodes to etcd.
func (e *Env) setEtcd(f netfault.Fault) {
	for _, n := range e.cluster.Nodes {
		n.SetEtcd(f)
	}
}

// breakConns breaks the connections of a node's clients. A client that waits for a commit
// then repeats the call while the first one is under way.
func breakConns(n *cluster.Node) {
	n.Front.Set(netfault.Cut)
	n.Front.Heal()
}

// raisedWithin is how long reads may be unavailable when etcd becomes slow.
const raisedWithin = 20 * time.Second

// breaksFor is how long the drill goes on after that in its short form, so that some reads
// are answered in that time.
const breaksFor = 5 * time.Second

// slowEtcd delays all answers of etcd, and breaks the clients' connections now and then.
func slowEtcd(ctx context.Context, e *Env) {
	const delay = 2 * time.Second
	lasts := time.Minute
	if e.Short {
		lasts = raisedWithin + breaksFor
	}
	ep := episode{work: &work{}}
	ep.SessionTTL = 10 * time.Second
	defer e.noFinalErrors()
	e.rounds(ctx, ep, func(ctx context.Context) {
		p := e.working(ctx)
		e.load.Mark("answers of etcd take 2 s")
		slow := e.Now()
		e.setEtcd(netfault.SlowAnswers(delay))
		calls := e.probe(ctx, p.primary, delay/2) // shorter than a commit takes
		defer calls.stop()
		const breaks = 15
		for range breaks {
			// At a random moment of a commit.
			do(clock.Sleep(ctx, lasts/breaks/2+time.Duration(e.rng.Int64N(int64(lasts/breaks)))))
			breakConns(p.primary)
		}
		answers := calls.end()
		e.repeatable(answers)
		first, failover := time.Duration(math.MaxInt64), must(e.cluster.Head(ctx)).Head.FailoverAfter()
		for _, a := range answers {
			if !a.write && a.kind == errs.OK && a.sent > slow+raisedWithin {
				first = min(first, a.sent-slow)
			}
		}
		e.result.check("reads are served again", first < raisedWithin+breaksFor && failover > e.Failover, "of the reads sent later than %v after etcd became slow the first that was served was sent after %v; heads carry %v, before %v",
			raisedWithin, first, failover, e.Failover)
		e.setEtcd(netfault.Fault{})
		e.load.Mark("answers of etcd come at once")
		now := e.sameTerm(ctx, p.term, "etcd was slow")
		e.load.answers(ctx, answersPerWait)
		e.did("answers of etcd took %v for %v, connections of clients broke %d times; term %d, before %d", delay, lasts, breaks, now, p.term)
		e.bounded()
	})
}

// memoryCap is the most memory, in bytes, that a node of a drill may take at any time.
const memoryCap = 2 << 30

// bounded checks that no node took more than memoryCap.
func (e *Env) bounded() {
	for _, n := range e.cluster.Alive() {
		process := must(procfs.NewProc(n.PID))
		e.result.took(n.Name, int64(must(process.NewStatus()).VmHWM))
	}
}

func (r *Result) took(node string, most int64) {
	r.violate("B", 0)
	r.Counts["peak_memory_bytes"] = max(r.Counts["peak_memory_bytes"], most)
	if most > memoryCap {
		r.violate("B", 1, fmt.Sprintf("%s took %d bytes of memory", node, most))
	}
}

// loseAnswer loses etcd's answer to a commit that it has applied.
func loseAnswer(ctx context.Context, e *Env) {
	const tries = 5 // until a lost answer was that to a commit
	ep := episode{work: &work{}}
	// The judge looks for events that are in the journal twice, so all of it must be kept.
	ep.KeepHistory = true
	e.rounds(ctx, ep, func(ctx context.Context) {
		p := e.working(ctx)
		var applied, head uint64
		for try := 0; head == applied; try++ {
			if try == tries {
				do(fmt.Errorf("no answer to a commit was lost in %d tries", try))
			}
			e.load.Mark("answers of etcd to " + p.primary.Name + " are lost")
			p.primary.SetEtcd(netfault.LoseAnswers)
			var err error
			applied, head, err = e.openCommit(ctx, p.primary)
			p.primary.SetEtcd(netfault.Fault{}) // resets the connections
			do(err)
			e.load.answers(ctx, answersPerWait)
		}
		e.sameTerm(ctx, p.term, "an answer was lost")
		e.result.Counts["answers_lost"] += int64(head - applied)
		e.did("etcd had applied commit %d, the primary knew of %d; it went on", head, applied)
	})
	if read := e.result.Counts["commits_read"]; e.Break == "" {
		e.result.check("the journal is there", read > 0, "the judge has read %d commits of the journal", read)
	}
}

// openCommit waits until the primary's writer hangs. It returns the sequence that the
// primary has applied, and the head in etcd. The head is higher if the lost answer was that
// to a commit. If it was another one, such as that to the lease of the next records, both
// are the same.
func (e *Env) openCommit(ctx context.Context, primary *cluster.Node) (applied, head uint64, err error) {
	const still = 100 * time.Millisecond // without a commit
	since := e.Now()
	err = cluster.Poll(ctx, e.SessionTTL/2, "the primary's writer hangs", func(ctx context.Context) (bool, error) {
		at, err := e.cluster.Head(ctx)
		if err != nil {
			return false, err
		}
		d, err := primary.Admin.Digest(ctx, &pb.DigestRequest{})
		if err != nil {
			return false, err
		}
		if uint64(at.Head.Seq) != head || d.GetSequence() != applied {
			since = e.Now()
		}
		applied, head = d.GetSequence(), uint64(at.Head.Seq)
		return e.Now()-since >= still, nil
	})
	return applied, head, err
}
