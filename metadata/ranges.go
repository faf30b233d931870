package metadata

import (
	"cmp"
	"slices"

	"github.com/understudy-store/understudy/segment"
)

// RangeState is why a range of a segment is not free.
type RangeState uint8

// The states of a range.
const (
	RangeLive        RangeState = iota + 1 // a readable replica is there
	RangeReserved                          // a replica is being written there
	RangeQuarantined                       // it was freed, but somebody may still read or write there
)

// A BusyRange is a range of a segment that is not free.
type BusyRange struct {
	State  RangeState
	Offset uint64   // bytes from the segment's base
	Length uint64   // bytes, rounded up to what the allocator gives out
	ID     ObjectID // 0 in quarantine
	Tenant string   // of the object; empty in quarantine
	Key    string   // of the object; empty in quarantine
	Until  Time     // in quarantine: when it is given out again
}

// SegmentRanges are the busy ranges of one mounted segment, by offset.
type SegmentRanges struct {
	segment.Spec
	Ranges []BusyRange
}

// Ranges returns every range of a segment (of all, for the nil id) that the
// state at one sequence has as not free, and that sequence. Ranges that a
// change still under way has taken are not in it. An unknown segment gives an
// empty list.
//
// It is for drills that check from outside: it looks at every object and
// copies as many ranges while it holds the apply lock, so no commit is applied
// meanwhile (measured: 0.3 to 0.7 s for a million objects on one core).
func (s *Store) Ranges(only segment.ID) ([]SegmentRanges, Position) {
	s.applyMu.Lock()
	bySegment := make(map[*segmentState]*SegmentRanges)
	for _, p := range s.segments {
		if only == (segment.ID{}) || only == p.ID {
			bySegment[p] = &SegmentRanges{Spec: p.Spec}
		}
	}
	for i := range s.shards {
		s.shardRanges(&s.shards[i], bySegment)
	}
	for p, list := range bySegment {
		p.eachWaiting(func(q quarantined) {
			list.Ranges = append(list.Ranges, BusyRange{State: RangeQuarantined, Offset: p.Bytes(q.rng.Offset), Length: q.bytes(), Until: q.until})
		})
	}
	position := s.position()
	s.applyMu.Unlock()

	numbers := make(map[segment.ID]segment.Number, len(bySegment))
	all := make([]SegmentRanges, 0, len(bySegment))
	for p, list := range bySegment {
		slices.SortFunc(list.Ranges, func(a, b BusyRange) int { return cmp.Compare(a.Offset, b.Offset) })
		numbers[p.ID] = p.Number
		all = append(all, *list)
	}
	slices.SortFunc(all, func(a, b SegmentRanges) int { return cmp.Compare(numbers[a.ID], numbers[b.ID]) })
	return all, position
}

// shardRanges appends the ranges of a shard's objects to the lists of their
// segments. Needs applyMu.
func (s *Store) shardRanges(sh *shard, bySegment map[*segmentState]*SegmentRanges) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.all {
		for i := range o.replicaCount() {
			r := o.replicaAt(i)
			list := bySegment[r.segment]
			if list == nil { // on disk, or on another segment
				continue
			}
			state := RangeLive
			if r.status != Complete {
				state = RangeReserved
			}
			list.Ranges = append(list.Ranges, BusyRange{
				State: state, Offset: r.segment.Bytes(r.rng.Offset), Length: r.segment.Bytes(r.rng.Length),
				ID: o.id, Tenant: s.tenants.name(o.tenant), Key: o.key(),
			})
		}
	}
}
