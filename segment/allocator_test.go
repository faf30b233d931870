package segment

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSizeClasses(t *testing.T) {
	for units := uint32(1); units < 1<<16; units++ {
		checkClass(t, units)
	}
	for _, units := range []uint32{1 << 20, 1<<20 + 1, 1<<31 - 1, 1 << 31, maxUnits - 1, maxUnits} {
		checkClass(t, units)
	}
	// Figures of the C++ allocator's small float: 3 mantissa bits.
	for _, tc := range []struct{ request, granted uint32 }{
		{1, 1}, {7, 7}, {8, 8}, {15, 15}, {16, 16}, {17, 18}, {18, 18}, {19, 20},
		{1000, 1024}, {1025, 1152}, {4097, 4608}, {1 << 20, 1 << 20}, {1<<20 + 1, 1<<20 + 1<<17},
	} {
		if got := classUnits(classUp(tc.request)); got != tc.granted {
			t.Errorf("a request of %d units is granted %d, want %d", tc.request, got, tc.granted)
		}
	}
}

func checkClass(t *testing.T, units uint32) {
	t.Helper()
	up, down := classUnits(classUp(units)), classUnits(classDown(units))
	if up < units || down > units {
		t.Fatalf("the classes of %d units: got %d below and %d above, want at most and at least the units", units, down, up)
	}
	if waste := up - units; waste > units/8 {
		t.Fatalf("%d units: got a class of %d, want at most 12.5 %% more", units, up)
	}
	if classUp(up) != classDown(up) {
		t.Fatalf("a size that is a class, %d: got the classes %d and %d, want the same", up, classUp(up), classDown(up))
	}
}

func TestUnitShift(t *testing.T) {
	for _, tc := range []struct {
		size  uint64
		shift uint8
	}{
		{1, 0}, {maxUnits, 0}, {maxUnits + 1, 1}, {2 * maxUnits, 1}, {16 << 30, 3}, {MaxSize, 30},
	} {
		if got := unitShift(tc.size); got != tc.shift {
			t.Errorf("a segment of %d bytes counts in units of 2^%d, want 2^%d", tc.size, got, tc.shift)
		}
	}
}

// Neighbours join, in whatever order they are freed: conformance line 66.
func TestFreeInAnyOrderLeavesOneRegion(t *testing.T) {
	const size = 1 << 20
	for seed := range uint64(20) {
		a := NewAllocator(size)
		var taken []Range
		for {
			r, ok := a.Allocate(1000)
			if !ok {
				break
			}
			taken = append(taken, r)
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		rng.Shuffle(len(taken), func(i, j int) { taken[i], taken[j] = taken[j], taken[i] })
		for _, r := range taken {
			if err := a.Free(r); err != nil {
				t.Fatal(err)
			}
		}
		if freeUnits(a) != size || len(a.freeRanges()) != 1 || a.LargestFree() != size {
			t.Fatalf("seed %d, all ranges freed: got %d units free in %d regions, the largest of %d bytes; want %d in one",
				seed, freeUnits(a), len(a.freeRanges()), a.LargestFree(), size)
		}
	}
}

// Ranges that are busy or outside are refused, and change nothing: conformance line 67.
func TestAllocatorRefuses(t *testing.T) {
	a := NewAllocator(1 << 10)
	if _, ok := a.Allocate(0); ok {
		t.Error("allocating 0 bytes: got a range, want it refused")
	}
	if _, ok := a.Allocate(1<<10 + 1); ok {
		t.Error("allocating a byte more than the segment has: got a range, want it refused")
	}
	r, ok := a.Allocate(64)
	if !ok {
		t.Fatal("allocating 64 of 1024 bytes: got no room, want a range")
	}
	for name, err := range map[string]error{
		"a busy range":         a.Reserve(r),
		"a partly busy range":  a.Reserve(Range{r.End() - 1, 2}),
		"an empty range":       a.Reserve(Range{r.End(), 0}),
		"a range beyond":       a.Reserve(Range{1<<10 - 1, 2}),
		"freeing free units":   a.Free(Range{r.End(), 8}),
		"freeing half free":    a.Free(Range{r.Offset, r.Length + 1}),
		"freeing what is not":  a.Free(Range{1 << 10, 1}),
		"freeing nothing":      a.Free(Range{0, 0}),
		"a wrapped-over range": a.Reserve(Range{1 << 9, ^uint32(0)}),
	} {
		if err == nil {
			t.Errorf("%s: got no error, want it refused", name)
		}
	}
	if err := a.Free(r); err != nil {
		t.Error(err)
	}
	if err := a.Free(r); err == nil {
		t.Error("freeing a range a second time: got no error, want it refused")
	}
	if freeUnits(a) != 1<<10 {
		t.Errorf("%d units free after all that, want all", freeUnits(a))
	}
}

func TestLargeSegmentCountsInUnits(t *testing.T) {
	const size = 16 << 30
	a := NewAllocator(size)
	r, ok := a.Allocate(1)
	if !ok || a.Bytes(r.Length) != 8 {
		t.Fatalf("1 byte takes %d bytes, want one unit of 8", a.Bytes(r.Length))
	}
	r, ok = a.Allocate(5 << 30)
	if !ok || a.Bytes(r.Length) != 5<<30 {
		t.Fatalf("allocating 5 GiB: got %d bytes, %v; want exactly 5 GiB", a.Bytes(r.Length), ok)
	}
	if got := a.Bytes(freeUnits(a)); got != size-8-5<<30 {
		t.Errorf("got %d bytes free, want %d", got, size-8-5<<30)
	}
}

// TestAllocatorAgainstModel compares the allocator with a list of busy ranges:
// ranges never overlap, what is free is exactly the rest, a request fails only
// if no gap holds its class, and refusals change nothing.
func TestAllocatorAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Uint32Range(1, 1<<14).Draw(t, "capacity")
		a := NewAllocator(uint64(capacity))
		var busy []Range
		t.Repeat(map[string]func(*rapid.T){
			"allocate": func(t *rapid.T) {
				size := rapid.Uint64Range(1, uint64(capacity)).Draw(t, "size")
				units, _ := a.Units(size)
				r, ok := a.Allocate(size)
				if !ok {
					if gap := largestGap(busy, capacity); classDown(gap) >= classUp(uint32(size)) {
						t.Fatalf("%d bytes with a gap of %d: got them refused, want a range, as the gap holds their class",
							size, gap)
					}
					return
				}
				if r.Length != units {
					t.Fatalf("%d bytes: got %d units, want their class of %d", size, r.Length, units)
				}
				busy = take(t, busy, r)
			},
			"reserve": func(t *rapid.T) {
				r := Range{rapid.Uint32Range(0, capacity-1).Draw(t, "offset"), rapid.Uint32Range(1, capacity).Draw(t, "length")}
				clash := r.End() > capacity || slices.ContainsFunc(busy, r.overlaps)
				if err := a.Reserve(r); (err != nil) != clash {
					t.Fatalf("reserve %v: %v, want refused %v", r, err, clash)
				}
				if !clash {
					busy = take(t, busy, r)
				}
			},
			"free": func(t *rapid.T) {
				if len(busy) == 0 {
					return
				}
				i := rapid.IntRange(0, len(busy)-1).Draw(t, "which")
				if err := a.Free(busy[i]); err != nil {
					t.Fatal(err)
				}
				busy = slices.Delete(busy, i, i+1)
			},
			"": func(t *rapid.T) {
				var sum uint32
				for _, r := range busy {
					sum += r.Length
				}
				if freeUnits(a) != capacity-sum {
					t.Fatalf("%d units free, want %d", freeUnits(a), capacity-sum)
				}
				if gap := largestGap(busy, capacity); a.LargestFree() != uint64(classUnits(classDown(gap))) {
					t.Fatalf("the largest gap is %d: got %d as the largest free size, want its class", gap, a.LargestFree())
				}
			},
		})
	})
}

func take(t *rapid.T, busy []Range, r Range) []Range {
	if slices.ContainsFunc(busy, r.overlaps) {
		t.Fatalf("got the range %v while a part of it is busy, want no range given out twice", r)
	}
	return append(busy, r)
}

// largestGap also shows that neighbours are joined: LargestFree must find it.
func largestGap(busy []Range, capacity uint32) uint32 {
	sorted := slices.Clone(busy)
	slices.SortFunc(sorted, func(x, y Range) int { return int(x.Offset) - int(y.Offset) })
	var gap, at uint32
	for _, r := range sorted {
		gap = max(gap, r.Offset-at)
		at = r.End()
	}
	return max(gap, capacity-at)
}

func BenchmarkAllocateFree(b *testing.B) {
	a := NewAllocator(1 << 30)
	ring := make([]Range, 1<<14)
	for i := range ring {
		ring[i], _ = a.Allocate(32 << 10)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for b.Loop() {
		i := rng.IntN(len(ring))
		if err := a.Free(ring[i]); err != nil {
			b.Fatal(err)
		}
		ring[i], _ = a.Allocate(uint64(16<<10 + rng.IntN(16<<10)))
	}
}

// freeUnits returns how many units are free.
func freeUnits(a *Allocator) (n uint32) {
	for _, r := range a.freeRanges() {
		n += r.Length
	}
	return n
}

// overlaps reports whether two ranges share a unit.
func (r Range) overlaps(o Range) bool { return r.Offset < o.End() && o.Offset < r.End() }
