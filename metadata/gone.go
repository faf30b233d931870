package metadata

import "github.com/understudy-store/understudy/segment"

// A SegmentName is what people call a segment.
type SegmentName struct {
	Number segment.Number
	ID     segment.ID
	Name   string
}

// maxGone bounds the segments that are remembered after their unmount, of about 100 bytes
// each.
const maxGone = 4096

// gone keeps the names of the segments unmounted last, so that people can read events
// with their numbers. It is no part of the state: a store that was loaded since does not
// have them.
type gone struct {
	names  map[segment.Number]SegmentName
	oldest []segment.Number // first
}

func (g *gone) add(p *segmentState) {
	if g.names == nil {
		g.names = make(map[segment.Number]SegmentName)
	}
	if len(g.oldest) == maxGone {
		delete(g.names, g.oldest[0])
		g.oldest = append(g.oldest[:0], g.oldest[1:]...)
	}
	g.names[p.Number] = SegmentName{p.Number, p.ID, p.Name}
	g.oldest = append(g.oldest, p.Number)
}

// SegmentNames returns the names of segments, given their numbers, that are mounted, or
// were until lately. It leaves out the others.
func (s *Store) SegmentNames(numbers []segment.Number) (list []SegmentName) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	for _, n := range numbers {
		if p := s.segments[n]; p != nil {
			list = append(list, SegmentName{n, p.ID, p.Name})
		} else if name, ok := s.gone.names[n]; ok {
			list = append(list, name)
		}
	}
	return list
}
