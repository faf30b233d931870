package rpcbench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/bench/caller"
)

// A call is what a cell measures: one or more RPCs, one after the other, for the same keys.
type call struct {
	name string
	keys func(w *worker) []string // of the next round; nil if there are none any more
	rpcs []rpc
}

type rpc struct {
	name string
	do   func(c caller.Caller, keys []string) error
}

// calls returns all calls that can be measured, in the order of measurement. Removals
// come last, since they remove what the puts of the same cell have put.
func calls() []call {
	return []call{
		{"get", (*worker).stored, []rpc{{"GetReplicaList", caller.Caller.Get}}},
		{"exist", (*worker).stored, []rpc{{"ExistKey", caller.Caller.Exist}}},
		{"put", (*worker).fresh, []rpc{{"PutStart", caller.Caller.PutStart}, {"PutEnd", caller.Caller.PutEnd}}},
		{"remove", (*worker).leftover, []rpc{{"Remove", caller.Caller.Remove}}},
	}
}

// CallNames returns the names of the calls that can be measured.
func CallNames() []string {
	var names []string
	for _, c := range calls() {
		names = append(names, c.name)
	}
	return names
}

// A shape is the shape of the load of some cells.
type shape struct {
	connections, batch int
	think              time.Duration
	choice             Choice
}

func (s shape) String() string {
	text := fmt.Sprintf("%d connections, %d keys a call", s.connections, s.batch)
	if s.think > 0 {
		text += fmt.Sprintf(", %v between calls", s.think)
	}
	if s.choice != Uniform {
		text += ", " + string(s.choice)
	}
	return text
}

func (o *Options) shapes() (all []shape) {
	for _, connections := range o.Connections {
		for _, batch := range o.Batches {
			for _, think := range o.Thinks {
				for _, choice := range o.Choices {
					all = append(all, shape{connections, batch, think, choice})
				}
			}
		}
	}
	return all
}

// A group is the cells of one shape.
type group struct {
	shape
	target  *target
	pool    []string
	options *Options
	space   uint16 // of the first protocol's keys; the next ones are the others'
}

// run measures the cells, the protocols in turn, and leaves no object of theirs
// behind.
func (g *group) run(ctx context.Context) (cells []Cell, err error) {
	var loads []*load
	defer func() {
		for _, l := range loads {
			l.disconnect()
		}
	}()
	for i, p := range g.options.Protocols {
		l, err := g.connect(ctx, p, g.space+uint16(i))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		loads = append(loads, l)
	}
	wanted := func(name string) bool { return slices.Contains(g.options.Calls, name) }
	for _, call := range calls() {
		if !wanted(call.name) && (call.name != "put" || !wanted("remove")) {
			continue
		}
		for _, l := range loads {
			cell, err := l.measure(ctx, call, g.options.Duration)
			if err != nil {
				return nil, err
			}
			if wanted(call.name) {
				cells = append(cells, cell)
			}
		}
	}
	for _, l := range loads {
		if err := l.clean(ctx); err != nil {
			return nil, err
		}
	}
	return cells, nil
}

// A load is the workers of a group that speak one protocol.
type load struct {
	*group
	protocol Protocol
	clock    clock.Clock
	workers  []*worker
}

// connect makes the workers, and lets each make a call, so that it is connected.
func (g *group) connect(ctx context.Context, p Protocol, space uint16) (*load, error) {
	l := &load{group: g, protocol: p, clock: clock.Boot()}
	var zipf *zipf
	if g.choice == Zipf {
		zipf = newZipf(len(g.pool) / g.batch)
	}
	for i := range g.connections {
		c, err := caller.Dial(ctx, p, g.target.master.RPC)
		if err != nil {
			l.disconnect()
			return nil, err
		}
		w := newWorker(c, g.pool, g.batch, space, uint16(i))
		w.zipf = zipf
		l.workers = append(l.workers, w)
		if g.think == 0 {
			continue
		}
		if w.thinker, err = newThinker(g.think); err != nil {
			l.disconnect()
			return nil, err
		}
	}
	if err := l.each(ctx, connectTime, func(w *worker) error { return w.caller.Exist(w.stored()) }); err != nil {
		l.disconnect()
		return nil, err
	}
	return l, nil
}

func (l *load) disconnect() {
	for _, w := range l.workers {
		_ = w.caller.Close()
		if w.thinker != nil {
			_ = w.thinker.Close()
		}
	}
}

const (
	// answerTime is how long a master may take for the last answers of a cell.
	answerTime = 30 * time.Second
	// connectTime is how long a connection may take for its first answer.
	connectTime = 10 * time.Second
	// cleanTime is how long the removal of a cell's remaining objects may take.
	cleanTime = 5 * time.Minute
)

// each calls do for all workers at the same time. It closes the connections of workers that
// take longer than most.
func (l *load) each(ctx context.Context, most time.Duration, do func(*worker) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("the master does not answer within %v", most))
	defer cancel()
	stop := context.AfterFunc(ctx, l.disconnect)
	defer stop()
	var g errgroup.Group
	for _, w := range l.workers {
		g.Go(func() error { return do(w) })
	}
	err := g.Wait()
	if err != nil && ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}

// measure makes calls for a while, or until a worker has none to make.
func (l *load) measure(ctx context.Context, c call, d time.Duration) (cell Cell, err error) {
	var over atomic.Bool
	until := l.clock() + d
	return l.count(ctx, c, d+answerTime, func(w *worker) error {
		defer over.Store(true)
		return w.play(l.clock, c, func() bool { return l.clock() >= until || over.Load() })
	})
}

// repeat lets each worker make a call a number of times, which takes about d.
func (l *load) repeat(ctx context.Context, c call, times int, d time.Duration) (Cell, error) {
	return l.count(ctx, c, 20*d+answerTime, func(w *worker) error {
		left := times
		return w.play(l.clock, c, func() bool { left--; return left < 0 })
	})
}

// count measures a call while each worker runs do.
func (l *load) count(ctx context.Context, c call, most time.Duration, do func(*worker) error) (cell Cell, err error) {
	for _, w := range l.workers {
		w.begin(c)
	}
	before, err := l.target.cpu()
	if err != nil {
		return cell, err
	}
	begun := l.clock()
	if err := l.each(ctx, most, do); err != nil {
		return cell, fmt.Errorf("%s over %s: %w", c.name, l.protocol, err)
	}
	took := (l.clock() - begun).Seconds()
	after, err := l.target.cpu()
	if err != nil {
		return cell, err
	}
	return l.cell(c, took, after.since(before)), nil
}

// cell puts the workers' counts together.
func (l *load) cell(c call, took float64, cpu spent) Cell {
	cell := Cell{
		HA: l.target.mode, Connections: l.connections, Batch: l.batch, Call: c.name, Protocol: l.protocol,
		ThinkMicros: micros(l.think), Choice: l.choice,
		Seconds: took, ServerProcessors: cpu.master / took, OtherProcessors: cpu.others / took,
	}
	for i, r := range c.rpcs {
		all := newHistogram()
		for _, w := range l.workers {
			all.Merge(w.times[i])
		}
		cell.Calls += all.TotalCount()
		cell.Keys = all.TotalCount() * int64(l.batch)
		name := r.name
		if l.batch > 1 {
			name = "Batch" + name
		}
		cell.Latency = append(cell.Latency, Latency{
			RPC: name, P50: all.ValueAtPercentile(50), P90: all.ValueAtPercentile(90), P99: all.ValueAtPercentile(99), P999: all.ValueAtPercentile(99.9), Max: all.Max(),
		})
	}
	var thought time.Duration
	for _, w := range l.workers {
		thought += w.thought
	}
	cell.CallsPerSecond = float64(cell.Calls) / took
	cell.KeysPerSecond = float64(cell.Keys) / took
	if cell.Calls > 0 {
		cell.ServerMicrosPerCall = cpu.master * 1e6 / float64(cell.Calls)
		cell.ServerMicrosPerKey = cpu.master * 1e6 / float64(cell.Keys)
		cell.ThoughtMicros = micros(thought) / float64(cell.Calls)
	}
	return cell
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// clean removes the objects that puts have left.
func (l *load) clean(ctx context.Context) error {
	err := l.each(ctx, cleanTime, func(w *worker) error {
		defer func(batch int) { w.batch = batch }(w.batch)
		w.batch = fillBatch
		for {
			keys := w.leftover()
			if keys == nil {
				return nil
			}
			if err := w.caller.Remove(keys); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("removing over %s what was put: %w", l.protocol, err)
	}
	return nil
}

// A worker makes calls on one connection, one at a time.
type worker struct {
	caller       caller.Caller
	pool         []string
	batch        int
	random       *rand.Rand
	zipf         *zipf         // nil for a uniform choice
	thinker      *thinker      // nil for no pause between calls
	thought      time.Duration // total of the pauses during the call
	first        uint64        // number of its first key
	put, removed uint64        // how many of its keys were put, and removed
	keys         []string
	times        []*hdrhistogram.Histogram // µs, of each RPC of the call
}

func newWorker(c caller.Caller, pool []string, batch int, space, id uint16) *worker {
	return &worker{
		caller: c, pool: pool, batch: batch, random: rand.New(rand.NewPCG(uint64(space), uint64(id))),
		first: uint64(space)<<48 | uint64(id)<<32, // of 2^32 keys
	}
}

// newHistogram counts microseconds up to a minute, to 1 %.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Minute.Microseconds(), 2)
}

func (w *worker) begin(c call) {
	w.times, w.thought = w.times[:0], 0
	for range c.rpcs {
		w.times = append(w.times, newHistogram())
	}
}

func (w *worker) play(now clock.Clock, c call, over func() bool) error {
	for at := now(); !over(); {
		keys := c.keys(w)
		if keys == nil {
			return nil
		}
		for i, r := range c.rpcs {
			if err := r.do(w.caller, keys); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			done := now()
			_ = w.times[i].RecordValue((done - at).Microseconds()) // each bounds it below a minute
			if at = done; w.thinker == nil {
				continue
			}
			if err := w.thinker.pause(); err != nil {
				return err
			}
			at = now()
			w.thought += at - done
		}
	}
	return nil
}

func (w *worker) stored() []string {
	var from int
	if w.zipf == nil {
		from = w.random.IntN(len(w.pool) - w.batch + 1)
	} else {
		from = w.batch * w.zipf.next(w.random)
	}
	return w.pool[from : from+w.batch]
}

func (w *worker) fresh() []string {
	w.put += uint64(w.batch)
	return w.names(w.put-uint64(w.batch), w.put)
}

func (w *worker) leftover() []string {
	from := w.removed
	w.removed = min(from+uint64(w.batch), w.put)
	return w.names(from, w.removed)
}

// names returns the worker's keys for a range of numbers. They are valid until the next call
// of names.
func (w *worker) names(from, to uint64) []string {
	if from == to {
		return nil
	}
	w.keys = w.keys[:0]
	for ; from < to; from++ {
		w.keys = append(w.keys, keyOf(w.first+from))
	}
	return w.keys
}

// keyOf returns the key of a number, of 40 bytes.
func keyOf(n uint64) string { return caller.Key("model-7b/layer-00/block-", n) }
