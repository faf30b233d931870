package app

import "testing"

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0:          2000,
		1 << 20:    2000,
		32 << 20:   400,
		40 << 20:   350,
		100 << 20:  150,
		128 << 20:  100,
		1000 << 20: 100,
		1 << 40:    100,
	} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d bytes alive: %d %%, want %d %%", live, got, want)
		}
	}
}
