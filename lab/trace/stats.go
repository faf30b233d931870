package trace

import "time"

// Stats are the figures of a trace.
type Stats struct {
	Requests   int
	References int // blocks of all requests
	Distinct   int // different blocks
	// HitRate is that of a cache which never forgets: the part, from 0 to 1, of the references whose block was referenced
	// before. It is 1 - Distinct/References.
	HitRate float64
	// Duration is the time from the first request to the last.
	Duration time.Duration
}

// Stats computes the trace's figures.
func (t *Trace) Stats() Stats {
	s := Stats{Requests: len(t.Requests)}
	seen := make(map[BlockID]struct{})
	for _, r := range t.Requests {
		s.References += len(r.Blocks)
		for _, b := range r.Blocks {
			seen[b] = struct{}{}
		}
	}
	s.Distinct = len(seen)
	if s.References > 0 {
		s.HitRate = 1 - float64(s.Distinct)/float64(s.References)
		s.Duration = t.Requests[len(t.Requests)-1].At - t.Requests[0].At
	}
	return s
}
