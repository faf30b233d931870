package app

import "testing"

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0:          2000,
		1 << 20:    2000,
		64 << 20:   400,
		80 << 20:   350,
		200 << 20:  150,
		256 << 20:  100,
		1000 << 20: 100,
		1 << 40:    100,
	} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d bytes alive: %d %%, want %d %%", live, got, want)
		}
	}
}
