package metadata_test

import (
	"testing"

	"github.com/understudy-store/understudy/metadata"
)

// Removed objects give their memory back: a store that was full keeps only little.
func TestRemovedObjectsGiveMemoryBack(t *testing.T) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<30)
	var starts []metadata.Change
	for _, name := range keys("key-with-forty-bytes-of-which-are-many-", 50_000) {
		e, err := c.preparePut(name)
		if err != nil {
			t.Fatal(err)
		}
		starts = append(starts, e)
	}
	c.must(c.commit(starts...))
	full := c.follower.MemoryHeld()
	c.unmount(id)
	for c.follower.Sweep(metadata.ShardCount) {
	}
	if left := c.follower.MemoryHeld(); full < 50_000*100 || left > full/2 {
		t.Errorf("all objects are gone: got %d bytes held, of %d when full, want half at most, and 100 bytes an object when full",
			left, full)
	}
}
