package app

import "testing"

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0:          2000,
		1 << 20:    2000,
		64 << 20:   300,
		80 << 20:   220,
		128 << 20:  100,
		200 << 20:  100,
		1000 << 20: 100,
		1 << 40:    100,
	} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d bytes alive: %d %%, want %d %%", live, got, want)
		}
	}
}

func TestKeyBytes(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct{ set, memory, want int64 }{
		{0, 8 * gib, 4 * gib},
		{0, 24 * gib, 12 * gib},
		{0, 256 * gib, 12 * gib},
		{0, 0, 12 * gib},
		{gib, 256 * gib, gib},
		{64 * gib, 256 * gib, 12 * gib},
	} {
		if got := keyBytes(c.set, c.memory); got != c.want {
			t.Errorf("%d are set, and there are %d bytes: %d, want %d", c.set, c.memory, got, c.want)
		}
	}
}
