package eviction

import "github.com/understudy-store/understudy/metadata"

// A TenantSearch finds objects to evict for a tenant's quota, in this order: those
// whose leases ended first, and with SoftPins behind them the softly pinned ones. With
// the first member of a group it takes the group.
type TenantSearch struct {
	Store    *metadata.Store
	Tenant   string
	SoftPins bool
	Spare    metadata.ObjectID // takes neither this object nor its group; 0 for none

	Looked  int           // objects that it has looked at
	Done    bool          // it has seen all
	pinned  bool          // it has come to those with a soft pin
	through metadata.Rank // it has seen all up to there
	groups  map[any]bool  // it has seen these
}

// Next prepares the eviction of objects until they hold so many bytes of memory. It takes
// most objects at most, from among the next maxCandidates or so. The caller must submit
// what it returns before the search goes on.
func (t *TenantSearch) Next(bytes uint64, most int, now metadata.Time) (drops []metadata.Drop, freed uint64) {
	if t.groups == nil {
		t.groups = make(map[any]bool)
	}
	endPins(t.Store)
	t.Store.WithEvictable(func(evictable metadata.Evictable) {
		through, looked := evictable.WalkTenant(t.Tenant, t.pinned, t.through, metadata.Through(now), maxCandidates, func(c metadata.Candidate) bool {
			g := c.Group()
			if g != nil && t.groups[g] {
				return true
			}
			more, n, fits := c.PrepareEvict(t.pinned, t.Spare, most-len(drops), now)
			if !fits && len(drops) > 0 {
				return false // the next ones begin with it
			}
			if g != nil {
				t.groups[g] = true
			}
			drops, freed = append(drops, more...), freed+n
			return freed < bytes && len(drops) < most
		})
		t.Looked, t.through = t.Looked+looked, through
	})
	if t.through.Compare(metadata.Through(now)) >= 0 {
		t.through, t.groups = metadata.Rank{}, nil
		t.pinned, t.Done = true, t.pinned || !t.SoftPins
	}
	return drops, freed
}
