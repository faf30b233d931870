package eviction

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/understudy-store/understudy/metadata"
)

// maxOfTenant bounds the objects that OfTenant chooses from.
const maxOfTenant = 1 << 15

// OfTenant returns objects to evict for a tenant's quota, in this order: those whose
// leases ended first, and with softPins behind them the softly pinned ones. It looks
// at shards from a random one on, until it has found some more than hold so many
// bytes of memory; there may be fewer.
func OfTenant(store *metadata.Store, tenant string, bytes uint64, softPins bool, now metadata.Time) []metadata.TenantCandidate {
	const times, least = 4, 64 // as many bytes, and objects
	var found []metadata.TenantCandidate
	first, plain := rand.IntN(metadata.ShardCount), uint64(0) // bytes without a soft pin
	for i := 0; i < metadata.ShardCount && (plain/times < bytes || len(found) < least) && len(found) < maxOfTenant; i++ {
		seen := len(found)
		found = store.TenantCandidates(found, tenant, (first+i)%metadata.ShardCount, now)
		for _, c := range found[seen:] {
			if !c.SoftPinned {
				plain += c.Bytes
			}
		}
	}
	if !softPins {
		found = slices.DeleteFunc(found, func(c metadata.TenantCandidate) bool { return c.SoftPinned })
	}
	slices.SortFunc(found, func(a, b metadata.TenantCandidate) int {
		switch {
		case a.SoftPinned == b.SoftPinned:
			return cmp.Or(cmp.Compare(a.KeptUntil, b.KeptUntil), cmp.Compare(a.ID, b.ID))
		case a.SoftPinned:
			return 1
		}
		return -1
	})
	return found
}
