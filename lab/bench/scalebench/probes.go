package scalebench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/bench/caller"
)

// A probe makes calls of one kind at a steady rate, over Mooncake's protocol. It looks for
// the primary like a client: it tries one node after the other. A call that takes longer
// than the interval delays the next ones. Each of these counts as well, with the rest of the
// wait, so that a pause counts as it would for callers that do not wait for one another.
type probe struct {
	name  string
	every time.Duration
	do    func(c caller.Caller, n int) error // the n-th call

	of     *probes
	at     int // address that is used
	caller caller.Caller
}

const (
	// batchKeys is the size of a batch.
	batchKeys = 128
	// probeTimeout bounds a call. When it has passed, the probe closes the connection.
	probeTimeout = 5 * time.Second
	// again is the pause after a call that failed.
	again = 2 * time.Millisecond
)

// probes are all probes. Their latencies count for the task that is measured.
type probes struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup
	clock  clock.Clock
	list   []*probe

	mu        sync.Mutex // guards the rest
	times     map[string]*hdrhistogram.Histogram
	addresses []string // of the nodes
}

// startProbes starts one probe each of single reads, batches of reads, and puts. Together
// they take a small part of one CPU.
func (w *world) startProbes(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	p := &probes{cancel: cancel, clock: w.clock}
	random := func() int { return rand.IntN(w.stays.objects) }
	keys := make([]string, batchKeys)
	p.list = []*probe{
		{name: "Get", every: 2 * time.Millisecond, do: func(c caller.Caller, _ int) error { return answer(c.Get([]string{w.stays.key(random())})) }},
		{name: "BatchGet 128", every: 10 * time.Millisecond, do: func(c caller.Caller, _ int) error {
			for i := range keys {
				keys[i] = w.stays.key(random())
			}
			return answer(c.Get(keys))
		}},
		{name: "Put", every: 20 * time.Millisecond, do: func(c caller.Caller, n int) error {
			c.Prefer([]string{spareSegment})
			key := []string{kind{prefix: "probe-7b/layer-00/block-"}.key(n)}
			if err := c.PutStart(key); err != nil {
				return err
			}
			return c.PutEnd(key)
		}},
	}
	w.probes = p
	p.reset()
	w.findNodes()
	for _, one := range p.list {
		one.of = p
		p.ended.Go(func() { p.run(ctx, one) })
	}
}

// findNodes tells the probes where the nodes listen. A node that was started again listens at
// another address.
func (w *world) findNodes() {
	w.probes.mu.Lock()
	defer w.probes.mu.Unlock()
	w.probes.addresses = nil
	for _, n := range w.Nodes {
		w.probes.addresses = append(w.probes.addresses, n.RPC)
	}
}

// address returns the i-th address; there are as many as nodes.
func (p *probes) address(i int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addresses[i%len(p.addresses)]
}

// answer returns the error of a read that was not answered: that there is no such object, since
// it was evicted, is an answer.
func answer(err error) error {
	if errs.KindOf(err) == errs.ObjectNotFound {
		return nil
	}
	return err
}

func (p *probes) close() {
	p.cancel()
	p.ended.Wait()
}

func (p *probes) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times = make(map[string]*hdrhistogram.Histogram)
	for _, one := range p.list {
		p.times[one.name] = hdrhistogram.New(1, (10 * time.Minute).Microseconds(), 2)
	}
}

// counts returns what was counted since the reset, once there is a call of each kind.
func (p *probes) counts(ctx context.Context) (all []Calls, err error) {
	for {
		if all = p.counted(); all != nil {
			return all, nil
		}
		if err := clock.Sleep(ctx, again); err != nil {
			return nil, err
		}
	}
}

// answered waits until each probe has got another answer, from the primary that there is now.
func (p *probes) answered(ctx context.Context) error {
	sum := func() (n []int64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, one := range p.list {
			n = append(n, p.times[one.name].TotalCount())
		}
		return n
	}
	for before := sum(); ; {
		now, more := sum(), true
		for i := range now {
			more = more && now[i] > before[i]
		}
		if more {
			return nil
		}
		if err := clock.Sleep(ctx, again); err != nil {
			return fmt.Errorf("callers have had no answer since the takeover: %w", err)
		}
	}
}

// counted is nil while a kind has no call.
func (p *probes) counted() (all []Calls) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.list {
		h := p.times[one.name]
		if h.TotalCount() == 0 {
			return nil
		}
		all = append(all, Calls{one.name, h.TotalCount(), h.ValueAtPercentile(50), h.ValueAtPercentile(99), h.Max()})
	}
	return all
}

func (p *probes) run(ctx context.Context, one *probe) {
	defer one.close()
	for n := 0; ; n++ {
		begun := p.clock()
		if !one.until(ctx, n) {
			return
		}
		took := p.clock() - begun
		p.mu.Lock()
		_ = p.times[one.name].RecordCorrectedValue(took.Microseconds(), one.every.Microseconds())
		p.mu.Unlock()
		if clock.Sleep(ctx, one.every-took) != nil {
			return
		}
	}
}

// until makes a call until it succeeds; false when the context ended.
func (o *probe) until(ctx context.Context, n int) bool {
	for o.call(ctx, n) != nil {
		o.close()
		o.at++
		if clock.Sleep(ctx, again) != nil {
			return false
		}
		n += 1 << 40 // another key: a put that was begun may be in the journal
	}
	return true
}

func (o *probe) call(ctx context.Context, n int) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, fmt.Errorf("no answer within %v", probeTimeout))
	defer cancel()
	if o.caller == nil {
		if o.caller, err = caller.Dial(ctx, caller.Mooncake, o.of.address(o.at)); err != nil {
			return err
		}
	}
	c := o.caller
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	return o.do(c, n)
}

func (o *probe) close() {
	if o.caller != nil {
		_ = o.caller.Close()
		o.caller = nil
	}
}
