// Package service holds the use cases of the master, typed, behind any front
// end: what each call means, which errors it gives, and what it waits for.
//
// A Master serves the calls of one term. It decides against the store, has
// changes committed through the journal's queue, and answers only what is
// committed and only while the node may serve: each call is fenced before it
// begins, and each answer that was read from memory once more when it is built.
//
// The package knows no transport and starts no goroutine of its own.
package service

import (
	"context"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// Limits of a call. Key and tenant limits are metadata's.
const (
	MaxBatchItems = 10_000 // items of a batch
	MaxRegexBytes = 4096   // bytes of a pattern
	MaxPreferred  = 1024   // segment names that a put prefers; each item looks at all of them
)

// Settings are the rules that a node applies to calls. What all nodes must
// agree on stands in metadata.Params instead.
type Settings struct {
	ClusterID  string
	RootFSDir  string        // adds a disk replica to each put, unless empty
	SoftPinTTL time.Duration // of a put that asks for a soft pin without saying how long
	MaxSoftPin time.Duration // the longest soft pin a put may ask for
	Version    string        // of this program
	// Offload has objects copied to the SSDs of clients that offer one; at most
	// OffloadQueue wait for one client.
	Offload      bool
	OffloadQueue int
}

// Config is what a Master works with during its term.
type Config struct {
	Settings
	Term     metadata.Term
	Store    *metadata.Store
	Queue    *journal.Queue
	Now      func() metadata.Time // the cluster clock
	Fence    func() error         // nil while this node may serve, else NotLeader
	Liveness *Liveness
	Counters *Counters
	// AllocationFailed is told that a put of so many bytes, tried on the store as
	// of a time, found no room, so that an eviction pass makes some.
	AllocationFailed func(size uint64, asOf metadata.Time)
}

// A Master serves the calls of one term. It is safe for concurrent use.
type Master struct {
	Config
	segments chan struct{} // held while a segment or an SSD is mounted or unmounted, until that is applied
	offloads *offloads
}

// NewMaster returns a Master.
func NewMaster(c Config) *Master {
	limit := 0
	if c.Offload {
		limit = c.OffloadQueue
	}
	return &Master{Config: c, segments: make(chan struct{}, 1), offloads: newOffloads(limit, c.Store)}
}

// An item is one change that a call asks for.
type item struct {
	// bytes is about how long the change is in the journal.
	bytes int
	// prepare decides the change, at a time of the call. It may have nothing to
	// change, be told to wait for another mutation of the key, or fail.
	prepare func(now metadata.Time) (metadata.Change, <-chan struct{}, error)
	// done receives the outcome, with the change that was made, if any.
	done func(metadata.Change, error)
}

// roundBytes bounds what a call submits at once.
const roundBytes = journal.MaxSubmissionBytes / 2

// mutate makes n changes and waits until they are committed and applied. Each
// item gets its own outcome.
//
// It works in rounds: it prepares what can be prepared, submits that, and only
// then waits for what other callers hold up. So it never holds up others while
// it waits, and a batch that names a key twice finishes the first put before
// it decides the second.
func (m *Master) mutate(ctx context.Context, n int, at func(i int) item) {
	items := make([]item, n)
	todo := make([]*item, n)
	for i := range todo {
		items[i] = at(i)
		todo[i] = &items[i]
	}
	for len(todo) > 0 {
		round, bytes := 0, 0
		for round < len(todo) && (round == 0 || bytes < roundBytes) {
			bytes += todo[round].bytes
			round++
		}
		blocked, wait, err := m.round(ctx, todo[:round], bytes)
		if err != nil {
			for _, it := range todo {
				it.done(nil, err)
			}
			return
		}
		todo = append(blocked, todo[round:]...)
		if len(blocked) < round || wait == nil {
			continue // progress was made; ask again before waiting
		}
		if err := await(ctx, wait); err != nil {
			for _, it := range todo {
				it.done(nil, err)
			}
			return
		}
	}
}

// round prepares and submits some items. It returns those that must wait, and
// what the first of them waits for. An error means that none was touched. When
// the context ends, the items that are not prepared yet fail: a term that ends
// waits for the ticket, and nobody waits for their outcome.
func (m *Master) round(ctx context.Context, items []*item, bytes int) (blocked []*item, wait <-chan struct{}, err error) {
	ticket, err := m.Queue.Admit(ctx, bytes)
	if err != nil {
		return nil, nil, err
	}
	defer ticket.Release()
	now := m.Now() // for all: reading a clock costs more than a lookup
	changes, prepared := make([]metadata.Change, 0, len(items)), make([]*item, 0, len(items))
	for _, it := range items {
		if ctx.Err() != nil {
			it.done(nil, late(ctx.Err()))
			continue
		}
		change, busy, err := it.prepare(now)
		switch {
		case err != nil:
			it.done(nil, m.fenced(err))
		case busy != nil:
			if wait == nil {
				wait = busy
			}
			blocked = append(blocked, it)
		case change == nil:
			it.done(nil, m.fenced(nil))
		default:
			changes = append(changes, change)
			prepared = append(prepared, it)
		}
	}
	if len(changes) == 0 {
		return blocked, wait, nil
	}
	answers, err := ticket.Submit(ctx, changes...)
	for k, it := range prepared {
		if err != nil {
			it.done(nil, err)
			continue
		}
		if answers[k] == nil {
			m.Counters.committed(changes[k])
		}
		it.done(changes[k], answers[k])
	}
	return blocked, wait, nil
}

func late(err error) error {
	return &errs.Error{
		Kind: errs.Unavailable, Op: "prepare", Err: err,
		Detail: "the deadline passed before the change was prepared; nothing was changed, try again",
	}
}

// fenced returns an outcome that was read from memory, or the fence's error: a
// call may have waited, and this node's time may be over.
func (m *Master) fenced(outcome error) error {
	if err := m.Fence(); err != nil {
		return err
	}
	return outcome
}

// one makes one change.
func (m *Master) one(ctx context.Context, it item) (change metadata.Change, err error) {
	outer := it.done
	it.done = func(c metadata.Change, e error) {
		change, err = c, e
		if outer != nil {
			outer(c, e)
		}
	}
	m.mutate(ctx, 1, func(int) item { return it })
	return change, err
}

// await waits for another mutation of a key.
func await(ctx context.Context, outcome <-chan struct{}) error {
	select {
	case <-outcome:
		return nil
	case <-ctx.Done():
		return &errs.Error{
			Kind: errs.Unavailable, Op: "await", Err: ctx.Err(),
			Detail: "another change of the key is being written; nothing was changed, try again",
		}
	}
}

// checkBatch refuses a batch that is empty or too large.
func checkBatch(op string, n int) error {
	if n == 0 {
		return errs.New(errs.InvalidParams, op, "the batch is empty; give at least one item")
	}
	if n > MaxBatchItems {
		return errs.New(errs.InvalidParams, op, "the batch has %d items, at most %d are possible; split it", n, MaxBatchItems)
	}
	return nil
}

// checkKey refuses a key that no object can have.
func checkKey(op, tenant, key string) error {
	switch {
	case len(key) > metadata.MaxKeyBytes:
		return errs.New(errs.InvalidKey, op, "the key has %d bytes, at most %d are possible; hash long keys", len(key), metadata.MaxKeyBytes)
	case len(tenant) > metadata.MaxTenantBytes:
		return errs.New(errs.InvalidParams, op, "the tenant's name has %d bytes, at most %d are possible", len(tenant), metadata.MaxTenantBytes)
	}
	return nil
}
