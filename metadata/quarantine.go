package metadata

import (
	"cmp"

	"github.com/understudy-store/understudy/internal/ordered"
	"github.com/understudy-store/understudy/segment"
)

// A quarantined range was freed, but somebody may still read or write there: nobody gets
// it before until. Quarantine is part of the state, so that a promoted follower honours
// it.
type quarantined struct {
	until   Time
	segment *segmentState
	rng     segment.Range
	// discarded says that an abandoned put had the range. It is for metrics alone, and
	// not in a snapshot.
	discarded bool
}

func (q quarantined) bytes() uint64 { return q.segment.Bytes(q.rng.Length) }

// quarantineSlice bounds how many ranges leave with one commit: each that leaves costs a
// microsecond or more, as its memory is in no cache. The rest follows with the next commits,
// which a writer makes at short intervals (Store.Releasing).
const quarantineSlice = 1024

// A commit frees one slice more for each sliceDelay that the first range is late, in
// milliseconds, and maxSlices at most, some 10 ms.
const (
	sliceDelay = 2000
	maxSlices  = 16
)

// Before smallSliceRules more left, oldSlice or one in oldShare of all ranges in quarantine: 15 ms
// where a million waited. As many still begin to count as "soon" with one commit.
const (
	oldSlice = 4096
	oldShare = 64
)

// A waitingList is the ranges of one segment in quarantine, ordered by the time they leave.
type waitingList struct {
	ranges    ordered.Set[quarantined]
	uncounted quarantined // the first that does not count as soon, if next is not never
	first     Time        // when the first one leaves; never if there is none
	next      Time        // when uncounted leaves; never if there is none
	// Of abandoned puts, for metrics.
	discards       int64
	discardedBytes int64
}

// earlier orders the ranges of one segment.
func earlier(q, o quarantined) bool {
	if q.until != o.until {
		return q.until < o.until
	}
	return q.rng.Offset < o.rng.Offset
}

// beginOf sorts in front of all ranges that leave at a time, and behind those that leave
// before.
func beginOf(until Time) quarantined { return quarantined{until: until} }

// leaves returns when a range leaves. It is never equal to never, which stands for no
// range.
func (q quarantined) leaves() Time { return min(q.until, never-1) }

// soon reports whether a range of the list counts as soon.
func (w *waitingList) soon(r quarantined) bool { return w.next == never || earlier(r, w.uncounted) }

// min returns the first range, and when it leaves; never if there is none.
func (w *waitingList) min() (quarantined, Time) {
	first, ok := w.ranges.Min()
	if !ok {
		return first, never
	}
	return first, first.leaves()
}

// countDiscard adds by to the number of abandoned ranges, if this is one.
func (w *waitingList) countDiscard(r quarantined, by int64) {
	if r.discarded {
		w.discards += by
		w.discardedBytes += by * int64(r.bytes())
	}
}

// A turn is a segment in a queue, which is ordered by time, then by segment number.
type turn struct {
	at      Time
	segment *segmentState
}

func (t turn) before(o turn) bool {
	if t.at != o.at {
		return t.at < o.at
	}
	return t.segment.Number < o.segment.Number
}

type queue struct{ turns ordered.Set[turn] }

func newQueue() queue {
	return queue{ordered.NewSet(turn.before)}
}

// move changes the time of a segment in the queue, and *from to it; never stands for "not
// in the queue".
func (q queue) move(p *segmentState, from *Time, to Time) {
	if *from == to {
		return
	}
	if *from != never {
		q.turns.Delete(turn{*from, p})
	}
	if *from = to; to != never {
		q.turns.Set(turn{to, p})
	}
}

// A quarantine holds the ranges of each segment. They leave in the order of their time,
// the number of their segment and their offset. Guarded by Store.applyMu.
//
// It also knows which of them leave within the lease TTL ("soon"): eviction counts those
// as free. Otherwise a takeover of a full cache, which quarantines all that it evicts,
// would go on to evict everything (design section 7).
type quarantine struct {
	leaving  queue // the segments by their first range
	coming   queue // the segments by their first range that does not count as soon
	horizon  Time  // ranges that leave at or before it are to be counted as soon
	slice    int   // quarantineSlice but in tests
	oldSlice int   // the constant but in tests
	ranges   int
	// Bytes on the segments that take new objects, and of them those that leave soon.
	open, openSoon uint64
}

// newQuarantine returns an empty one, with slices of that size in tests, and 0 elsewhere.
func newQuarantine(slice int) quarantine {
	return quarantine{
		leaving: newQueue(), coming: newQueue(), slice: cmp.Or(slice, quarantineSlice), oldSlice: cmp.Or(slice, oldSlice),
	}
}

// slices returns how many ranges may leave with a commit at now. It is the same on every node.
// The later the first one is, the more: where commits are slow, or each adds many, the backlog
// gets smaller all the same.
func (q *quarantine) slices(now Time) int {
	late := Time(0)
	if first, ok := q.leaving.turns.Min(); ok {
		late = max(0, now-first.at) / sliceDelay
	}
	return q.slice * int(1+min(late, maxSlices-1))
}

// pace is slices by the rules before. It is the same on every node.
func (q *quarantine) pace() int { return max(q.oldSlice, q.ranges/oldShare) }

// forget drops the ranges of a segment that is about to be unmounted, however many they
// are, and returns those of abandoned puts.
func (q *quarantine) forget(p *segmentState) (discards, bytes int64) {
	w := p.waiting
	if w == nil {
		return 0, 0
	}
	q.leaving.move(p, &w.first, never)
	q.coming.move(p, &w.next, never)
	q.ranges -= w.ranges.Len()
	p.waiting = nil
	return w.discards, w.discardedBytes
}

// copy returns copies of the lists, which do not change.
func (q *quarantine) copy() (lists []ordered.Set[quarantined]) {
	q.leaving.turns.Scan(func(t turn) bool {
		lists = append(lists, t.segment.waiting.ranges.Copy())
		return true
	})
	return lists
}

// eachWaiting calls f for the ranges of a segment in quarantine.
func (p *segmentState) eachWaiting(f func(quarantined)) {
	if p.waiting != nil {
		p.waiting.ranges.Scan(func(q quarantined) bool { f(q); return true })
	}
}

// countWaiting returns how many ranges of a segment are in quarantine.
func (p *segmentState) countWaiting() int {
	if p.waiting == nil {
		return 0
	}
	return p.waiting.ranges.Len()
}

// countOpen adds the quarantined bytes of a segment to those of open ones, or subtracts
// them when it is open no more.
func (q *quarantine) countOpen(p *segmentState, open bool) {
	bytes, soon := p.quarantined.Load(), p.leavingSoon.Load()
	if !open {
		bytes, soon = -bytes, -soon
	}
	q.open += bytes
	q.openSoon += soon
}

func (q *quarantine) addBytes(p *segmentState, bytes uint64) {
	if p.quarantined.Add(bytes); p.open {
		q.open += bytes
	}
}

// addSoon is addBytes for what leaves soon.
func (q *quarantine) addSoon(p *segmentState, bytes uint64) {
	if p.leavingSoon.Add(bytes); p.open {
		q.openSoon += bytes
	}
}

func (q *quarantine) add(r quarantined) {
	p := r.segment
	w := p.waiting
	if w == nil {
		w = &waitingList{ranges: ordered.NewSet(earlier), first: never, next: never}
		p.waiting = w
	}
	w.ranges.Set(r)
	w.countDiscard(r, 1)
	q.ranges++
	q.addBytes(p, r.bytes())
	q.leaving.move(p, &w.first, min(w.first, r.leaves()))
	switch {
	case !w.soon(r):
	case r.until <= q.horizon:
		q.addSoon(p, r.bytes())
	default:
		w.uncounted = r
		q.coming.move(p, &w.next, r.leaves())
	}
}

// popDue takes out the next range that may leave at now.
func (q *quarantine) popDue(now Time) (quarantined, bool) {
	if !q.due(now) {
		return quarantined{}, false
	}
	next, _ := q.leaving.turns.Min()
	p := next.segment
	w := p.waiting
	r, _ := w.ranges.PopMin()
	w.countDiscard(r, -1)
	q.ranges--
	q.addBytes(p, -r.bytes())
	first, at := w.min()
	q.leaving.move(p, &w.first, at)
	if w.soon(r) {
		q.addSoon(p, -r.bytes())
	} else { // so it was the first that does not count
		w.uncounted = first
		q.coming.move(p, &w.next, at)
	}
	return r, true
}

// due reports whether a range may leave at now.
func (q *quarantine) due(now Time) bool {
	next, ok := q.leaving.turns.Min()
	return ok && next.at <= now
}

// moveHorizon makes what leaves up to the new horizon count as soon, and nothing else: a
// term with a shorter TTL moves it back. If very many ranges come within the horizon at
// once, it leaves some to the next calls, and returns true.
func (q *quarantine) moveHorizon(horizon Time) (more bool) {
	if horizon < q.horizon {
		q.leaving.turns.Scan(func(t turn) bool {
			q.uncount(t.segment, beginOf(horizon+1))
			return true
		})
	}
	q.horizon = horizon
	for left := q.pace(); ; {
		next, ok := q.coming.turns.Min()
		switch {
		case !ok || next.at > horizon:
			return false
		case left == 0:
			return true
		}
		left -= q.countSoon(next.segment, beginOf(horizon+1), left)
	}
}

// countSoon counts ranges in front of end as soon, at most so many. It returns how many
// it counted.
func (q *quarantine) countSoon(p *segmentState, end quarantined, most int) (n int) {
	w, next := p.waiting, never
	w.ranges.Ascend(w.uncounted, func(r quarantined) bool {
		if n == most || !earlier(r, end) {
			w.uncounted, next = r, r.leaves()
			return false
		}
		q.addSoon(p, r.bytes())
		n++
		return true
	})
	q.coming.move(p, &w.next, next)
	return n
}

// uncount makes the ranges from begin on count as soon no more.
func (q *quarantine) uncount(p *segmentState, begin quarantined) {
	w := p.waiting
	var first *quarantined
	w.ranges.Ascend(begin, func(r quarantined) bool {
		if !w.soon(r) {
			return false
		}
		if first == nil {
			first = &r
		}
		q.addSoon(p, -r.bytes())
		return true
	})
	if first != nil {
		w.uncounted = *first
		q.coming.move(p, &w.next, first.leaves())
	}
}
