package metadata

import "math/bits"

// CutoffClasses is how many classes of size CutoffCounts tells apart.
const CutoffClasses = 13

// CutoffCounts are figures about the cutoffs that this node applied, whoever
// decided them, but for those of a state that a snapshot replaced.
type CutoffCounts struct {
	Cutoffs uint64
	Objects uint64 // that went with them
	// Classes counts cutoffs by the objects they took: class i those of at most
	// 1<<i, and more than class i-1. Larger ones are in none.
	Classes [CutoffClasses]uint64
}

// CutoffCounts returns the figures of now.
func (s *Store) CutoffCounts() CutoffCounts {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	return s.cutoffs
}

// add counts a cutoff that took n objects.
func (c *CutoffCounts) add(n uint64) {
	c.Cutoffs++
	c.Objects += n
	if class := bits.Len64(max(n, 1) - 1); class < CutoffClasses {
		c.Classes[class]++
	}
}
