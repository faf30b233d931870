package metadata_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

// Cutoffs are counted where they apply, so both nodes say the same.
func TestCutoffCounts(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	for _, key := range keys("k", 12) {
		c.put(key)
	}
	c.pass(time.Minute)
	c.commit()
	for _, n := range []int{1, 2, 3, 4} {
		if got := c.evict(metadata.Quota{Objects: n}); got != n {
			t.Fatalf("%d evicted, want %d", got, n)
		}
	}
	want := metadata.CutoffCounts{Cutoffs: 4, Objects: 10, Classes: [metadata.CutoffClasses]uint64{1, 1, 2}}
	for node, store := range map[string]*metadata.Store{"primary": c.primary, "follower": c.follower} {
		if got := store.CutoffCounts(); got != want {
			t.Errorf("%s: %+v, want %+v", node, got, want)
		}
	}
}
