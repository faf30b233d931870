package clock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

func TestBootNeverGoesBack(t *testing.T) {
	boot := Boot()
	last := boot()
	for range 1000 {
		now := boot()
		if now < last {
			t.Fatalf("from %v back to %v", last, now)
		}
		last = now
	}
	if last <= 0 {
		t.Errorf("this machine runs since %v", last)
	}
}

func TestClusterTimeGoesOnFromTheLastCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCluster(Runtime(), 5000)
		if got := c.Now(); got != 5000 {
			t.Errorf("starts at %d, want 5000", got)
		}
		time.Sleep(1500 * time.Millisecond)
		if got := c.Now(); got != metadata.Time(6500) {
			t.Errorf("1.5 s later it is %d, want 6500", got)
		}
	})
}
