package metadata

import (
	"testing"

	"pgregory.net/rapid"
)

// TestPendings compares the table with a list of what was added and not removed, the newest
// last. Hashes collide wholly, in their lists, or not.
func TestPendings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table pendings
		var model []*Pending
		hash := rapid.Uint64Range(0, rapid.SampledFrom([]uint64{3, 60, 1 << 40}).Draw(t, "hashes"))
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			if n := len(model); n > 0 && rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
				i := rapid.IntRange(0, n-1).Draw(t, "which")
				table.remove(model[i])
				model = append(model[:i:i], model[i+1:]...)
			} else {
				p := &Pending{hash: hash.Draw(t, "hash")}
				table.add(p)
				model = append(model, p)
			}
			newest := make(map[uint64]*Pending)
			for _, p := range model {
				newest[p.hash] = p
			}
			for h, p := range newest {
				if got := table.find(h); got != p {
					t.Fatalf("of hash %d: got %v, want the newest, %v", h, got, p)
				}
			}
			if got := table.find(hash.Draw(t, "absent") + 1<<50); got != nil || table.count != len(model) {
				t.Fatalf("got %v for a hash that is not there, and a count of %d; want none, and %d", got, table.count, len(model))
			}
		}
	})
}
