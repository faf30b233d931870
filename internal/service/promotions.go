package service

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// Promotion says which objects on clients' SSDs are copied back to memory when they
// are read.
type Promotion struct {
	On           bool
	Threshold    int     // reads of an object, about, after which it is promoted
	Limit        int     // promotions that wait or are under way
	PerHeartbeat int     // tasks that a client gets at once
	Watermark    float64 // used part of the memory from which on nothing is promoted
}

// promotions knows which objects their clients are to promote. Like offloads it is a
// hint of the primary's: what is lost with a term comes again with the next reads. A
// promotion that has memory is part of the state.
type promotions struct {
	Promotion
	store    *metadata.Store
	counters *Counters
	seed     maphash.Seed

	mu      sync.Mutex // guards all below; the store is not asked under it
	heat    []uint8    // reads, by a hash of the object
	reads   int        // since heat was cleared
	tasks   map[metadata.ObjectID]struct{}
	waiting map[segment.ClientID][]promotionTask
	given   map[givenTo]givenPromotion
	asking  map[segment.ClientID]struct{} // clients that have asked for tasks in this term
	expired metadata.Time                 // when expire was called last
}

type promotionTask struct {
	OffloadTask
	id    metadata.ObjectID
	until metadata.Time // then it is forgotten, if its client has not asked for it
}

type givenTo struct {
	client segment.ClientID
	key    metadata.ObjectKey
}

// A givenPromotion is an object that a client was told to promote.
type givenPromotion struct {
	id    metadata.ObjectID
	until metadata.Time // then it is forgotten
}

// heatSlots is how many counters of reads there are. Objects that share one are
// promoted a little early.
const heatSlots = 1 << 16

func newPromotions(rules Promotion, store *metadata.Store, counters *Counters) *promotions {
	p := &promotions{
		Promotion: rules, store: store, counters: counters, seed: maphash.MakeSeed(), heat: make([]uint8, heatSlots),
		tasks: make(map[metadata.ObjectID]struct{}), waiting: make(map[segment.ClientID][]promotionTask), given: make(map[givenTo]givenPromotion),
		asking: make(map[segment.ClientID]struct{}),
	}
	counters.Promotions.InFlight.Store(0)
	return p
}

// read notes that an object was read, and queues it for its client if it is on an SSD
// alone, was read often enough, and memory has room.
func (p *promotions) read(tenant, key string, list metadata.ReplicaList) {
	if p == nil || len(list.Replicas) == 0 || list.Size == 0 {
		return
	}
	at := slices.IndexFunc(list.Replicas, func(d metadata.Descriptor) bool { return d.Kind == metadata.LocalDisk })
	if at < 0 || slices.ContainsFunc(list.Replicas, func(d metadata.Descriptor) bool { return d.Kind == metadata.Memory }) {
		return
	}
	c := &p.counters.Promotions
	if !p.hot(list.ID) {
		c.RejectedFrequency.Add(1)
		return
	}
	switch stats, ok := p.store.TryStats(); {
	case !ok: // a commit is being applied, and a read does not wait for it: the next one asks again
	case eviction.Used(stats) >= p.Watermark:
		c.RejectedWatermark.Add(1)
	default:
		now := p.store.Time()
		until := now.Add(p.store.Params().ReleaseTimeout)
		p.push(list.Replicas[at].Client, promotionTask{OffloadTask{strings.Clone(tenant), strings.Clone(key), list.Size}, list.ID, until}, now)
	}
}

func (p *promotions) hot(id metadata.ObjectID) bool {
	slot := maphash.Comparable(p.seed, id) % heatSlots
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reads++; p.reads > 10*heatSlots { // what was read long ago does not count
		p.reads = 0
		clear(p.heat)
	}
	p.heat[slot] += min(1, 255-p.heat[slot])
	return int(p.heat[slot]) >= p.Threshold
}

// push queues an object for a client, unless it is queued or given. It queues nothing for a
// client that does not ask for tasks, such as one of an older version: these tasks would
// take up Limit for good.
func (p *promotions) push(client segment.ClientID, t promotionTask, now metadata.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, asks := p.asking[client]
	if _, ok := p.tasks[t.id]; ok || !asks {
		return
	}
	if len(p.tasks) >= p.Limit && now.Sub(p.expired) >= time.Second {
		p.expire(now)
	}
	if len(p.tasks) >= p.Limit {
		p.counters.Promotions.RejectedCap.Add(1)
		return
	}
	p.tasks[t.id] = struct{}{}
	p.waiting[client] = append(p.waiting[client], t)
	p.counters.Promotions.Admitted.Add(1)
	p.counters.Promotions.InFlight.Add(1)
}

// take hands a client the next tasks, which are remembered until a time. Those whose
// time is over are forgotten.
func (p *promotions) take(client segment.ClientID, now, until metadata.Time) (tasks []OffloadTask) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(now)
	p.asking[client] = struct{}{}
	queue := p.waiting[client]
	for len(queue) > 0 && len(tasks) < p.PerHeartbeat {
		t := queue[0]
		queue = queue[1:]
		to := givenTo{client, t.key()}
		p.forget(to) // an object that was under the key before
		p.given[to] = givenPromotion{t.id, until}
		tasks = append(tasks, t.OffloadTask)
	}
	if p.waiting[client] = queue; len(queue) == 0 {
		delete(p.waiting, client)
	}
	return tasks
}

// expire forgets tasks that have run out: those that a client got and did not end, and
// those that no client has asked for. They would take up the queue for good. Needs mu.
func (p *promotions) expire(now metadata.Time) {
	p.expired = now
	for to, g := range p.given {
		if g.until <= now {
			p.forget(to)
			p.counters.Promotions.Expired.Add(1)
		}
	}
	for client, queue := range p.waiting {
		for len(queue) > 0 && queue[0].until <= now {
			p.finish(queue[0].id)
			p.counters.Promotions.Expired.Add(1)
			queue = queue[1:]
		}
		if p.waiting[client] = queue; len(queue) == 0 {
			delete(p.waiting, client)
		}
	}
}

// forget needs mu.
func (p *promotions) forget(to givenTo) (known bool) {
	g, known := p.given[to]
	if known {
		delete(p.given, to)
		p.finish(g.id)
	}
	return known
}

func (p *promotions) finish(id metadata.ObjectID) {
	delete(p.tasks, id)
	p.counters.Promotions.InFlight.Add(-1)
}

// object returns which object a client was told to promote, 0 for none in this term.
func (p *promotions) object(to givenTo) metadata.ObjectID {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.given[to].id
}

func (p *promotions) extend(to givenTo, id metadata.ObjectID, until metadata.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given[to].id == id {
		to.key = metadata.ObjectKey{Tenant: strings.Clone(to.key.Tenant), Key: strings.Clone(to.key.Key)} // of a message
		p.given[to] = givenPromotion{id, until}
	}
}

// done forgets a task. It reports whether the task was known.
func (p *promotions) done(to givenTo) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forget(to)
}

// drop forgets all tasks of a client, whose SSD is gone.
func (p *promotions) drop(client segment.ClientID) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.waiting[client] {
		p.finish(t.id)
		p.counters.Promotions.Cancelled.Add(1)
	}
	delete(p.waiting, client)
	delete(p.asking, client)
	for to := range p.given {
		if to.client == client {
			p.forget(to)
			p.counters.Promotions.Cancelled.Add(1)
		}
	}
}

// PromotionHeartbeat gives a client objects to copy from its SSD to memory, each once.
// Errors: SegmentNotFound if the client has no SSD mounted.
func (m *Master) PromotionHeartbeat(ctx context.Context, client segment.ClientID) ([]OffloadTask, error) {
	if err := m.CheckLocalDisk(ctx, "PromotionObjectHeartbeat", client); err != nil || m.promotions == nil {
		return nil, err
	}
	now := m.Now()
	tasks := m.promotions.take(client, now, now.Add(m.Store.Params().ReleaseTimeout))
	return tasks, m.fenced(ctx, nil)
}

// PromotionStart reserves memory for an object that a client was told to promote, in
// this term; it is held until PromotionEnd, at most for the release timeout. Errors:
// ReplicaNotReady if the client was not told, and those of
// metadata.Store.PreparePromotion.
func (m *Master) PromotionStart(ctx context.Context, p metadata.Promotion) (metadata.ObjectID, metadata.Descriptor, error) {
	const op = "PromotionAllocStart"
	if err := m.Fence(ctx); err != nil {
		return 0, metadata.Descriptor{}, err
	}
	err := checkKey(op, p.Tenant, p.Key)
	if err == nil && len(p.Preferred) > MaxPreferred {
		err = errs.New(errs.InvalidParams, op, "%d segments are preferred, at most %d are possible", len(p.Preferred), MaxPreferred)
	}
	to := givenTo{p.Client, metadata.ObjectKey{Tenant: p.Tenant, Key: p.Key}}
	if p.ID = m.promotions.object(to); err == nil && p.ID == 0 {
		err = errs.ReplicaNotReady
	}
	if err != nil {
		return 0, metadata.Descriptor{}, m.fenced(ctx, err)
	}
	p.Metered = bool(m.Tenants)
	o := m.startWithRoom(ctx, p.Tenant, 64, func() (*metadata.StartTransfer, <-chan struct{}, error) {
		return m.Store.PreparePromotion(&p)
	})
	if o.err != nil {
		return 0, metadata.Descriptor{}, o.err
	}
	m.promotions.extend(to, p.ID, m.Now().Add(m.Store.Params().ReleaseTimeout))
	_, targets := o.change.(*metadata.StartTransfer).Descriptors()
	return p.ID, targets[0], nil
}

// PromotionEnd makes a promoted object readable in memory, or gives its promotion up.
// It names the key; the object is the one that the client was told to promote, or,
// after a takeover, the one whose promotion by the client is part of the state. It is no
// error to give up a promotion that is not there. Errors: ObjectNotFound;
// ReplicaNotReady without a promotion under way, or if its memory has gone;
// InvalidParams for a promotion by another client.
func (m *Master) PromotionEnd(ctx context.Context, tenant, key string, client segment.ClientID, complete bool) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	if err := checkKey("NotifyPromotion", tenant, key); err != nil {
		return err
	}
	to := givenTo{client, metadata.ObjectKey{Tenant: tenant, Key: key}}
	t := metadata.Transfer{Tenant: tenant, Key: key, Client: client, Promotion: true, ID: m.promotions.object(to)}
	o := m.commit(ctx, 1, 32, func(_ int, now metadata.Time) (metadata.Change, <-chan struct{}, error) {
		if complete && m.Store.Params().LeaseOnPutEnd {
			m.Leases.Exists(tenant, key, now) // as for a put: it would be evicted at once otherwise
		}
		return decided(m.Store.PrepareTransferEnd(&t, complete, now))
	})[0]
	e, ended := o.change.(*metadata.EndTransfer)
	switch kind := errs.KindOf(o.err); {
	case kind == errs.OK && ended && complete && e.Lost:
		o.err = errs.ReplicaNotReady
	case kind == errs.IllegalClient:
		o.err = errs.InvalidParams
	case kind != errs.ObjectNoTask && kind != errs.InvalidParams:
	case complete:
		o.err = errs.ReplicaNotReady
	default: // it has none, or another kind of transfer
		o.err = nil
	}
	m.promotionEnded(to, ended && errs.KindOf(o.err) == errs.OK, complete)
	return o.err
}

func (m *Master) promotionEnded(to givenTo, ended, complete bool) {
	known := m.promotions.done(to)
	c := &m.Counters.Promotions
	switch {
	case ended && complete:
		c.Completed.Add(1)
		if o, err := m.Store.Inspect(to.key.Tenant, to.key.Key); err == nil {
			c.CompletedBytes.Add(int64(o.Size))
		}
	case complete && known:
		c.Cancelled.Add(1)
	case known || ended:
		c.Failed.Add(1)
	}
}
