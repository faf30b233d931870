package judge

import (
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/lab/hostmem"
)

const (
	// maxOpen is how many puts a client leaves open while it goes on, so that a
	// failover finds some.
	maxOpen = 4
	// One put of so many is left open, one is revoked.
	openEvery, revokeEvery = 3, 32
	// One removal by pattern of so many is for a single key: its count says what
	// it did.
	exactEvery = 2
	// failPause is how long a client waits after a call that nobody answered.
	failPause = 10 * time.Millisecond
)

// A worker is a recorded client: one goroutine, one call at a time.
type worker struct {
	*reader
	client *client.Client
	seen   *watcher
	number int
	log    *log
	rng    *rand.Rand
	block  []byte
	open   []put // oldest first
}

// A put is one that its writer has not ended yet.
type put struct {
	client.Reservation
	key     *key
	started time.Duration
	written bool
}

func newWorker(l *Load, number int) (*worker, error) {
	w := &worker{
		reader: newReader(l, l.rng(number)), seen: &watcher{load: l}, number: number,
		log: l.newLog(), rng: l.rng(number), block: make([]byte, l.config.Size),
	}
	c := l.config.Client
	c.Observer = w.seen
	if number%2 == 1 && len(c.Addresses) > 0 {
		c.EtcdEndpoints = nil
	}
	var err error
	w.client, err = client.New(c)
	return w, err
}

// work makes calls until the load stops, then ends the open puts.
func (w *worker) work() {
	for !w.stopped() {
		if w.load.limit != nil && !w.paced() {
			break
		}
		if err := w.operate(); err != nil && !w.pause() {
			break
		}
	}
	for len(w.open) > 0 && w.load.ctx.Err() == nil {
		_ = w.endOldest() // what came of it is recorded
	}
}

func (w *worker) stopped() bool {
	select {
	case <-w.load.stopping:
		return true
	case <-w.load.ctx.Done():
		return true
	default:
		return w.load.full()
	}
}

// paced waits until the next operation is due. It reports false if there is
// none.
func (w *worker) paced() bool {
	t := time.NewTimer(w.load.limit.Reserve().Delay())
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.load.stopping:
	case <-w.load.ctx.Done():
	}
	return false
}

// pause waits after a call that nobody answered. It reports false if the load
// stops.
func (w *worker) pause() bool {
	t := time.NewTimer(failPause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.load.stopping:
	case <-w.load.ctx.Done():
	}
	return false
}

// operate does one thing of the mix. An error means that the cluster did not
// answer.
func (w *worker) operate() error {
	k, mix := w.load.ring.pick(w.rng), w.load.config.Mix
	n := w.rng.IntN(mix.total())
	for _, one := range []struct {
		weight int
		do     func(*key) error
	}{
		{mix.Put, w.put}, {mix.Get, w.get}, {mix.Exist, w.exist}, {mix.Remove, w.remove}, {mix.RemoveForce, w.removeForce},
		{mix.RemoveRegex, w.removeRegex},
	} {
		if n -= one.weight; n < 0 {
			return one.do(k)
		}
	}
	return nil
}

// call makes a call and records it. What f fills in is part of the record. It
// returns the record, and an error if the cluster did not answer.
func (w *worker) call(k *key, r Record, f func(ctx context.Context, r *Record) error) (Record, error) {
	ctx, cancel := context.WithTimeout(w.load.ctx, w.load.config.Timeout)
	defer cancel()
	if r.Client = w.number; !w.load.config.unnumbered() {
		r.Term = w.seen.term.Load()
	}
	if r.Key == "" {
		r.Key = k.name
	}
	r.Start = w.load.Now()
	err := f(ctx, &r)
	r.End = w.load.Now()
	r.Attempts = w.seen.attempts
	r.settle(err)
	w.log.add(r)
	w.load.calls.Add(1)
	if w.load.ring.used(k, r.Outcome == Ambiguous) && k.pinned {
		w.giveUp(k)
	}
	if r.answered() {
		return r, nil
	}
	return r, err
}

// giveUp removes the pinned object of a key that is used no more: nothing else
// ever would, and others need the memory.
func (w *worker) giveUp(k *key) {
	_, _ = w.call(k, Record{Call: RemoveForce}, func(ctx context.Context, _ *Record) error {
		return w.client.Remove(ctx, k.name, client.Removal{Force: true})
	})
}

// put begins a put, and mostly ends it.
func (w *worker) put(k *key) error {
	if w.load.config.unnumbered() && slices.ContainsFunc(w.open, func(p put) bool { return p.key == k }) {
		return nil // it could not say which of the two it ends
	}
	p := put{key: k}
	r, err := w.call(k, Record{Call: PutStart, Size: w.load.config.Size, Pinned: k.pinned}, func(ctx context.Context, r *Record) (err error) {
		p.started = r.Start
		p.Reservation, err = w.client.PutStart(ctx, client.PutItem{Key: k.name, Size: r.Size}, client.PutConfig{HardPin: k.pinned})
		r.ID = p.ID
		if len(p.Replicas) > 0 {
			r.Host = p.Replicas[0].Endpoint
		}
		return err
	})
	if r.Outcome != OK {
		return err
	}
	if w.rng.IntN(2) == 0 { // the others are late writers
		w.write(&p)
	}
	w.open = append(w.open, p)
	for len(w.open) > maxOpen {
		if err := w.endOldest(); err != nil {
			return err
		}
	}
	if w.rng.IntN(openEvery) != 0 {
		return w.endNewest()
	}
	return nil
}

func (w *worker) endOldest() error {
	p := w.open[0]
	w.open = w.open[1:]
	return w.end(p)
}

func (w *worker) endNewest() error {
	last := len(w.open) - 1
	p := w.open[last]
	w.open = w.open[:last]
	return w.end(p)
}

// end writes what is not written yet, and ends a put or gives it up. What was
// written before must not have changed.
func (w *worker) end(p put) error {
	if p.written {
		w.checkOwn(&p)
	}
	w.write(&p)
	r := Record{Call: PutEnd, ID: p.ID}
	if w.rng.IntN(revokeEvery) == 0 || !p.written {
		r.Call = PutRevoke
	}
	_, err := w.call(p.key, r, func(ctx context.Context, r *Record) error {
		if r.Call == PutRevoke {
			return w.client.PutRevoke(ctx, p.Ref(), client.SelectMemory)
		}
		return w.client.PutEnd(ctx, p.Ref(), client.SelectMemory)
	})
	return err
}

// write puts an object's bytes where its reservation says, unless that may have
// been lost.
func (w *worker) write(p *put) {
	if w.load.lostSince(p.started) {
		return // nobody keeps the memory for this put any more
	}
	hostmem.Fill(w.block, uint64(p.ID), p.Key)
	for _, at := range p.Replicas {
		if err := w.load.hosts.Write(at.Endpoint, at.Address, w.block); err != nil {
			w.load.seen.add(A, "%v: object %v (key %s) was reserved as %v", seconds(w.load.Now()), p.ID, p.Key, err)
		}
	}
	p.written = true
}

// checkOwn looks at what its writer wrote into a reservation: nobody else may
// have written there.
func (w *worker) checkOwn(p *put) {
	if w.load.lostSince(p.started) || w.load.Now()-p.started > w.load.config.ReleaseTimeout {
		return
	}
	for _, at := range p.Replicas {
		if w.load.hosts.Read(at.Endpoint, at.Address, w.block) != nil {
			continue // told when it was written
		}
		if wrong := hostmem.Check(w.block, w.scratch, uint64(p.ID), p.Key); wrong != "" {
			w.load.seen.add(A, "%v: in a reservation of %v, %s", seconds(w.load.Now()), seconds(p.started), wrong)
		}
	}
}

// get reads an object.
func (w *worker) get(k *key) error {
	var o client.Object
	r, err := w.call(k, Record{Call: Get}, func(ctx context.Context, r *Record) (err error) {
		o, err = w.client.GetReplicaList(ctx, k.name)
		r.ID, r.Size = o.ID, o.Size
		return err
	})
	if r.Outcome == OK {
		w.check(sight{key: k.name, id: uint64(o.ID), size: o.Size, places: placesOf(o.Replicas), lease: o.Lease, asked: r.Start})
	}
	return err
}

// lastLook is get for the end of the load, and fails if the cluster does not
// answer.
func (w *worker) lastLook(k *key) error { return w.get(k) }

func (w *worker) exist(k *key) error {
	_, err := w.call(k, Record{Call: Exist}, func(ctx context.Context, r *Record) (err error) {
		r.Exists, err = w.client.ExistKey(ctx, k.name)
		return err
	})
	return err
}

func (w *worker) remove(k *key) error {
	_, err := w.call(k, Record{Call: Remove}, func(ctx context.Context, _ *Record) error {
		return w.client.Remove(ctx, k.name, client.Removal{})
	})
	return err
}

// removeForce takes a lease and removes the object in spite of it.
func (w *worker) removeForce(k *key) error {
	if err := w.get(k); err != nil {
		return err
	}
	_, err := w.call(k, Record{Call: RemoveForce}, func(ctx context.Context, _ *Record) error {
		return w.client.Remove(ctx, k.name, client.Removal{Force: true})
	})
	return err
}

// removeRegex removes what a pattern matches: one key, or some that are near.
func (w *worker) removeRegex(k *key) error {
	r := Record{Call: RemoveRegex, Key: w.load.ring.group(k)}
	pattern := "^" + regexp.QuoteMeta(r.Key)
	if w.rng.IntN(exactEvery) == 0 {
		r.Key, r.Exact = k.name, true
		pattern = "^" + regexp.QuoteMeta(k.name) + "$"
	}
	force := w.rng.IntN(2) == 0
	_, err := w.call(k, r, func(ctx context.Context, r *Record) (err error) {
		r.Count, err = w.client.RemoveByRegex(ctx, pattern, client.Removal{Force: force})
		return err
	})
	if errs.KindOf(err) == errs.Unresolved {
		return nil // it is never repeated; others are answered meanwhile
	}
	return err
}
