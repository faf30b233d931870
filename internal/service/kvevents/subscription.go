package kvevents

import (
	"context"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

// A Delivery has at most maxEvents events, and about maxBatchBytes of names.
const (
	maxEvents     = 256
	maxBatchBytes = 256 << 10
)

// A Delivery is what a subscriber gets at once. Its slice is good until the next one.
type Delivery struct {
	// Resync says that the subscriber may have missed something. It must forget all keys;
	// those that there are follow, as events that store them where they are.
	Resync bool
	Events []metadata.MediaChange
	// Through is where to go on from after this delivery; zero during a resync, which must
	// begin anew.
	Through Checkpoint
}

// A Subscription reads a feed at the pace of its reader. It is used by one goroutine.
type Subscription struct {
	feed    *Feed
	history string
	epoch   int
	next    uint64 // number of the event to read next
	through Checkpoint
	batch   []metadata.MediaChange

	// A walk through all keys, after a resync.
	walking bool
	shard   int
	waiting []metadata.MediaChange // of the shard that was visited last
	until   uint64                 // number of the event before which the next shard waits
	begun   Checkpoint             // of the walk
}

// Subscribe returns a subscription that goes on behind a checkpoint. It must be closed.
func (f *Feed) Subscribe(from Checkpoint) *Subscription {
	s := &Subscription{feed: f, history: f.history()}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Subscribers++
	if next, ok := f.find(from, s.history); ok {
		s.epoch, s.next, s.through = f.epoch, next, from
	} // else its epoch is none, and it begins with a resync
	return s
}

// SubscribeKept returns a subscription to all events that are kept, for a publisher that
// takes over from another one. It begins with a resync if these are of less than enough
// commits although the feed has dropped none.
func (f *Feed) SubscribeKept(enough metadata.Seq) *Subscription {
	s := &Subscription{feed: f, history: f.history()}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Subscribers++
	if f.first > 0 || f.through-f.base >= enough {
		s.epoch, s.next = f.epoch, f.first
	}
	return s
}

// Close ends a subscription.
func (s *Subscription) Close() {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	s.feed.counts.Subscribers--
}

// Next returns what comes next. When nothing has come for wait, it returns an empty
// batch with the present checkpoint. It fails when the context ends, and with Unavailable
// when the reader is so slow that events were given up before it read them.
func (s *Subscription) Next(ctx context.Context, wait time.Duration) (Delivery, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		history := s.feed.history()
		batch, changed, err := s.take(history)
		if changed == nil || err != nil {
			return batch, err
		}
		select {
		case <-ctx.Done():
			return Delivery{}, ctx.Err()
		case <-timer.C:
			return Delivery{Through: s.through}, nil
		case <-changed:
		}
	}
}

// take returns the next batch, or what to wait for.
func (s *Subscription) take(history string) (Delivery, <-chan struct{}, error) {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.of == nil:
		return Delivery{}, f.change(), nil
	case s.epoch != f.epoch || s.history != history:
		s.history, s.epoch, s.next, s.through = history, f.epoch, max(f.whole, f.first), Checkpoint{}
		s.walking, s.shard, s.waiting, s.until, s.begun = true, 0, nil, 0, f.checkpoint(history)
		f.counts.Resyncs++
		return Delivery{Resync: true}, nil, nil
	case s.next < f.first:
		f.counts.Dropped++
		return Delivery{}, nil, errs.New(errs.Unavailable, "", "this subscriber is too slow: %d events were given up before it read them; subscribe again, and begin anew", f.first-s.next)
	case s.walking && (len(s.waiting) > 0 || s.next >= s.until):
		return s.walk(), nil, nil
	case s.next >= f.whole:
		if at := f.checkpoint(history); at != s.through {
			s.through = at // commits that changed no key
		}
		return Delivery{}, f.change(), nil
	}
	s.batch = s.batch[:0]
	for bytes := 0; s.next < f.whole && len(s.batch) < maxEvents && bytes < maxBatchBytes; s.next++ {
		e := f.at(s.next)
		bytes += e.bytes()
		s.batch = append(s.batch, e.what)
	}
	if s.next == f.whole && !s.walking {
		s.through = f.checkpoint(history)
	}
	return Delivery{Events: s.batch, Through: s.through}, nil, nil
}

// change returns what is closed when there is more. Needs mu.
func (f *Feed) change() <-chan struct{} {
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

// walk returns a batch of the keys that there are, shard by shard. The events of a change
// that happens meanwhile come after its shard, so in the end the subscriber has the present
// state. All events so far come before the next shard: during a long walk the feed would
// drop them otherwise. Needs mu, and releases it meanwhile.
func (s *Subscription) walk() Delivery {
	f := s.feed
	store := f.of // not kept in s: a reader that stalls must not hold on to a store that was replaced
	f.mu.Unlock()
	for len(s.waiting) == 0 && s.shard < metadata.ShardCount {
		s.waiting = s.waiting[:0]
		store.Present(s.shard, func(what *metadata.MediaChange) { s.waiting = append(s.waiting, *what) })
		s.shard++
	}
	f.mu.Lock()
	if len(s.waiting) == 0 {
		s.through, s.walking, s.waiting = s.begun, false, nil
		return Delivery{Through: s.through}
	}
	n, bytes := 0, 0
	for n < min(len(s.waiting), maxEvents) && bytes < maxBatchBytes {
		bytes += len(s.waiting[n].Key)
		n++
	}
	batch := Delivery{Events: s.waiting[:n]}
	s.waiting, s.until = s.waiting[n:], f.whole
	return batch
}
