package metadata

import (
	"iter"
	"slices"

	"github.com/understudy-store/understudy/internal/ordered"
	"github.com/understudy-store/understudy/segment"
)

// SegmentStats are figures about one mounted segment.
type SegmentStats struct {
	segment.Spec
	Number      segment.Number
	Capacity    uint64 // bytes
	Busy        uint64 // bytes, quarantine included
	Quarantined uint64 // bytes
	Closed      bool   // it takes no new objects: it is unmounted soon, or drained

	closes Time
}

// A SegmentStatus says what becomes of a mounted segment, with the number of the
// C++ master.
type SegmentStatus int32

// The statuses.
const (
	SegmentOK       SegmentStatus = 1
	SegmentDraining SegmentStatus = 2 // its objects are moved away
	SegmentDrained  SegmentStatus = 3 // they were
	SegmentClosed   SegmentStatus = 4 // gracefully unmounting
)

var segmentStatuses = map[SegmentStatus]string{
	SegmentOK: "OK", SegmentDraining: "DRAINING", SegmentDrained: "DRAINED", SegmentClosed: "GRACEFULLY_UNMOUNTING",
}

// String returns the C++ master's name of the status.
func (s SegmentStatus) String() string { return segmentStatuses[s] }

// Status returns the segment's status.
func (s *SegmentStats) Status() SegmentStatus { return statusOf(s.closes) }

func statusOf(closes Time) SegmentStatus {
	switch {
	case closes == 0:
		return SegmentOK
	case closes == draining:
		return SegmentDraining
	case closes == drained:
		return SegmentDrained
	}
	return SegmentClosed
}

// statsOf returns the figures of now.
func statsOf(p *segmentState) SegmentStats {
	closes := p.closes()
	return SegmentStats{
		Spec: p.Spec, Number: p.Number, Capacity: p.Capacity(), Busy: p.Busy(), Quarantined: p.quarantined.Load(),
		Closed: closes != 0, closes: closes,
	}
}

// EachSegment goes through the segments that are mounted when it begins, in the order
// in which they were mounted. The figures of each are those of when it comes up.
//
// However many there are, it holds up commits for a moment only, so anybody may list
// them as often as they like: the tree copies on write. After a listing, a commit that
// mounts or unmounts copies the few nodes that it changes, once for any number of
// listings and of segments next to each other; one that does not, copies nothing.
func (s *Store) EachSegment() iter.Seq[SegmentStats] {
	return func(yield func(SegmentStats) bool) { figures(s.mounted().Scan)(yield) }
}

// mounted returns the segments that are mounted now, in the order of their mounts.
func (s *Store) mounted() ordered.Set[*segmentState] {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	return s.mounts.byNumber.Copy()
}

func figures(segments iter.Seq[*segmentState]) iter.Seq[SegmentStats] {
	return func(yield func(SegmentStats) bool) {
		for p := range segments {
			if !yield(statsOf(p)) {
				return
			}
		}
	}
}

// SegmentCount returns how many segments are mounted.
func (s *Store) SegmentCount() int {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	return s.mounts.byNumber.Len()
}

// Segments returns the segments of EachSegment as a list, of some 170 bytes each.
func (s *Store) Segments() []SegmentStats {
	tree := s.mounted()
	return slices.AppendSeq(make([]SegmentStats, 0, tree.Len()), figures(tree.Scan))
}

// SegmentsOwnedBy goes through the segments that a client has mounted when it is called,
// as EachSegment does. The lock is held while a pointer to each is copied.
func (s *Store) SegmentsOwnedBy(client segment.ClientID) iter.Seq[SegmentStats] {
	return figures(slices.Values(s.mountedBy(client)))
}

// SegmentsNamed is SegmentsOwnedBy for those of a name.
func (s *Store) SegmentsNamed(name string) iter.Seq[SegmentStats] {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	return figures(slices.Values(slices.Clone(s.mounts.byName[name])))
}

// mountedBy returns a client's segments, in the order of their mounts.
func (s *Store) mountedBy(client segment.ClientID) []*segmentState {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	return slices.Clone(s.mounts.byClient[client])
}

// HasSegmentNamed reports whether a segment of a name is mounted.
func (s *Store) HasSegmentNamed(name string) bool {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	return len(s.mounts.byName[name]) > 0
}

// StatusOfNamed returns the status of the segment of a name that was mounted last.
func (s *Store) StatusOfNamed(name string) (SegmentStatus, bool) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	list := s.mounts.byName[name]
	if len(list) == 0 {
		return 0, false
	}
	return statusOf(list[len(list)-1].closes()), true
}

// StatusOf returns the status of a mounted segment.
func (s *Store) StatusOf(id segment.ID) (SegmentStatus, bool) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	p := s.mounts.byID[id]
	if p == nil {
		return 0, false
	}
	return statusOf(p.closes()), true
}
