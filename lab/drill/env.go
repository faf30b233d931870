package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/promote"
)

// An Env is what a drill works with while it runs.
type Env struct {
	Options
	Now clock.Clock // the clock of the recorded clients

	drill   Drill
	dir     string
	rng     *rand.Rand
	result  *Result
	cluster *cluster.Cluster // of the episode
	load    *load            // of the episode, once it works
	pressed *bulk            // of a round under pressure
	number  int              // of the episode
	drains  bool             // letWork must begin a drain job
	job     string           // the drain job that the episode has begun and the primary must know; empty for none
	finals  []string         // calls that ended in a final error
	began   time.Duration
}

func (e *Env) did(format string, args ...any) {
	text := fmt.Sprintf("%7.1f s  ", (e.Now()-e.began).Seconds()) + fmt.Sprintf(format, args...)
	e.result.Did = append(e.result.Did, text)
	e.Progress(text)
}

// An episode is the life of one fresh cluster: load, faults, and the judgement.
type episode struct {
	cluster.Config
	nodes  int                   // default 2
	lone   bool                  // one master without HA
	work   *work                 // of the recorded clients; nil for none
	before func(context.Context) // runs before they begin; may be nil
	once   bool                  // a round needs a cluster of its own
}

const clusterID = "drill"

// brokenPatience bounds each wait for a cluster that lacks a safeguard, since it may
// never do what the drill waits for.
const brokenPatience = 15 * time.Second

func (e *Env) episode(ctx context.Context, ep episode, body func(ctx context.Context)) {
	do(e.play(ctx, ep, body))
}

func (e *Env) play(ctx context.Context, ep episode, body func(ctx context.Context)) (err error) {
	e.number++
	e.complete(&ep)
	if ep.work != nil {
		more, err := ep.work.arguments(ep.Dir, e.tenants(ep.work))
		if err != nil {
			return err
		}
		ep.Args = append(slices.Clone(ep.Args), more...)
	}
	if e.cluster, err = cluster.Start(ctx, ep.Config); err != nil {
		return fmt.Errorf("starting the cluster: %w", err)
	}
	defer func() { e.cluster.Stop() }()
	if ep.work != nil && e.tenants(ep.work) {
		if err := script(func() { e.hasQuotas(ctx) }); err != nil {
			return err
		}
	}
	if ep.before != nil {
		if err := script(func() { ep.before(ctx) }); err != nil {
			return err
		}
	}
	if ep.work == nil { // without recorded clients there is nothing to judge
		return script(func() { body(ctx) })
	}
	if e.load, err = startLoad(ctx, e.cluster, *ep.work, e.Seed+uint64(e.number)); err != nil {
		return fmt.Errorf("starting the clients: %w", err)
	}
	e.drains, e.job = !ep.work.old && e.number%2 == 1, ""
	defer func() {
		err = errors.Join(err, e.load.end(ep.Dir, err != nil || e.result.failing()))
		e.load = nil
	}()
	defer e.lostStates()
	return script(func() {
		body(ctx)
		e.judge(ctx)
	})
}

// complete fills in the fields of an episode that the options determine.
func (e *Env) complete(ep *episode) {
	ep.Dir = filepath.Join(e.dir, fmt.Sprintf("episode-%d", e.number))
	ep.ID, ep.Proxies, ep.Access, ep.Program = clusterID, true, e.Access, cmp.Or(ep.Program, e.program)
	ep.nodes = cmp.Or(ep.nodes, 2)
	if e.OwnEtcd {
		ep.OwnEtcd, ep.nodes = true, 3
		if ep.Witness {
			ep.nodes = 2
		}
	}
	for i := range ep.nodes {
		ep.Names = append(ep.Names, fmt.Sprintf("node-%d", i+1))
	}
	if ep.Etcd == 0 && !ep.lone && !ep.OwnEtcd {
		ep.Etcd = 1
	}
	ep.FailoverAfter = e.Failover
	ep.SessionTTL = cmp.Or(ep.SessionTTL, e.SessionTTL)
	ep.EventsTTL = cmp.Or(ep.EventsTTL, max(e.EventsTTL, ep.SessionTTL+time.Second))
	ep.LeaseTTL = cmp.Or(ep.LeaseTTL, time.Second)
	if e.Break != "" {
		ep.Patience = brokenPatience
	}
}

// perEpisode bounds the rounds against one cluster, so that the histories stay
// short enough to judge.
const perEpisode = 10

// rounds plays the drill's rounds, several in each episode.
func (e *Env) rounds(ctx context.Context, ep episode, round func(ctx context.Context)) {
	n := e.Rounds
	if n == 0 {
		n = e.drill.Rounds
		if e.Short {
			n = (n + 1) / 2
		}
		if e.Duration > 0 {
			n = 1 << 30
		}
	}
	enough := func() bool {
		return e.result.Rounds >= n || e.Duration > 0 && e.Now()-e.began >= e.Duration || e.noticed()
	}
	most := perEpisode
	if e.Break != "" || ep.once {
		most = 1 // so that a control notices early
	}
	for !enough() {
		e.episode(ctx, ep, func(ctx context.Context) {
			for i := 0; i < most && !enough(); i++ {
				if err := script(func() { round(ctx) }); err != nil {
					do(fmt.Errorf("round %d: %w", e.result.Rounds+1, err))
				}
				e.result.Rounds++
			}
		})
	}
}

// noticed reports whether a control has noticed. Without a control it reports whether
// a missing safeguard has broken anything.
func (e *Env) noticed() bool {
	if len(e.notices) == 0 {
		return e.Break != "" && e.result.broken()
	}
	return e.result.notices(e.notices)
}

// answersPerWait is about how many answers the clients get while a drill lets
// them work.
const answersPerWait = 500

// letWork waits until the clients have got a random number of answers, so that the
// fault comes at a random moment of their work.
func (e *Env) letWork(ctx context.Context) {
	e.load.answers(ctx, answersPerWait/2+e.rng.Int64N(answersPerWait))
	if e.drains {
		e.drains = false
		p, _ := e.primary(ctx, 0)
		e.job = must(p.Drain(ctx, e.load.HostName(drained)))
		e.result.Counts["drains"]++
	}
}

// drained is the host whose objects are moved away in every second episode, under its
// first fault.
const drained = 3

// A pair is a primary in a term with a standby that could take over.
type pair struct {
	primary *cluster.Node
	term    uint64
	standby *cluster.Node
}

// ready waits until a node serves, and another one could take over and has caught up. A
// standby that was stopped counts the primary's silence only from when it reads the last
// commit.
func (e *Env) ready(ctx context.Context) (p pair) {
	p.primary, p.term = e.primary(ctx, 0)
	p.standby = must(e.cluster.AnyPromotable(ctx, p.primary))
	do(p.standby.UntilCaughtUp(ctx, p.primary))
	e.cluster.Enter(p.standby)
	return p
}

// working is ready, and lets the clients work.
func (e *Env) working(ctx context.Context) pair {
	p := e.ready(ctx)
	e.letWork(ctx)
	return p
}

// primary waits until a node serves in a term after the given one.
func (e *Env) primary(ctx context.Context, after uint64) (*cluster.Node, uint64) {
	n, term, err := e.cluster.Primary(ctx, after)
	do(err)
	return n, term
}

// sameTerm checks that there was no failover since a term, and returns the current term.
func (e *Env) sameTerm(ctx context.Context, term uint64, after string) (now uint64) {
	_, now = e.primary(ctx, 0)
	e.result.check("no failover", now == term, "the term was %d and is %d, after %s", term, now, after)
	return now
}

// failover takes the primary away, and records the outage if there are recorded clients.
// It returns the next primary and its term.
func (e *Env) failover(ctx context.Context, old *cluster.Node, term uint64, how string, takeAway func() error) (*cluster.Node, uint64) {
	var since time.Duration
	raised := false
	if e.load != nil {
		raised = e.raised(ctx)
		e.load.Mark(how + " " + old.Name)
		since = e.load.Now()
	}
	if err := takeAway(); err != nil {
		do(fmt.Errorf("%s %s: %w", how, old.Name, err))
	}
	e.cluster.Avoid(old)
	next, newTerm, err := e.cluster.Primary(ctx, term)
	e.result.check("somebody takes over", err == nil, "after %s %s: %v", how, old.Name, err)
	do(err)
	if e.load == nil {
		e.did("%s %s; %s serves in term %d", how, old.Name, next.Name, newTerm)
		return next, newTerm
	}
	e.load.answers(ctx, 50)
	outage := e.outage(since, raised)
	e.did("%s %s; %s serves in term %d; outage %d ms", how, old.Name, next.Name, newTerm, outage.Milliseconds())
	return next, newTerm
}

// raised reports whether slow commits have raised the failover time in force.
func (e *Env) raised(ctx context.Context) bool {
	return must(e.cluster.Head(ctx)).Head.FailoverAfter() > e.Failover
}

// outage records how long clients had no answer after a fault. If the failover time was
// raised at the fault, the outage has no bound and is only counted.
func (e *Env) outage(since time.Duration, raised bool) time.Duration {
	took := e.load.Outage(since)
	e.result.outages = append(e.result.outages, took)
	if raised {
		e.result.Counts["rounds_raised"]++
	} else {
		e.result.bounded = append(e.result.bounded, took)
	}
	return took
}

func (e *Env) kill(ctx context.Context, primary *cluster.Node, term uint64) (*cluster.Node, uint64) {
	return e.failover(ctx, primary, term, "SIGKILL of", func() error { primary.Kill(); return nil })
}

// killAndRestart is a round: it kills the primary and starts it again.
func (e *Env) killAndRestart(ctx context.Context) {
	p := e.working(ctx)
	e.kill(ctx, p.primary, p.term)
	e.restart(ctx, p.primary)
}

// restart starts a node again, as an operator would.
func (e *Env) restart(ctx context.Context, n *cluster.Node) {
	do(e.cluster.StartNode(ctx, n, e.anyRole()))
}

// anyRole returns the program as which a node starts again, at random. A master joins as a
// standby, too, while another node serves or holds the state.
func (e *Env) anyRole() promote.Role {
	if e.rng.IntN(2) == 0 {
		return promote.Primary
	}
	return promote.Standby
}

func until(ctx context.Context, limit time.Duration, what string, so func(context.Context) (bool, error)) {
	do(cluster.Poll(ctx, limit, what, so))
}

// atRest waits until the cluster has come to rest. All nodes must be alive: the drill has
// started those again that it killed.
func (e *Env) atRest(ctx context.Context) {
	e.allLive()
	err := e.cluster.Settled(ctx)
	if err != nil && ctx.Err() == nil {
		e.result.violate("S", 1, "the cluster does not come to rest: "+err.Error())
	}
	do(err)
}

// lostStates counts a violation of S for each snapshot that a node had to load
// because its state was not the primary's, or did not fit the journal. The nodes'
// own reports are evidence here, since a snapshot repairs the state and the judge may
// find nothing at the end.
func (e *Env) lostStates() {
	for _, n := range e.cluster.Nodes {
		for reason, count := range n.SnapshotLoads() {
			switch reason {
			case journal.ReasonDigest, journal.ReasonDifference, journal.ReasonCorrupt, journal.ReasonGap:
				if count > 0 {
					e.result.violate("S", count, fmt.Sprintf("%s had to replace its state: %s", n.Name, reason))
				}
			default: // the node was behind, or had just started
			}
		}
	}
}

// drainGoesOn checks that the primary knows the drain job of the episode, and has ended
// it or reports objects that move or are blocked.
func (e *Env) drainGoesOn(ctx context.Context) {
	if e.job == "" {
		return
	}
	p, _ := e.primary(ctx, 0)
	err := cluster.Poll(ctx, time.Minute, "the drain job ends, or has objects that move or are blocked", func(ctx context.Context) (bool, error) {
		j, err := p.DrainJob(ctx, e.job)
		return j.Status == "SUCCEEDED" || j.Status == "FAILED" || j.Status == "RUNNING" && j.Blocked+j.Active > 0, err
	})
	e.result.check("the drain job goes on", err == nil, "on %s: %v", p.Name, err)
}

// judge ends the load and judges the episode, when the cluster has come to rest.
func (e *Env) judge(ctx context.Context) {
	e.atRest(ctx)
	e.drainGoesOn(ctx)
	v, err := e.load.judge(ctx, e.cluster)
	if err != nil {
		do(fmt.Errorf("judging: %w", err))
	}
	e.found(v.Verdict)
	for name, n := range v.counts {
		e.result.Counts[name] += n
	}
	e.finals = append(e.finals, v.finals...)
	e.did("judged %d calls, the slowest took %v; read %d commits of the journal", v.counts["calls"], v.slowest.Round(time.Millisecond), v.Commits)
}

// Run runs a drill. The result has what it found, also if it could not run to its end.
// If the context ends, the drill stops; it keeps its folder only if something was
// broken by then.
func Run(ctx context.Context, d Drill, o Options) Result {
	o = o.withDefaults()
	r := newResult(d, o)
	err := o.Check()
	switch {
	case err != nil:
	case o.OwnEtcd && !d.ownEtcd:
		r.Skipped = "it breaks an etcd that stands apart from the nodes, or more nodes than such a cluster may lose"
	default:
		err = withProgram(ctx, d, o, &r, func(program, old string) error {
			o.program, o.old = program, old
			return run(ctx, d, o, &r)
		})
	}
	r.finish(d, err)
	r.Stopped = ctx.Err() != nil && !r.OK && !r.failing()
	return r
}

func run(ctx context.Context, d Drill, o Options, r *Result) (err error) {
	if o.Dir != "" {
		if err := os.MkdirAll(o.Dir, 0o755); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp(o.Dir, "understudy-drill-"+d.Name+"-*")
	if err != nil {
		return err
	}
	now := clock.Boot()
	e := &Env{Options: o, Now: now, drill: d, dir: dir, rng: rand.New(rand.NewPCG(o.Seed, uint64(d.Number))), result: r, began: now()}
	err = script(func() { d.run(ctx, e) })
	r.Seconds = (now() - e.began).Seconds()
	probe := *r
	probe.Verdicts = make(map[string]string)
	interrupted := ctx.Err() != nil && !r.failing()
	if probe.finish(d, err); probe.OK || interrupted {
		_ = os.RemoveAll(dir)
	} else {
		r.Folder = dir
	}
	return err
}
