package drill

import (
	"cmp"
	"context"
	"syscall"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
)

// The drill in which etcd stops for a moment, again and again.

// stallEtcd stops etcd at random times, for a moment or for a few seconds; with Stall always
// for the same time.
func stallEtcd(ctx context.Context, e *Env) {
	if e.Stall > 0 {
		e.sameStalls(ctx)
		return
	}
	lasts := cmp.Or(e.Duration, 10*time.Minute)
	if e.Short {
		lasts = 15 * time.Second
	}
	const least, spread = 300 * time.Millisecond, 2700 * time.Millisecond
	e.episode(ctx, episode{work: &work{rate: defaultRate / 5}}, func(ctx context.Context) {
		p := e.ready(ctx)
		long, raised := 0, false
		for end := e.Now() + lasts; e.Now() < end && !e.noticed(); e.result.Rounds++ {
			e.letWork(ctx)
			stall := least + time.Duration(e.rng.Int64N(int64(spread)))
			if e.Short && e.result.Rounds < 3 {
				stall = e.window() // commits are slow, but there is no failover
			}
			e.stall(ctx, stall)
			if stall > e.Failover {
				long++
			}
			raised = raised || e.raised(ctx)
		}
		_, now := e.primary(ctx, 0)
		failovers := int(now - p.term)
		e.result.check("one failover a stall", failovers <= long, "%d failovers in %d stalls, %d of them longer than %v", failovers, e.result.Rounds, long, e.Failover)
		e.result.check("the window is raised", raised, "after %d stalls a head carried more than %v: %t", e.result.Rounds, e.Failover, raised)
		e.did("etcd stalled %d times, %d of them for more than %v: %d failovers, window raised: %t", e.result.Rounds, long, e.Failover, failovers, raised)
	})
}

// stallLoad is how many puts a second a bulk tries while etcd stalls: more than two cores
// can handle.
const stallLoad = 10_000

// sameStalls stops etcd for Stall, once in each Every, under full load. No node may take over.
func (e *Env) sameStalls(ctx context.Context) {
	lasts := cmp.Or(e.Duration, time.Hour)
	ep := episode{work: &work{keys: 2048, memory: 1 << 20, rate: defaultRate / 10, evicts: true}}
	e.episode(ctx, ep, e.underPressure(stallLoad, func(ctx context.Context) {
		p := e.working(ctx)
		first := must(e.cluster.Head(ctx)).Head.Seq
		for end := e.Now() + lasts; e.Now() < end && !e.noticed(); e.result.Rounds++ {
			do(clock.Sleep(ctx, e.Every-e.Stall))
			e.stall(ctx, e.Stall)
		}
		last, term := e.primary(ctx, 0)
		takeovers := int64(term - p.term)
		lapses := int64(must(last.Metrics(ctx))["understudy_serve_lapses_total"])
		e.result.Counts["takeovers"], e.result.Counts["serve_lapses"] = takeovers, lapses
		e.result.Counts["commits"] = int64(must(e.cluster.Head(ctx)).Head.Seq - first)
		e.result.check("no takeover", takeovers == 0, "the term was %d and is %d, after %d stalls of %v", p.term, term, e.result.Rounds, e.Stall)
		e.did("etcd stalled %d times for %v under %d commits: %d takeovers; the primary answered nobody %d times", e.result.Rounds, e.Stall,
			e.result.Counts["commits"], takeovers, lapses)
	}))
}

// stall stops etcd for a while, and waits until clients are served again. In that time no two
// nodes may answer at once.
func (e *Env) stall(ctx context.Context, lasts time.Duration) {
	calls := e.probeAll(ctx)
	defer calls.stop()
	e.load.Mark("SIGSTOP of etcd")
	m := e.cluster.Members[0]
	do(m.Signal(syscall.SIGSTOP))
	err := clock.Sleep(ctx, lasts)
	do(m.Signal(syscall.SIGCONT))
	do(err)
	e.load.answers(ctx, 50)
	answers := calls.end()
	e.oneAtATime(answers)
	e.result.Counts["probes"] += int64(len(answers))
}
