package judge

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// A world is a store that keeps its promises, and clients that record it: each
// call takes effect at one moment between its start and its end, or, if its
// answer is lost, at some time later, or never.
type world struct {
	rng      *rand.Rand
	keys     []simulated
	evicts   bool
	lossy    float64 // share of the mutations whose answers are lost
	lastID   client.ObjectID
	due      agenda
	history  []Record
	forgetAt time.Duration // from when on acknowledged objects get lost; 0 for never
}

// A simulated key, and what is under it.
type simulated struct {
	alternative
	since time.Duration
}

// A pending call takes effect at a moment.
type pending struct {
	Record
	at     time.Duration
	late   bool // it is nobody's any more: only its effect is missing
	key    int
	client *simClient
}

type simClient struct {
	number int
	open   *Record // its put under way
	slot   int
}

// An agenda has what is to happen, the next first.
type agenda []*pending

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at < a[j].at }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

// Push adds what is to happen.
func (a *agenda) Push(x any) { *a = append(*a, x.(*pending)) }

// Pop takes out the last.
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func newWorld(seed uint64, keys, clients int) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), keys: make([]simulated, keys)}
	for i := range clients {
		w.next(&simClient{number: i}, time.Duration(w.rng.IntN(1000)))
	}
	return w
}

// simulate runs a world for about so many calls.
func (w *world) simulate(calls int) []Record {
	for len(w.history) < calls {
		p := heap.Pop(&w.due).(*pending)
		w.happen(p)
	}
	slices.SortFunc(w.history, func(a, b Record) int { return cmp.Compare(a.Start, b.Start) })
	return w.history
}

func (w *world) delay() time.Duration {
	return time.Duration(1 + w.rng.IntN(int(2*time.Millisecond)))
}

// next lets a client begin its next call.
func (w *world) next(c *simClient, now time.Duration) {
	p := &pending{client: c, key: w.rng.IntN(len(w.keys))}
	p.Record = Record{Client: c.number, Start: now, Outcome: OK, Attempts: 1}
	switch {
	case c.open != nil && w.rng.IntN(2) == 0:
		p.Call, p.key, p.ID = PutEnd, c.slot, c.open.ID
		if w.rng.IntN(10) == 0 {
			p.Call = PutRevoke
		}
		c.open = nil
	case c.open == nil && w.rng.IntN(2) == 0:
		p.Call, p.Upsert = PutStart, w.rng.IntN(4) == 0
	default:
		p.Call = []Call{Get, Get, Get, Exist, Remove, RemoveForce}[w.rng.IntN(6)]
	}
	p.Key = fmt.Sprintf("%d/", p.key)
	p.at = now + w.delay()
	heap.Push(&w.due, p)
}

// happen lets a call take effect, and its client go on.
func (w *world) happen(p *pending) {
	if w.evicts && w.rng.IntN(20) == 0 {
		if k := &w.keys[w.rng.IntN(len(w.keys))]; k.status == readable {
			k.alternative = alternative{}
		}
	}
	if w.forgetAt > 0 && p.at > w.forgetAt && w.rng.IntN(100) == 0 {
		w.keys[w.rng.IntN(len(w.keys))].alternative = alternative{}
	}
	if p.late {
		_ = w.effect(p)
		return
	}
	end := p.at + w.delay()
	if p.Call.mutates() && w.rng.Float64() < w.lossy {
		switch w.rng.IntN(3) {
		case 0:
			_ = w.effect(p)
		case 1:
			later := *p
			later.late, later.at = true, end+100*w.delay()
			heap.Push(&w.due, &later)
		}
		p.Outcome, p.Kind = Ambiguous, errs.Unresolved
		if p.Call == PutStart {
			p.ID = 0
		}
	} else {
		p.Kind = w.effect(p)
		if p.Kind != errs.OK {
			p.Outcome = Failed
		}
	}
	p.End = end
	if p.Call == PutStart && p.Outcome == OK {
		p.client.open, p.client.slot = &p.Record, p.key
	}
	w.history = append(w.history, p.Record)
	w.next(p.client, end+w.delay())
}

// effect does what a call does, and returns its answer.
func (w *world) effect(p *pending) errs.Kind {
	k := &w.keys[p.key]
	switch p.Call {
	case PutStart:
		if p.Upsert || k.status == absent || k.status == reserved && p.at-k.since > discardTimeout {
			w.lastID++
			p.ID = w.lastID
			*k = simulated{alternative{status: reserved, id: p.ID}, p.at}
			return errs.OK
		}
		return errs.ObjectExists
	case PutEnd, PutRevoke:
		switch {
		case k.id != p.ID || k.status == absent:
			return errs.ObjectNotFound
		case p.Call == PutEnd:
			k.status = readable
		case k.status == readable:
			return errs.InvalidWrite
		default:
			k.alternative = alternative{}
		}
		return errs.OK
	default:
	}
	switch {
	case p.Call == Exist:
		p.Exists = k.status == readable
		return errs.OK
	case k.status == absent:
		return errs.ObjectNotFound
	case k.status == reserved:
		return errs.ReplicaNotReady
	case p.Call == Get:
		p.ID = k.id
		return errs.OK
	case p.Call == Remove && w.rng.IntN(2) == 0:
		return errs.ObjectHasLease
	}
	k.alternative = alternative{}
	return errs.OK
}

// Whatever a store does that keeps its promises passes, answers lost or not.
func TestSimulatedHistories(t *testing.T) {
	for seed := range uint64(60) {
		w := newWorld(seed, 4, 8)
		w.evicts = seed%2 == 1
		w.lossy = float64(seed%3) * 0.02
		history := w.simulate(1500)
		v, err := check(t.Context(), history, Rules{NoEviction: !w.evicts})
		if err != nil || !v.OK {
			t.Fatalf("seed %d: got %+v, %v; want no violation", seed, v, err)
		}
	}
}

// The judge notices a store that loses acknowledged objects.
func TestForgetfulHistories(t *testing.T) {
	for seed := range uint64(30) {
		w := newWorld(seed, 4, 8)
		w.lossy, w.forgetAt = float64(seed%3)*0.001, 100*time.Millisecond
		v, err := check(t.Context(), w.simulate(1500), Rules{NoEviction: true})
		if err != nil || v.OK || v.Violations[D] == 0 {
			t.Errorf("seed %d: got %+v, %v; want D broken", seed, v, err)
		}
	}
}

// 300,000 calls of 16 clients on 512 keys are to be judged within 20 s on one
// core.
func BenchmarkJudge(b *testing.B) {
	w := newWorld(1, 512, 16)
	w.lossy = 0.001
	history := w.simulate(300_000)
	for b.Loop() {
		v, err := check(b.Context(), history, Rules{NoEviction: true})
		if err != nil || !v.OK {
			b.Fatalf("got %+v, %v; want no violation", v, err)
		}
	}
}
