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

// A quarantine holds the ranges ordered by the time they leave. Guarded by
// Store.applyMu.
//
// It also knows which of them leave within the lease TTL ("soon"): eviction
// counts those as free, or a takeover of a full cache, which quarantines all
// that it evicts, would go on to evict everything (design section 7).
type quarantine struct {
	ranges  *btree.BTreeG[quarantined]
	horizon Time // ranges that leave at or before it are counted as soon
}

func newQuarantine() quarantine {
	return quarantine{ranges: btree.NewBTreeGOptions(quarantined.before, btree.Options{NoLocks: true})}
}

func (q *quarantine) add(r quarantined) {
	q.ranges.Set(r)
	r.segment.quarantined.Add(r.bytes())
	if r.until <= q.horizon {
		r.segment.leavingSoon.Add(r.bytes())
	}
}

// popDue takes out the next range that may leave at now.
func (q *quarantine) popDue(now Time) (quarantined, bool) {
	r, ok := q.ranges.Min()
	if !ok || r.until > now {
		return quarantined{}, false
	}
	q.ranges.PopMin()
	r.segment.quarantined.Add(-r.bytes())
	if r.until <= q.horizon {
		r.segment.leavingSoon.Add(-r.bytes())
	}
	return r, true
}

// moveHorizon counts as soon what leaves up to the new horizon, and nothing
// else: a term with a shorter TTL moves it back.
func (q *quarantine) moveHorizon(horizon Time) {
	from, through := min(q.horizon, horizon), max(q.horizon, horizon)
	back := horizon < q.horizon
	q.ranges.Ascend(quarantined{until: from + 1, segment: noSegment}, func(r quarantined) bool {
		if r.until > through {
			return false
		}
		n := r.bytes()
		if back {
			n = -n
		}
		r.segment.leavingSoon.Add(n)
		return true
	})
	q.horizon = horizon
}
