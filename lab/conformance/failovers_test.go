package conformance_test

import (
	"context"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// on has what a standby does with the journal so far.
func (w *world) standby(key string) (metadata.Object, error) {
	w.primary.Commit()
	return w.primary.Follower.Inspect(metadata.DefaultTenant, key)
}

// fillQueue takes all the room in the queue that a caller could get, until it is released.
func (w *world) fillQueue() (release func()) {
	var tickets []*journal.Ticket
	for bytes := 64 << 20; bytes > 0; bytes /= 2 { // at first what waits for its turn, then what does not
		ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
		if t, err := w.primary.Queue.Admit(ctx, bytes); err == nil {
			tickets = append(tickets, t)
		}
		cancel()
	}
	return func() {
		for _, t := range tickets {
			t.Release()
		}
	}
}

var failovers = []line{
	{number: 69, given: "a removal: hidden before it is durable, memory freed only after", differs: true},
	{number: 70, given: "no room in the log: Remove fails, nothing has changed", run: func(w *world) {
		w.put("k")
		taken := busy(w)
		release := w.fillQueue()
		ctx, cancel := context.WithTimeout(w.Context(), 20*time.Millisecond)
		defer cancel()
		w.code("Remove", number(w.master.Remove(ctx, removal(false), "k")), errs.Unavailable)
		w.exists(true, "k")
		release()
		w.primary.Queue.Hold(errs.Unavailable) // as when a term ends: calls get that at once, over the wire too
		w.code("Remove", w.Remove("k", true), errs.Unavailable)
		w.exists(true, "k")
		if got := busy(w); got != taken {
			w.Errorf("got %d bytes occupied, want %d as before", got, taken)
		}
		w.primary.Queue.Hold(nil)
		w.code("Remove", w.Remove("k", true), errs.OK)
	}},
	{number: 71, given: "no room in the log during an eviction: the object stays readable", shown: "eviction/TestAbortedPassLeavesVictims"},
	{number: 72, given: "PutEnd is visible before it is durable", differs: true},
	{number: 73, given: "RemoveByRegex and RemoveAll: one event for each key", differs: true},
	{number: 74, given: "evictions are logged with tenant and key", differs: true},
	{number: 75, given: "a put past the discard timeout is overwritten: a standby knows", run: func(w *world) {
		start(w, "k", 100, errs.OK)
		first, err := w.standby("k")
		w.pass(discard)
		start(w, "k", 100, errs.OK)
		second, again := w.standby("k")
		if err != nil || again != nil || first.ID == second.ID {
			w.Errorf("got %d, %v and %d, %v; want two objects", first.ID, err, second.ID, again)
		}
	}},
	{number: 76, given: "a standby applies the primary's batches", shown: "journal/TestCommitsReachAStandbyInOrder"},
	{number: 77, given: "a promotion catches up to what is durable", shown: "promote/TestCatchingUpSlowly"},
	{number: 78, given: "overlapping ranges: a restore is refused, the state before is kept", shown: "metadata/TestSnapshotRangesAreChecked"},
	{number: 79, given: "restored and not mounted again: unreadable, not evictable", differs: true},
	{number: 80, given: "mounted again: readable, with a lease", differs: true},
	{number: 81, given: "mounted again under another name or endpoint: -102", differs: true, run: func(w *world) {
		b := w.mount(2, "b", memory)
		b.Name = "c"
		w.code("ReMountSegment", w.ReMount(2, b), errs.SegmentExists)
	}},
	{number: 82, given: "one of several segments fails: those before it are there, another try works", differs: true, run: func(w *world) {
		b, c := spec(2, "b", memory), spec(2, "c", 0)
		c.ID = segment.ID{3}
		w.code("ReMountSegment", w.ReMount(2, b, c), errs.InvalidParams)
		w.count("capacity", capacity(w), 2*memory)
		c.Base, c.Size = 9<<36, memory
		w.code("another try", w.ReMount(2, b, c), errs.OK)
		w.count("capacity", capacity(w), 3*memory)
	}},
	{number: 83, given: "the backend fails: new reservations are refused", shown: "promote/TestEtcdOutage"},
	{number: 84, given: "a hard pin survives a failover", shown: "internal/app/TestHardPinSurvivesAFailover"},
}
