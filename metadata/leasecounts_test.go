package metadata_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

func TestLeaseCounts(t *testing.T) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<20)
	for _, key := range keys("k", 4) {
		c.put(key)
	}
	for _, step := range []struct {
		what string
		do   func()
		want metadata.LeaseCounts
	}{
		{"nothing was read", func() {}, metadata.LeaseCounts{}},
		{"the first reads", func() { c.read("k0"); c.read("k1"); c.read("k2") }, metadata.LeaseCounts{Granted: 3, Marked: 3, Dirty: 3}},
		{"no time has passed", func() { c.read("k0") }, metadata.LeaseCounts{Granted: 3, Marked: 3, Dirty: 3}},
		{"a live lease is extended", func() { c.pass(time.Second); c.read("k0") }, metadata.LeaseCounts{Granted: 3, Renewed: 1, Marked: 3, Dirty: 3}},
		{"a scan journals the leases", c.scan, metadata.LeaseCounts{Granted: 3, Renewed: 1, Marked: 3, Dirty: 3}},
		{"and the next one takes off the marks", func() { c.collect() }, metadata.LeaseCounts{Granted: 3, Renewed: 1, Marked: 3}},
		{"an ended lease is granted anew", func() { c.pass(2 * params.HoldTime()); c.read("k0") },
			metadata.LeaseCounts{Granted: 4, Renewed: 1, Expired: 1, Marked: 4, Dirty: 1}},
		{"an object goes whose lease had ended", func() { c.must([]error{c.remove("k1", false)}) },
			metadata.LeaseCounts{Granted: 4, Renewed: 1, Expired: 2, Marked: 4, Dirty: 1}},
		{"an object goes by force whose lease is live", func() { c.must([]error{c.remove("k0", true)}) },
			metadata.LeaseCounts{Granted: 4, Renewed: 1, Expired: 2, Revoked: 1, Marked: 4, Dirty: 1}},
		{"one that was never read goes", func() { c.must([]error{c.remove("k3", false)}) },
			metadata.LeaseCounts{Granted: 4, Renewed: 1, Expired: 2, Revoked: 1, Marked: 4, Dirty: 1}},
		{"a segment takes a live lease along", func() {
			c.read("k2")
			c.unmount(id)
			for c.primary.Sweep(metadata.ShardCount) {
			}
		}, metadata.LeaseCounts{Granted: 5, Renewed: 1, Expired: 3, Revoked: 2, Marked: 5, Dirty: 2}},
	} {
		step.do()
		if got := c.primary.LeaseCounts(); got != step.want {
			t.Errorf("%s:\n got %+v\nwant %+v", step.what, got, step.want)
		}
	}
	if got := c.follower.LeaseCounts(); got != (metadata.LeaseCounts{}) {
		t.Errorf("the follower granted leases: %+v", got)
	}
}
