package service

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// offloads knows which objects wait to be copied to their owners' SSDs. It is
// a hint of the primary's and no part of the state: what is lost with a term is
// found again by RefillOffloads, and what no queue has room for stays in memory
// only, until a later term finds it.
type offloads struct {
	store *metadata.Store
	limit int  // objects that wait for one client; 0 turns it all off
	late  bool // objects wait from when eviction would take them on, not from the end of their put
	seed  maphash.Seed

	mu     sync.Mutex // guards all below; the store is not asked under it
	queues map[segment.ClientID]*offloadQueue
	taking int // queues whose clients take objects
}

// An offloadQueue is what one client with an SSD is to copy.
type offloadQueue struct {
	taking  bool
	silent  bool           // the client has not asked PollRemoveAll since its last heartbeat
	waiting []metadata.Ref // in the order in which their puts ended

	// given remembers, by the hash of its key, which object the client was told
	// to copy: the client answers with the key, which may be put anew meanwhile.
	given map[uint64]givenTask
	// open and done are the hashes of tasks in the order in which they were given
	// and answered. Some are not in given any more, or have another state there.
	open, done []uint64
}

// A givenTask is an object that a client was told to copy.
type givenTask struct {
	id   metadata.ObjectID
	done bool // the client has said that it has; it may say so again
}

func newOffloads(limit int, late bool, store *metadata.Store) *offloads {
	o := &offloads{store: store, limit: limit, late: late, seed: maphash.MakeSeed(), queues: make(map[segment.ClientID]*offloadQueue)}
	if limit > 0 {
		for _, disk := range store.LocalDisks() {
			o.set(disk.Client, disk.Offloading)
		}
	}
	return o
}

// set gives a client a queue, and says whether it takes objects.
func (o *offloads) set(client segment.ClientID, taking bool) {
	if o.limit == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queues[client]
	if q == nil {
		q = &offloadQueue{given: make(map[uint64]givenTask)}
		o.queues[client] = q
	}
	o.count(q, taking)
}

// beat notes a heartbeat of a client. It reports whether the client may ask PollRemoveAll:
// Mooncake's clients ask after each heartbeat, before they copy what it gave them. A client
// that sends the next heartbeat without having asked never asks: its protocol has no such
// call.
func (o *offloads) beat(client segment.ClientID) (mayAsk bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queues[client]
	if q == nil {
		return true
	}
	mayAsk = !q.silent
	q.silent = true
	return mayAsk
}

func (o *offloads) asked(client segment.ClientID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if q := o.queues[client]; q != nil {
		q.silent = false
	}
}

// mayAsk reports whether a client may ask PollRemoveAll, as far as its calls show.
func (o *offloads) mayAsk(client segment.ClientID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queues[client]
	return q == nil || !q.silent
}

func (o *offloads) count(q *offloadQueue, taking bool) {
	switch {
	case taking && !q.taking:
		o.taking++
	case !taking && q.taking:
		o.taking--
	}
	q.taking = taking
}

func (o *offloads) drop(client segment.ClientID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if q := o.queues[client]; q != nil {
		o.count(q, false)
		delete(o.queues, client)
	}
}

// wiped forgets what a client was told to copy: the copies go with all files on its
// SSD, also those that it has not reported yet.
func (o *offloads) wiped(client segment.ClientID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if q := o.queues[client]; q != nil {
		clear(q.given)
		q.open, q.done = nil, nil
	}
}

func (o *offloads) idle() bool {
	if o.limit == 0 {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.taking == 0
}

// ended queues the object of a put that has ended.
func (o *offloads) ended(change metadata.Change) {
	e, ok := change.(*metadata.PutEnd)
	if !ok || o.late || o.idle() {
		return
	}
	var buf [4]metadata.OffloadSource
	o.push(o.store.OffloadSources(buf[:0], e.Ref))
}

// push queues objects with those clients that take some and have room.
func (o *offloads) push(sources []metadata.OffloadSource) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, source := range sources {
		if q := o.queues[source.Client]; q != nil && q.taking && len(q.waiting) < o.limit {
			q.waiting = append(q.waiting, source.Ref)
		}
	}
}

// shortest returns, of the sources whose clients take objects and have room for more, the
// one whose client has the fewest waiting; none if there is none.
func (o *offloads) shortest(sources []metadata.OffloadSource) (found []metadata.OffloadSource) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fewest := o.limit
	for i, source := range sources {
		if q := o.queues[source.Client]; q != nil && q.taking && len(q.waiting) < fewest {
			found, fewest = sources[i:i+1], len(q.waiting)
		}
	}
	return found
}

// full reports whether no client has room for more.
func (o *offloads) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range o.queues {
		if q.taking && len(q.waiting) < o.limit {
			return false
		}
	}
	return true
}

// maxOffloadBytes bounds the keys of one answer, which must fit a message.
const maxOffloadBytes = 1 << 20

// take hands a client the objects that wait for it: at most MaxBatchItems, and
// keys of about maxOffloadBytes; the rest stays for the next call. It leaves out what
// cannot be copied any more, and what the client was given before.
//
// Eviction spares a task's object until the client answers, but no longer than until.
func (o *offloads) take(client segment.ClientID, until metadata.Time) []OffloadTask {
	var tasks []OffloadTask
	for bytes := 0; len(tasks) < MaxBatchItems && bytes < maxOffloadBytes; {
		ref, ok := o.pop(client)
		if !ok {
			break
		}
		key, size, ok := o.store.BeginCopy(metadata.OffloadSource{Ref: ref, Client: client}, until)
		switch {
		case !ok:
		case o.give(client, key, ref.ID):
			tasks = append(tasks, OffloadTask{key.Tenant, key.Key, size})
			bytes += len(key.Tenant) + len(key.Key)
		default:
			o.store.EndCopy(client, key, ref.ID)
		}
	}
	return tasks
}

func (o *offloads) pop(client segment.ClientID) (metadata.Ref, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queues[client]
	if q == nil || len(q.waiting) == 0 {
		return metadata.Ref{}, false
	}
	ref := q.waiting[0]
	if q.waiting = q.waiting[1:]; len(q.waiting) == 0 {
		q.waiting = nil // give the memory back
	}
	return ref, true
}

// give remembers what a client is told to copy. It reports false if the client
// was told before, or has not answered for an earlier object of the key.
func (o *offloads) give(client segment.ClientID, key metadata.ObjectKey, id metadata.ObjectID) bool {
	hash := maphash.Comparable(o.seed, key)
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queues[client]
	if q == nil {
		return false
	}
	if before, ok := q.given[hash]; ok && (before.id == id || !before.done) {
		return false // its answer names the key alone, and may be about the earlier object
	}
	q.makeRoom(o.limit)
	q.given[hash] = givenTask{id: id}
	q.open = append(q.open, hash)
	return true
}

// makeRoom forgets tasks until fewer than limit are remembered: first those that
// were answered, the oldest first, then the oldest of the others.
func (q *offloadQueue) makeRoom(limit int) {
	for _, list := range []struct {
		hashes *[]uint64
		done   bool
	}{{&q.done, true}, {&q.open, false}} {
		for len(q.given) >= limit && len(*list.hashes) > 0 {
			hash := (*list.hashes)[0]
			*list.hashes = (*list.hashes)[1:]
			if t, ok := q.given[hash]; ok && t.done == list.done {
				delete(q.given, hash)
			}
		}
		if len(*list.hashes) >= 2*limit {
			*list.hashes = slices.DeleteFunc(*list.hashes, func(hash uint64) bool {
				t, ok := q.given[hash]
				return !ok || t.done != list.done
			})
		}
	}
}

// given returns which object a client was told to copy under a key, 0 if that
// is not known.
func (o *offloads) given(client segment.ClientID, key metadata.ObjectKey) metadata.ObjectID {
	o.mu.Lock()
	defer o.mu.Unlock()
	if q := o.queues[client]; q != nil {
		return q.given[maphash.Comparable(o.seed, key)].id
	}
	return 0
}

// answered closes the task of a copy that a client has reported or refused. It leaves the
// task open if the report failed with err, unless the object or what was copied has gone.
func (o *offloads) answered(client segment.ClientID, done OffloadResult, err error) {
	if kind := errs.KindOf(err); kind != errs.OK && kind != errs.ObjectNotFound && kind != errs.ReplicaNotReady {
		return
	}
	key := done.Task.key()
	if id, open := o.close(client, key, done.Refused); open {
		o.store.EndCopy(client, key, id)
	}
}

// close notes that a client has copied an object, or drops its task if the client has
// refused it. It reports whether the task was open.
func (o *offloads) close(client segment.ClientID, key metadata.ObjectKey, refused bool) (id metadata.ObjectID, open bool) {
	hash := maphash.Comparable(o.seed, key)
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queues[client]
	if q == nil {
		return 0, false
	}
	t, ok := q.given[hash]
	switch {
	case refused:
		delete(q.given, hash)
	case ok && !t.done:
		q.given[hash] = givenTask{t.id, true}
		q.done = append(q.done, hash)
	}
	return t.id, ok && !t.done
}

// RefillOffloads queues the objects that the previous primary may have had in its
// queues: those in the memory of clients that take objects, without a copy on an SSD.
// It ends when it has seen all, when every queue is full, or with the context.
func (m *Master) RefillOffloads(ctx context.Context) error {
	if m.offloads.late || m.offloads.idle() {
		return nil
	}
	var sources []metadata.OffloadSource
	for shard := 0; shard < metadata.ShardCount && !m.offloads.full(); shard++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		sources = m.Store.ShardOffloadSources(sources[:0], shard)
		m.offloads.push(sources)
	}
	return nil
}

// SpareForOffload queues objects that eviction would take next, each with one client that
// has it in its memory. Eviction spares each of them once, for at most the discard timeout.
func (m *Master) SpareForOffload(refs []metadata.Ref) {
	until := m.Now().Add(m.Store.Params().DiscardTimeout)
	var buf [4]metadata.OffloadSource
	for _, ref := range refs {
		source := m.offloads.shortest(m.Store.OffloadSources(buf[:0], ref))
		if len(source) > 0 && m.Store.SpareForCopy(ref, until) {
			m.offloads.push(source)
		}
	}
}
