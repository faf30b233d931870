package sim

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

var (
	runs = flag.Int("sim.runs", 200, "how many seeds to run")
	from = flag.Uint64("sim.from", 1, "the first seed to run")
	seed = flag.Uint64("sim.seed", 0, "the one seed to run, with its transcript; 0 for -sim.runs of them")
)

func TestMain(m *testing.M) {
	flag.Parse()
	prepare()
	goleak.VerifyTestMain(m)
}

// faultsOfARun is how many faults one seed has, one after another.
const faultsOfARun = 6

// An outcome is what one seed came to.
type outcome struct {
	broken     []string
	acks       int
	transcript string
	seen       map[string][]string // by whom
	elapsed    time.Duration       // virtual
}

// run plays one seed with faults of some kinds.
func run(t *testing.T, seed uint64, kinds []string) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed)
		defer w.end()
		rng := rand.New(rand.NewPCG(seed, 0))
		w.begin("a", "b", "c")
		ctx, stop := context.WithCancel(context.Background())
		var working sync.WaitGroup
		callers := w.callers(4, 2, seed)
		for _, c := range callers {
			working.Go(func() { c.work(ctx) })
		}
		working.Go(func() { w.watchOver(ctx) })
		w.play(schedule(rng, faultsOfARun, kinds))
		if !w.settle() {
			w.judge.find("LIVE", "the nodes are not well %v after the last fault", patience)
		}
		stop()
		working.Wait()
		w.verify(callers[0])
		o = outcome{w.judge.broken(), w.judge.acknowledged(), w.script.String(), w.script.seen(), w.script.now()}
	})
	return o
}

// verify reads everything once more, and compares the nodes.
func (w *world) verify(c *caller) {
	for _, key := range c.all {
		if err := c.get(key); err == errNobody {
			w.judge.find("LIVE", "nobody serves at the end")
		}
	}
	w.equal()
	w.compare()
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
				t.Logf("again: go test ./internal/sim -run Seeds -sim.seed=%d -v", seed)
			}
		})
	}
}

// replays is how many seeds TestReplay plays twice, and most how many of them
// must do the same again. The others differ by the order of goroutines at one
// instant, or by the jitter of a retry.
const (
	replays = 20
	most    = 15
)

// A seed does the same again: the same faults at the same times always, and in
// nearly all seeds every caller gets the same answers in the same order and
// every node goes through the same.
func TestReplay(t *testing.T) {
	var mu sync.Mutex
	same := 0
	t.Cleanup(func() {
		t.Logf("%d of %d seeds did the same again", same, replays)
		if same < most {
			t.Errorf("only %d of %d seeds did the same again", same, replays)
		}
	})
	for i := range replays {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Parallel()
			first, second := run(t, uint64(i+1), kinds()), run(t, uint64(i+1), kinds())
			if len(first.broken) != len(second.broken) {
				t.Errorf("the verdict was %q, and now is %q", first.broken, second.broken)
			}
			who, a, b := difference(first.seen, second.seen)
			if who == "" {
				mu.Lock()
				defer mu.Unlock()
				same++
				return
			}
			t.Logf("%s: %q, and again: %q", who, a, b)
		})
	}
}

// difference returns the first difference in what somebody saw, in two runs.
func difference(a, b map[string][]string) (who, inA, inB string) {
	for _, who := range slices.Sorted(maps.Keys(a)) {
		for i := range max(len(a[who]), len(b[who])) {
			inA, inB = "nothing", "nothing"
			if i < len(a[who]) {
				inA = a[who][i]
			}
			if i < len(b[who]) {
				inB = b[who][i]
			}
			if inA != inB {
				return who, inA, inB
			}
		}
	}
	return "", "", ""
}
