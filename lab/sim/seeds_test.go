package sim

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

var (
	runs    = flag.Int("sim.runs", 40, "how many seeds to run")
	from    = flag.Uint64("sim.from", 1, "the first seed to run")
	replays = flag.Int("sim.replays", 5, "how many seeds to play twice")
	seed    = flag.Uint64("sim.seed", 0, "the one seed to run, with its transcript; 0 for -sim.runs of them")
)

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400) // seeds are many and small: a third of their time would be collecting
	goleak.VerifyTestMain(m)
}

// faultsOfARun is how many faults one seed has, one after another.
const faultsOfARun = 6

// An outcome is what one seed came to.
type outcome struct {
	broken     []string
	acks       int
	transcript string
	exact      []string      // the transcript, line by line, to the nanosecond
	elapsed    time.Duration // virtual
}

// run plays one seed with faults of some kinds.
func run(t *testing.T, seed uint64, kinds []string) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed)
		defer w.end()
		rng := rand.New(rand.NewPCG(seed, 0))
		w.begin("a", "b", "c")
		w.mount(1)
		ctx, stop := context.WithCancel(context.Background())
		var working sync.WaitGroup
		callers := w.callers(4, 2, seed)
		for _, c := range callers {
			working.Go(func() { c.work(ctx) })
		}
		working.Go(func() { w.watchOver(ctx) })
		w.play(schedule(rng, faultsOfARun, kinds))
		if !w.settle() {
			w.judge.find("LIVE", "the nodes are not healthy %v after the last fault", awaitTimeout)
		}
		stop()
		working.Wait()
		w.verify(callers[0])
		o = outcome{w.judge.broken(), w.judge.acknowledged(), w.transcript.String(), w.transcript.exact(), w.transcript.now()}
	})
	return o
}

// verify reads everything once more, and compares the nodes.
func (w *world) verify(c *caller) {
	for _, key := range c.all {
		if err := c.get(key); err == errNobody {
			w.judge.find("LIVE", "no node serves at the end, want one")
		}
	}
	w.equal()
	w.compare()
	if p := w.serving(); p != nil {
		at := p.Store().Position()
		w.transcript.note("--", "%s is at sequence %d with digest %v", p.id, at.Seq, at.Digest)
	}
}

func TestSeeds(t *testing.T) {
	if *seed != 0 {
		o := run(t, *seed, kinds())
		t.Logf("seed %d, %d acknowledged calls in %v:\n%s", *seed, o.acks, o.elapsed, o.transcript)
		for _, b := range o.broken {
			t.Error(b)
		}
		return
	}
	var mu sync.Mutex
	var acks int
	var elapsed time.Duration
	t.Cleanup(func() { t.Logf("%d seeds, %d acknowledged calls in %v of virtual time", *runs, acks, elapsed) })
	for i := range *runs {
		seed := *from + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			o := run(t, seed, kinds())
			mu.Lock()
			acks, elapsed = acks+o.acks, elapsed+o.elapsed
			mu.Unlock()
			for _, b := range o.broken {
				t.Error(b)
			}
			if t.Failed() {
				t.Logf("again: go test ./lab/sim -run Seeds -sim.seed=%d -v", seed)
			}
		})
	}
}

// A seed plays the same again, to the nanosecond.
func TestReplay(t *testing.T) {
	for i := range *replays {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Parallel()
			seed := *from + uint64(i)
			first, second := run(t, seed, kinds()), run(t, seed, kinds())
			if n, a, b := difference(first.exact, second.exact); n >= 0 {
				t.Errorf("line %d of the second play: got %q, want %q as in the first", n, b, a)
			}
		})
	}
}

// difference returns the first line in which two transcripts differ, -1 for
// none.
func difference(a, b []string) (n int, inA, inB string) {
	for i := range max(len(a), len(b)) {
		inA, inB = "nothing", "nothing"
		if i < len(a) {
			inA = a[i]
		}
		if i < len(b) {
			inB = b[i]
		}
		if inA != inB {
			return i, inA, inB
		}
	}
	return -1, "", ""
}
