package metadata

import (
	"testing"
	"time"
)

func TestClusterTimeGoesOnFromTheLastCommit(t *testing.T) {
	elapsed := time.Hour
	now := NewClock(func() time.Duration { return elapsed }, 5000)
	if got := now(); got != 5000 {
		t.Errorf("the clock starts at %d, want 5000", got)
	}
	elapsed += 1500 * time.Millisecond
	if got := now(); got != 6500 {
		t.Errorf("1.5 s later it shows %d, want 6500", got)
	}
}
