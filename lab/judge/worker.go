package judge

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/hostmem"
)

const (
	// maxOpen is how many puts a client leaves open while it makes other calls, so that some
	// are open at a failover.
	maxOpen = 4
	// One put in openEvery is left open, one in revokeEvery is revoked.
	openEvery, revokeEvery = 3, 32
	// One removal by pattern in exactEvery is for a single key, so that its count shows what
	// it did.
	exactEvery = 2
	// failPause is how long a client waits after a call that nobody answered.
	failPause = 10 * time.Millisecond
)

// A worker is a recorded client: one goroutine, one call at a time.
type worker struct {
	*reader
	client *client.Client
	tenant string // empty for the default one
	seen   *watcher
	number int
	block  []byte
	open   []put // oldest first
}

// A put is a put that its client has not ended yet.
type put struct {
	client.Reservation
	key     *key
	started time.Duration
	written bool
}

func newWorker(l *Load, number int) (w *worker, err error) {
	w = &worker{reader: newReader(l, number), seen: &watcher{load: l}, number: number, block: make([]byte, objectSize)}
	if number%clientsPer == clientsPer-1 && l.tenants() {
		w.tenant = Tenant
	}
	c := l.config.Client
	c.Observer, c.Tenant = w.seen, w.tenant
	if number%2 == 1 && len(c.Addresses) > 0 {
		c.EtcdEndpoints = nil
	}
	w.client, err = client.New(c)
	return w, err
}

// work makes calls until the load stops, then ends the open puts.
func (w *worker) work() {
	for !w.load.full() && w.load.limit.Wait(w.load.working) == nil {
		if err := w.operate(); err != nil {
			_ = clock.Sleep(w.load.working, failPause)
		}
	}
	for len(w.open) > 0 && w.load.ctx.Err() == nil {
		_ = w.end(0) // the outcome is recorded
	}
}

// operate makes one random call of the mix. An error means that the cluster did not answer.
func (w *worker) operate() error {
	k, n := w.load.ring.pick(w.rng), w.rng.IntN(100)
	for _, one := range []struct {
		percent int
		do      func(*key) error
	}{
		{28, w.put},
		{6, w.upsert},
		{40, w.get},
		{8, w.exist},
		{7, w.remove},
		{10, w.removeForce},
		{1, w.removeRegex},
	} {
		if n -= one.percent; n < 0 {
			return one.do(k)
		}
	}
	return nil
}

// call makes a call and records it, with what f fills in. It returns the record, and an error
// if the cluster did not answer.
func (w *worker) call(k *key, r Record, f func(ctx context.Context, r *Record) error) (Record, error) {
	ctx, cancel := context.WithTimeout(w.load.ctx, callTimeout)
	defer cancel()
	if r.Client = w.number; !w.load.config.unnumbered() {
		r.Term = w.seen.term.Load()
	}
	r.Key = cmp.Or(r.Key, w.label(k))
	r.Start = w.load.Now()
	err := f(ctx, &r)
	r.End = w.load.Now()
	r.Attempts = int(w.seen.attempts.Load())
	r.settle(err)
	w.load.add(r)
	if w.load.ring.used(k, r.Outcome == Ambiguous) && w.pins(k) {
		_ = w.force(k) // nothing else would ever remove it, and others need the memory
	}
	if r.answered() {
		return r, nil
	}
	return r, err
}

// put begins a put, and mostly ends it at once. A put is a PutStart and, at once or later, its
// PutEnd or PutRevoke.
func (w *worker) put(k *key) error { return w.begin(k, false) }

// upsert is put, but replaces whatever is under the key.
func (w *worker) upsert(k *key) error { return w.begin(k, !w.load.config.Old) }

func (w *worker) label(k *key) string { return label(w.tenant, k.name) }

// pins reports whether the worker pins what it puts under a key.
func (w *worker) pins(k *key) bool { return k.pinned && w.tenant == "" }

func (w *worker) begin(k *key, upsert bool) error {
	if w.load.config.unnumbered() && slices.ContainsFunc(w.open, func(p put) bool { return p.key == k }) {
		return nil // a PutEnd would not show which of the two it ends
	}
	p := put{key: k}
	r, err := w.call(k, Record{Call: PutStart, Size: objectSize, Pinned: w.pins(k), Upsert: upsert}, func(ctx context.Context, r *Record) (err error) {
		p.started = r.Start
		item := client.PutItem{Key: k.name, Size: r.Size}
		if w.load.speaks.Fields.Groups {
			item.Group = w.load.ring.together(k)
		}
		p.Reservation, err = w.client.PutStart(ctx, item, client.PutConfig{HardPin: w.pins(k), Upsert: upsert})
		r.ID = p.ID
		if len(p.Replicas) > 0 {
			r.Host = p.Replicas[0].Endpoint
		}
		return err
	})
	if r.Outcome != OK {
		return err
	}
	if w.rng.IntN(2) == 0 { // the others write just before they end the put
		w.write(&p)
	}
	w.open = append(w.open, p)
	for len(w.open) > maxOpen {
		if err := w.end(0); err != nil {
			return err
		}
	}
	if w.rng.IntN(openEvery) != 0 {
		return w.end(len(w.open) - 1)
	}
	return nil
}

// end writes the bytes of an open put, and ends or revokes it. Bytes that were written before
// must not have changed.
func (w *worker) end(i int) error {
	p := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
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

// write writes an object's bytes to the memory of its reservation, unless the reservation may
// have been lost.
func (w *worker) write(p *put) {
	if w.load.lostSince(p.started) {
		return // the memory may belong to others
	}
	hostmem.Fill(w.block, uint64(p.ID), label(w.tenant, p.Key))
	for _, at := range p.Replicas {
		if err := w.load.hosts.Write(at.Endpoint, at.Address, w.block); err != nil {
			w.load.seen.add(A, "%v: object %v (key %s) was reserved as %v", seconds(w.load.Now()), p.ID, p.Key, err)
		}
	}
	p.written = true
}

// checkOwn checks the bytes that this writer wrote to a reservation: nobody else may have
// written there.
func (w *worker) checkOwn(p *put) {
	if w.load.lostSince(p.started) || w.load.Now()-p.started > releaseTimeout {
		return
	}
	for _, at := range p.Replicas {
		if wrong := w.wrong(at, uint64(p.ID), label(w.tenant, p.Key)); wrong != "" {
			w.load.seen.add(A, "%v: in a reservation of %v, %s", seconds(w.load.Now()), seconds(p.started), wrong)
		}
	}
}

func (w *worker) get(k *key) error {
	var o client.Object
	var ends time.Duration // the lease
	r, err := w.call(k, Record{Call: Get}, func(ctx context.Context, r *Record) (err error) {
		o, err = w.client.GetReplicaList(ctx, k.name)
		r.ID, r.Size = o.ID, o.Size
		if ends = w.load.Now() + o.Lease.Remaining(); inMemory(o) {
			r.Leased = ends
		}
		return err
	})
	if r.Outcome == OK {
		w.check(sight{o, w.label(k), r.Start, ends})
	}
	return err
}

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

// removeForce takes a lease, and removes the object despite it.
func (w *worker) removeForce(k *key) error {
	if err := w.get(k); err != nil {
		return err
	}
	return w.force(k)
}

func (w *worker) force(k *key) error {
	_, err := w.call(k, Record{Call: RemoveForce}, func(ctx context.Context, _ *Record) error {
		return w.client.Remove(ctx, k.name, client.Removal{Force: true})
	})
	return err
}

// removeRegex removes what a pattern matches: one key, or some that are near.
func (w *worker) removeRegex(k *key) error {
	if w.load.config.NoPatterns {
		return nil
	}
	r := Record{Call: RemoveRegex, Key: label(w.tenant, w.load.ring.group(k))}
	pattern := "^" + regexp.QuoteMeta(w.load.ring.group(k))
	if w.rng.IntN(exactEvery) == 0 {
		r.Key, r.Exact = w.label(k), true
		pattern = "^" + regexp.QuoteMeta(k.name) + "$"
	}
	force := w.rng.IntN(2) == 0
	_, err := w.call(k, r, func(ctx context.Context, r *Record) (err error) {
		var result client.RemovalResult
		result, err = w.client.RemoveByRegex(ctx, pattern, client.Removal{Force: force})
		r.Count = result.Removed
		return err
	})
	if errs.KindOf(err) == errs.Unresolved {
		return nil // it is never repeated; others are answered meanwhile
	}
	return err
}
