package metadata_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/metadata"
)

// matching prepares the removal of what matches in all shards.
func (c *cluster) matching(match func(string) bool) (found []*metadata.Removal) {
	for shard := range metadata.ShardCount {
		found, _ = c.primary.PrepareRemoveMatching(found, shard, metadata.DefaultTenant, match, false, c.now, 1<<20)
	}
	return found
}

// While a pattern is matched the shard goes on: a read of the very key that is
// looked at returns.
func TestPatternsAreMatchedWithoutLocks(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<10)
	c.put("k")
	done := make(chan []*metadata.Removal, 1)
	go func() {
		done <- c.matching(func(key string) bool {
			_, err := c.primary.Inspect(metadata.DefaultTenant, key)
			return err == nil
		})
	}()
	select {
	case found := <-done:
		if len(found) != 1 {
			t.Errorf("%d removals, want 1", len(found))
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a read waits for a pattern that is being matched")
	}
}

// What came under a key while its pattern was matched is another object, and
// stays; so does what got a lease meanwhile.
func TestWhatChangesWhileAPatternIsMatchedStays(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<10)
	c.put("again")
	c.put("gone")
	c.put("read")
	c.put("plain")
	looked := 0
	found := c.matching(func(key string) bool {
		switch looked++; key {
		case "again":
			c.must([]error{c.remove(key, true)})
			c.put(key)
		case "gone":
			c.must([]error{c.remove(key, true)})
		case "read":
			c.read(key)
		}
		return true
	})
	if looked != 4 || len(found) != 1 {
		t.Fatalf("%d removals of %d keys, want 1 of 4", len(found), looked)
	}
	c.must(c.commit(&deleteevents.Event{Type: deleteevents.RemoveByRegex, Removals: found}))
	for key, want := range map[string]bool{"again": true, "gone": false, "read": true, "plain": false} {
		if c.exists(key) != want {
			t.Errorf("%s exists: %t, want %t", key, !want, want)
		}
	}
}
