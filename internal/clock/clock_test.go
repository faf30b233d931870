package clock

import "testing"

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
