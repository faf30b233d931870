package drill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/config"
)

// An Env is what a drill works with while it runs.
type Env struct {
	Options
	Now clock.Clock // the one of the recorded clients

	drill   Drill
	dir     string
	rng     *rand.Rand
	result  *Result
	cluster *cluster // of the episode
	load    *load    // of the episode, once it works
	pressed *bulk    // of a round under pressure
	number  int      // of the episode
	began   time.Duration
}

// did tells and keeps what was done.
func (e *Env) did(format string, args ...any) {
	text := fmt.Sprintf("%7.1f s  ", (e.Now()-e.began).Seconds()) + fmt.Sprintf(format, args...)
	e.result.Did = append(e.result.Did, text)
	e.Progress(text)
}

// An episode is a fresh cluster under load, what is done to it, and what the
// judge says of it.
type episode struct {
	shape
	work   *work                       // of the recorded clients; nil for none
	before func(context.Context) error // runs before they begin; may be nil
}

// episode plays one.
func (e *Env) episode(ctx context.Context, ep episode, body func(ctx context.Context) error) (err error) {
	e.complete(&ep.shape)
	e.number++
	dir := filepath.Join(e.dir, fmt.Sprintf("episode-%d", e.number))
	if e.cluster, err = start(ctx, dir, ep.shape, e.Options); err != nil {
		return fmt.Errorf("starting the cluster: %w", err)
	}
	defer func() { e.cluster.stop() }()
	if ep.before != nil {
		if err := ep.before(ctx); err != nil {
			return err
		}
	}
	if ep.work != nil {
		if e.load, err = startLoad(ctx, e.cluster, *ep.work, e.Seed+uint64(e.number)); err != nil {
			return fmt.Errorf("starting the clients: %w", err)
		}
		defer func() {
			err = errors.Join(err, e.load.end(dir, err != nil || e.result.failing()))
			e.load = nil
		}()
	}
	err = body(ctx)
	if err == nil && e.load != nil {
		err = e.judge(ctx)
	}
	if ep.work != nil { // else nobody expects the state to last
		err = errors.Join(err, e.confessed())
	}
	return err
}

// complete fills in what a shape leaves to the options.
func (e *Env) complete(s *shape) {
	if s.nodes == 0 {
		s.nodes = 2
	}
	if s.sessionTTL == 0 {
		s.sessionTTL = e.SessionTTL
	}
	if s.eventsTTL == 0 {
		s.eventsTTL = max(e.EventsTTL, s.sessionTTL+time.Second)
	}
	if s.leaseTTL == 0 {
		s.leaseTTL = time.Second
	}
}

// perEpisode bounds the rounds against one cluster, so that the histories stay
// short enough to judge.
const perEpisode = 10

// rounds plays the drill's rounds, some in each episode.
func (e *Env) rounds(ctx context.Context, ep episode, round func(ctx context.Context) error) error {
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
	if e.Break != "" {
		most = 1 // to notice early
	}
	for !enough() {
		err := e.episode(ctx, ep, func(ctx context.Context) error {
			for i := 0; i < most && !enough(); i++ {
				if err := round(ctx); err != nil {
					return fmt.Errorf("round %d: %w", e.result.Rounds+1, err)
				}
				e.result.Rounds++
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// noticed reports whether a control has seen what it is for; without a control,
// whether anything is seen of a safeguard that is left out.
func (e *Env) noticed() bool {
	if len(e.notices) == 0 {
		return e.Break != "" && e.result.broken()
	}
	return e.result.notices(e.notices)
}

// notices reports whether the promise of one of some letters was seen broken, or
// the check of one of some names has failed.
func (r *Result) notices(any []string) bool {
	return slices.ContainsFunc(any, func(what string) bool {
		return r.Violations[what] > 0 || slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Name == what && !c.OK })
	})
}

// broken reports whether a promise was seen broken.
func (r *Result) broken() bool {
	for _, n := range r.Violations {
		if n > 0 {
			return true
		}
	}
	return false
}

// failing reports whether a promise was broken or something else that must hold
// did not.
func (r *Result) failing() bool {
	return r.broken() || slices.ContainsFunc(r.Checks, func(c Check) bool { return !c.OK })
}

// answersPerWait is about how many answers the clients get while a drill lets
// them work.
const answersPerWait = 500

// letWork waits until the clients have got some more answers, how many is left
// to chance: so that the fault comes at any moment of their work.
func (e *Env) letWork(ctx context.Context) error {
	return e.load.answers(ctx, answersPerWait/2+e.rng.Int64N(answersPerWait))
}

// failover takes the primary away and notes the outage, if there are clients who
// can tell. It returns the next primary.
func (e *Env) failover(ctx context.Context, old *node, term uint64, how string, takeAway func() error) (*node, uint64, error) {
	var since time.Duration
	if e.load != nil {
		e.load.Mark(how + " " + old.name)
		since = e.load.Now()
	}
	if err := takeAway(); err != nil {
		return nil, 0, fmt.Errorf("%s %s: %w", how, old.name, err)
	}
	e.cluster.avoid(old)
	next, newTerm, err := e.cluster.primary(ctx, term)
	if err != nil {
		return nil, 0, err
	}
	if e.load == nil {
		e.did("%s %s; %s serves in term %d", how, old.name, next.name, newTerm)
		return next, newTerm, nil
	}
	if err := e.load.answers(ctx, 50); err != nil {
		return nil, 0, err
	}
	outage := e.load.Outage(since)
	e.result.outages = append(e.result.outages, outage)
	e.did("%s %s; %s serves in term %d; outage %d ms", how, old.name, next.name, newTerm, outage.Milliseconds())
	return next, newTerm, nil
}

// readyPair waits until a node serves and another one could take over.
func (e *Env) readyPair(ctx context.Context) (primary *node, term uint64, standby *node, err error) {
	if primary, term, err = e.cluster.primary(ctx, 0); err != nil {
		return nil, 0, nil, err
	}
	if standby, err = e.cluster.anyPromotable(ctx, primary); err == nil {
		e.cluster.enter(standby)
	}
	return primary, term, standby, err
}

// restart starts a node again, as an operator would.
func (e *Env) restart(ctx context.Context, n *node) error {
	role := config.Standby
	if e.rng.IntN(2) == 0 {
		role = config.Primary // joins as a standby all the same
	}
	return e.cluster.startNode(ctx, n, role)
}

// wait lets time pass that is part of a fault itself, such as how long a process
// stays stopped.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// atRest waits until the cluster has come to rest, with all nodes alive: whom a
// drill has killed it has started again by now.
func (e *Env) atRest(ctx context.Context) error {
	e.allLive()
	err := e.cluster.settled(ctx)
	if err != nil && ctx.Err() == nil {
		e.result.violate("S", 1, "the cluster does not come to rest: "+err.Error())
	}
	return err
}

// judge ends the load and judges the episode, when the cluster has come to rest.
func (e *Env) judge(ctx context.Context) error {
	if err := e.atRest(ctx); err != nil {
		return err
	}
	v, err := e.load.judge(ctx, e.cluster)
	if err != nil {
		return fmt.Errorf("judging: %w", err)
	}
	e.found(v.Verdict)
	for name, n := range v.counts {
		e.result.Counts[name] += n
	}
	e.did("judged %d calls, the slowest took %v; read %d commits of the journal", v.counts["calls"], v.slowest.Round(time.Millisecond), v.Commits)
	return nil
}

// Run runs a drill. What it finds is in the result, also if it could not run to
// its end. The end of the context stops it, and leaves nothing unless something
// was broken by then.
func Run(ctx context.Context, d Drill, o Options) Result {
	o = o.withDefaults()
	r := newResult(d, o)
	err := o.Check()
	if err == nil {
		err = withProgram(ctx, d, o, &r, func(program string) error {
			o.program = program
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
	defer func() {
		r.Seconds = (now() - e.began).Seconds()
		probe := *r
		probe.Verdicts = make(map[string]string)
		interrupted := ctx.Err() != nil && !r.failing()
		if probe.finish(d, err); probe.OK || interrupted {
			_ = os.RemoveAll(dir)
			return
		}
		r.Folder = dir
	}()
	return d.run(ctx, e)
}
