package metadata

import (
	"github.com/tidwall/btree"

	"github.com/understudy-store/understudy/segment"
)

// A quarantined range was freed, but somebody may still read or write there:
// it is given to nobody before the time until. Quarantine is part of the
// state, so that a promoted follower honours it.
type quarantined struct {
	until   Time
	segment *segmentState
	rng     segment.Range
	// discarded says that it was of an abandoned put. It is for metrics alone, and a
	// snapshot leaves it out.
	discarded bool
}

func (q quarantined) before(o quarantined) bool {
	switch {
	case q.until != o.until:
		return q.until < o.until
	case q.segment.Number != o.segment.Number:
		return q.segment.Number < o.segment.Number
	}
	return q.rng.Offset < o.rng.Offset
}

func (q quarantined) bytes() uint64 { return q.segment.Bytes(q.rng.Length) }

// quarantineSlice bounds the ranges that leave with one commit, and those that one commit
// begins to count as "soon": one that leaves costs some 200 ns. The rest follows with the
// next commits, which a writer makes without delay (Store.Releasing).
const quarantineSlice = 4096

// quarantineShare bounds them as well if that is more: a share of all ranges in
// quarantine. A commit may add some 10,000, which would pile up.
const quarantineShare = 64

// A quarantine holds the ranges ordered by the time they leave. Guarded by
// Store.applyMu.
//
// It also knows which of them leave within the lease TTL ("soon"): eviction
// counts those as free, or a takeover of a full cache, which quarantines all
// that it evicts, would go on to evict everything (design section 7).
type quarantine struct {
	ranges  *btree.BTreeG[quarantined]
	horizon Time        // ranges that leave at or before it are to be counted as soon
	counted quarantined // those in front of it are
	slice   int         // quarantineSlice but in tests
	mounted int         // ranges, without those of segments that are gone
	// Bytes on the segments that take new objects, and of them those that leave soon.
	open, openSoon uint64
}

func newQuarantine(slice int) quarantine {
	return quarantine{
		ranges: btree.NewBTreeGOptions(quarantined.before, btree.Options{NoLocks: true}), counted: beginOf(0), slice: slice,
	}
}

// beginOf is in front of all ranges that leave at a time, and behind those before.
func beginOf(until Time) quarantined { return quarantined{until: until, segment: noSegment} }

// pace returns how many ranges may leave with one commit. It is the same on every node: one
// that has loaded a snapshot has no ranges of segments that are gone.
func (q *quarantine) pace() int { return max(q.slice, q.mounted/quarantineShare) }

// count counts n more ranges of a segment.
func (q *quarantine) count(p *segmentState, n int) {
	if !p.Gone() {
		p.ranges += n
		q.mounted += n
	}
}

// forget counts the ranges of a segment no more, which is about to be unmounted.
func (q *quarantine) forget(p *segmentState) { q.count(p, -p.ranges) }

// countOpen counts the bytes of a segment among the open ones from now on; or, if it is
// open no more, not.
func (q *quarantine) countOpen(p *segmentState, open bool) {
	bytes, soon := p.quarantined.Load(), p.leavingSoon.Load()
	if !open {
		bytes, soon = -bytes, -soon
	}
	q.open += bytes
	q.openSoon += soon
}

// addBytes counts more bytes of a segment.
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
	q.ranges.Set(r)
	q.count(r.segment, 1)
	q.addBytes(r.segment, r.bytes())
	if r.before(q.counted) {
		q.addSoon(r.segment, r.bytes())
	}
}

// popDue takes out the next range that may leave at now.
func (q *quarantine) popDue(now Time) (quarantined, bool) {
	if !q.due(now) {
		return quarantined{}, false
	}
	r, _ := q.ranges.PopMin()
	q.count(r.segment, -1)
	q.addBytes(r.segment, -r.bytes())
	if r.before(q.counted) {
		q.addSoon(r.segment, -r.bytes())
	}
	return r, true
}

// due reports whether a range may leave at now.
func (q *quarantine) due(now Time) bool {
	r, ok := q.ranges.Min()
	return ok && r.until <= now
}

// moveHorizon counts as soon what leaves up to the new horizon, and nothing
// else: a term with a shorter TTL moves it back. If very many ranges come within the
// horizon at once, some of them are counted by the next calls: it returns whether there
// are such.
func (q *quarantine) moveHorizon(horizon Time) (more bool) {
	end, left := beginOf(horizon+1), q.pace()
	if q.horizon = horizon; !end.before(q.counted) {
		q.ranges.Ascend(q.counted, func(r quarantined) bool {
			if left--; left < 0 && r.before(end) {
				end, more = r, true
			}
			if !r.before(end) {
				return false
			}
			q.addSoon(r.segment, r.bytes())
			return true
		})
		q.counted = end
		return more
	}
	q.ranges.Ascend(end, func(r quarantined) bool {
		if !r.before(q.counted) {
			return false
		}
		q.addSoon(r.segment, -r.bytes())
		return true
	})
	q.counted = end
	return false
}
