package metadata_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

// A fork keeps all free memory from new puts for its hold, on every node, and what is
// mounted within the term's guard as well; the objects stay.
func TestForkKeepsFreeMemory(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("k")
	c.takeOver(10 * time.Second)
	c.must(c.commit(&metadata.Fork{Hold: time.Minute}))
	if !c.exists("k") {
		t.Error("the object is gone")
	}
	if err := c.putStart("new"); err == nil {
		t.Error("a put got memory that may be in use")
	}
	c.mount(2, "b", 1<<20)
	if err := c.putStart("new"); err == nil {
		t.Error("a put got memory of a late mount that may be in use")
	}
	c.pass(time.Minute)
	c.must(c.commit())
	if err := c.putStart("new"); err != nil {
		t.Errorf("after the hold: %v", err)
	}
}
