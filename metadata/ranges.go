package metadata

import (
	"cmp"
	"iter"
	"slices"

	"github.com/understudy-store/understudy/internal/ordered"
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

// rangeParts are the parts of a list of ranges: each shard, and the quarantine.
const rangeParts = ShardCount + 1

// Ranges goes through the ranges of a segment (of all, for the nil id) that are not free,
// part by part, with where the state stood when the part was copied. A part has its
// ranges by segment, in the order in which these were mounted, and by offset; a segment
// comes up in many parts, one without busy ranges in none.
//
// As with a snapshot, a commit waits at most while one part is copied, and no more than a
// part is in memory. If the state changes meanwhile, an object that was moved may be in
// two parts, or in none. Ranges of changes that are not applied yet are left out.
//
// It is for drills that check from outside, and for operators.
func (s *Store) Ranges(only segment.ID) iter.Seq2[[]SegmentRanges, Position] {
	return func(yield func([]SegmentRanges, Position) bool) {
		for part := range rangeParts {
			if !yield(s.rangesPart(part, only)) {
				return
			}
		}
	}
}

// rangesPart copies a part.
func (s *Store) rangesPart(part int, only segment.ID) ([]SegmentRanges, Position) {
	lists := rangeLists{store: s, only: only, of: make(map[*segmentState]*SegmentRanges)}
	var waiting []ordered.Set[quarantined]
	s.applyMu.Lock()
	if part < ShardCount {
		lists.addShard(&s.shards[part])
	} else {
		waiting = s.quarantine.copy()
	}
	at := s.position()
	s.applyMu.Unlock()
	for _, list := range waiting {
		list.Scan(lists.addQuarantined)
	}
	return lists.sorted(), at
}

// rangeLists are the lists of a part under way.
type rangeLists struct {
	store *Store
	only  segment.ID
	of    map[*segmentState]*SegmentRanges // nil for one that is not wanted
}

// list returns the list of a segment; nil if it is not wanted.
func (l *rangeLists) list(p *segmentState) *SegmentRanges {
	list, known := l.of[p]
	if known {
		return list
	}
	if l.only == (segment.ID{}) || l.only == p.ID {
		list = &SegmentRanges{Spec: p.Spec}
	}
	l.of[p] = list
	return list
}

// addShard adds the ranges of a shard's objects, on mounted segments. Needs applyMu.
func (l *rangeLists) addShard(sh *shard) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.all {
		for i := range o.replicaCount() {
			r := o.replicaAt(i)
			if r.kind != Memory || l.store.segments[r.segment.Number] != r.segment {
				continue
			}
			list := l.list(r.segment)
			if list == nil {
				continue
			}
			state := RangeLive
			if r.status != Complete {
				state = RangeReserved
			}
			list.Ranges = append(list.Ranges, BusyRange{
				State: state, Offset: r.segment.Bytes(r.rng.Offset), Length: r.segment.Bytes(r.rng.Length),
				ID: o.id, Tenant: l.store.tenants.name(o.tenant), Key: o.key(),
			})
		}
	}
}

func (l *rangeLists) addQuarantined(q quarantined) bool {
	p := q.segment
	if list := l.list(p); list != nil {
		list.Ranges = append(list.Ranges, BusyRange{State: RangeQuarantined, Offset: p.Bytes(q.rng.Offset), Length: q.bytes(), Until: q.until})
	}
	return true
}

func (l *rangeLists) sorted() []SegmentRanges {
	segments := make([]*segmentState, 0, len(l.of))
	for p, list := range l.of {
		if list != nil {
			segments = append(segments, p)
		}
	}
	slices.SortFunc(segments, func(a, b *segmentState) int { return cmp.Compare(a.Number, b.Number) })
	all := make([]SegmentRanges, len(segments))
	for i, p := range segments {
		all[i] = *l.of[p]
		slices.SortFunc(all[i].Ranges, func(a, b BusyRange) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	return all
}
