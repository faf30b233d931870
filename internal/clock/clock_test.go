package clock

import "testing"

func TestBootNeverGoesBack(t *testing.T) {
	boot := Boot()
	last := boot()
	for range 1000 {
		now := boot()
		if now < last {
			t.Fatalf("from %v back to %v; want a clock that never goes back", last, now)
		}
		last = now
	}
	if last <= 0 {
		t.Errorf("this machine runs since %v; want more than 0", last)
	}
}
