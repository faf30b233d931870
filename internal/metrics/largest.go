package metrics

import (
	"cmp"
	"maps"
	"slices"
)

// maxNames bounds the names of segments, and of tenants, in one answer. otherNames stands for
// all others together.
const (
	maxNames   = 1000
	otherNames = "(others)"
)

// largest returns the largest entries, and one entry with the sum of the others.
func largest[V any](all map[string]V, size func(V) uint64, plus func(a, b V) V) map[string]V {
	if len(all) <= maxNames {
		return all
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(size(all[b]), size(all[a])), cmp.Compare(a, b))
	})
	kept := make(map[string]V, maxNames+1)
	for _, name := range names[:maxNames] {
		kept[name] = all[name]
	}
	for _, name := range names[maxNames:] {
		kept[otherNames] = plus(kept[otherNames], all[name])
	}
	return kept
}
