package metadata_test

import (
	"testing"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/metadata"
)

// What came under a key since it was found is another object, and stays; so does
// what got a lease meanwhile.
func TestWhatChangesBehindItsCandidateStays(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<10)
	for _, key := range []string{"again", "gone", "read", "plain"} {
		c.put(key)
	}
	var refs []metadata.Ref
	for shard := range metadata.ShardCount {
		for _, found := range c.primary.Candidates(nil, shard, metadata.DefaultTenant, false, c.now) {
			refs = append(refs, found.Ref)
		}
	}
	c.must([]error{c.remove("again", true), c.remove("gone", true)})
	c.put("again")
	c.read("read")
	list := c.primary.PrepareRemovals(refs, false, c.now)
	if len(refs) != 4 || len(list) != 1 {
		t.Fatalf("%d removals of %d candidates, want 1 of 4", len(list), len(refs))
	}
	c.must(c.commit(&deleteevents.Event{Type: deleteevents.RemoveByRegex, Removals: list}))
	for key, want := range map[string]bool{"again": true, "gone": false, "read": true, "plain": false} {
		if c.exists(key) != want {
			t.Errorf("%s exists: %t, want %t", key, !want, want)
		}
	}
}
