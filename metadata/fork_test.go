package metadata_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

// A fork keeps all free memory in quarantine for its hold, on every node. Memory that is mounted
// or freed within the term's guard, which lasts as long, is kept there as well. Objects stay.
func TestForkKeepsFreeMemory(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("k")
	c.put("removed")
	c.takeOver(time.Minute)
	c.must(c.commit(&metadata.Fork{Hold: time.Minute}))
	if !c.exists("k") {
		t.Error("D: an object at a fork: got that it does not exist, want it to stay")
	}
	if err := c.putStart("new"); err == nil {
		t.Error("A: a put within the hold of a fork: got memory, want none: free memory may be in use")
	}
	c.mount(2, "b", 1<<20)
	if err := c.putStart("new"); err == nil {
		t.Error("A: a put after a late mount within the hold: got memory, want none: it may be in use")
	}
	c.must([]error{c.remove("removed", false)})
	c.pass(time.Minute - time.Millisecond)
	c.must(c.commit())
	if err := c.putStart("new"); err == nil {
		t.Error("A: a put just before the end of the hold: got memory, want none: it may be in use")
	}
	c.pass(time.Millisecond)
	c.must(c.commit())
	if err := c.putStart("new"); err != nil {
		t.Errorf("a put after the hold: got %v, want no error", err)
	}
}

// Memory in quarantine at a fork stays there for the hold. In this state it waits for later
// commits, but the lost primary may have freed it already, after the fork, and given it away.
func TestForkKeepsQuarantine(t *testing.T) {
	for name, due := range map[string]bool{"due": true, "due after the fork": false} {
		t.Run(name, func(t *testing.T) {
			c := newClusterOf(t, metadata.InSlices(10), params)
			c.mount(1, "a", 1<<20)
			until := c.fillQuarantine(35)
			if due {
				c.now = until
				c.must(c.commit())
			}
			c.takeOver(0)
			c.must(c.commit(&metadata.Fork{Hold: time.Minute}))
			end := c.now.Add(time.Minute)
			c.now = max(c.now, until)
			c.pass(time.Second)
			for range 5 {
				c.must(c.commit())
			}
			if got := c.primary.Stats(); got.Quarantined != got.Capacity {
				t.Errorf("A: within the hold of a fork got %d bytes of %d in quarantine, want all", got.Quarantined, got.Capacity)
			}
			loaded, err := c.load(c.snapshot())
			if err != nil {
				t.Fatal(err)
			}
			c.follower = loaded
			c.now = end
			for range 5 {
				c.must(c.commit())
			}
			if got := c.primary.Stats(); got.Quarantined+got.Busy+got.LeavingSoon != 0 {
				t.Errorf("after the hold of a fork got %+v, want nothing in quarantine or in use", got)
			}
		})
	}
}
