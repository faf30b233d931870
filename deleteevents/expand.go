package deleteevents

import (
	"context"
	"runtime"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// A Selection says which objects a RemoveByRegex or a RemoveAll removes.
type Selection struct {
	Type    Type
	Tenant  string                // empty for all
	Pattern string                // recorded for people; Match decides
	Match   func(key string) bool // nil for every key
	Force   bool                  // override leases, and nothing else
}

// A Result counts the objects that a selection chose.
type Result struct {
	Removed    int
	Leased     int // kept, as a reader has a lease; none if forced
	InProgress int // kept, as a replica is being written, copied or moved
	Events     int // that removed them
	// Changed says that something was removed, or may have been: the outcome of an event is
	// not known.
	Changed bool
}

// An Expander turns selections into lists of exact objects on the primary.
type Expander struct {
	Store *metadata.Store
	Queue *journal.Queue
	Now   func() metadata.Time
	Fence func(context.Context) error // nil while this node may serve
}

// Remove removes what a selection chooses, in events of at most MaxRemovals
// objects, each of which is final when it is committed. It keeps objects that are
// leased (unless forced) or in progress. An object that is being changed or
// evicted is tried again after the outcome of that. What was removed before an
// error stays removed, and is counted.
//
// While it matches keys and while it waits, it holds no shard, no object and no
// place in the queue. So a slow pattern delays nobody.
func (x *Expander) Remove(ctx context.Context, s Selection) (r Result, err error) {
	var found []candidate
	var chosen []metadata.Ref
	commit := func() error {
		for len(chosen) > 0 {
			event, busy, wait, err := x.commit(ctx, s, chosen, &r)
			if event != nil {
				r.Removed, r.Events = r.Removed+event.Removed, r.Events+1
			}
			if err != nil {
				return err
			}
			if chosen = busy; event == nil && wait != nil {
				if err := x.await(ctx, s, wait); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for shard := range metadata.ShardCount {
		found = x.candidates(found[:0], shard, s)
		for i, c := range found {
			if i%matchesAtOnce == 0 {
				runtime.Gosched() // calls go first
			}
			if ctx.Err() != nil {
				return r, errs.Wrap(errs.Unavailable, s.Type.String(), ctx.Err())
			}
			if s.Match != nil && !s.Match(c.key) {
				continue
			}
			if c.kept != nil {
				r.keep(c.kept)
				continue
			}
			if chosen = append(chosen, c.ref); len(chosen) < MaxRemovals {
				continue
			}
			if err := commit(); err != nil {
				return r, err
			}
			runtime.Gosched() // calls go first, where a commit makes nobody wait
		}
		if err := x.Fence(ctx); err != nil {
			return r, err
		}
	}
	err = commit()
	return r, err
}

// matchesAtOnce is how many keys are matched before calls go first: a millisecond's work with
// a slow pattern.
const matchesAtOnce = 512

// await waits for the outcome of the change that blocks a removal.
func (x *Expander) await(ctx context.Context, s Selection, outcome <-chan struct{}) error {
	select {
	case <-outcome:
		return x.Fence(ctx)
	case <-ctx.Done():
		return errs.Wrap(errs.Unavailable, s.Type.String(), ctx.Err())
	}
}

// A candidate is an object that a selection may choose.
type candidate struct {
	key  string
	ref  metadata.Ref
	kept error // why it must stay; nil if it may go, now or after the outcome of a change
}

// keep counts an object that must stay.
func (r *Result) keep(why error) {
	if errs.KindOf(why) == errs.ObjectHasLease {
		r.Leased++
	} else {
		r.InProgress++
	}
}

// candidates appends the objects of a shard that a selection may choose.
func (x *Expander) candidates(dst []candidate, shard int, s Selection) []candidate {
	now, n := x.Now(), len(dst)
	x.Store.EachObject(shard, func() { dst = dst[:n] }, func(e metadata.Entry) {
		if s.Tenant != "" && e.Tenant() != s.Tenant {
			return
		}
		c := candidate{key: e.Key(), ref: e.Ref()}
		if !e.Busy() {
			c.kept = e.Removable(s.Force, now)
		}
		dst = append(dst, c)
	})
	return dst
}

// commit removes those of the chosen objects that can go now, as one event; nil if none
// can. It counts those that must stay. It returns those that are being changed, in the
// memory of chosen, and the channel that the first of them waits on.
func (x *Expander) commit(ctx context.Context, s Selection, chosen []metadata.Ref, r *Result) (event *Event, busy []metadata.Ref, wait <-chan struct{}, err error) {
	ticket, err := x.Queue.Admit(ctx, len(chosen)*16)
	if err != nil {
		return nil, nil, nil, err
	}
	defer ticket.Release()
	event, busy = &Event{Type: s.Type, Pattern: s.Pattern}, chosen[:0]
	now := x.Now()
	for _, ref := range chosen {
		e := x.Store.LockRef(ref)
		switch {
		case !e.Exists():
		case e.Busy():
			if busy = append(busy, ref); wait == nil {
				wait = e.Outcome()
			}
		default:
			if why := e.Removable(s.Force, now); why != nil {
				r.keep(why)
			} else {
				event.Removals = append(event.Removals, e.BeginRemoval(now))
			}
		}
		e.Unlock()
	}
	if len(event.Removals) == 0 {
		return nil, busy, wait, nil
	}
	_, err = ticket.Submit(ctx, event)
	r.Changed = r.Changed || err == nil || errs.KindOf(err) == errs.Unresolved
	if err != nil {
		return nil, nil, nil, err
	}
	return event, busy, wait, nil
}
