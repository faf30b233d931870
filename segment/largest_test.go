package segment

import (
	"fmt"
	"testing"
	"time"
)

// Free space is kept by size class, rounded down, and a request is rounded up: the
// last part of a segment may be too small for a class.
func TestCouldHold(t *testing.T) {
	for _, c := range []struct{ segment, fits uint64 }{
		{1_000_000, 983_040}, {95 << 20, 88 << 20}, {25 << 30, 24 << 30}, {1 << 20, 1 << 20},
	} {
		p := NewPool(Random, nil)
		mount(t, p, 1, "a", c.segment)
		for _, size := range []uint64{c.fits, c.fits + 1} {
			could := p.CouldHold(size, 1)
			placed := p.Allocate(nil, Request{Size: size, Replicas: 1})
			if fits := size == c.fits; could != fits || (len(placed) == 1) != fits {
				t.Errorf("%d bytes in a segment of %d: got CouldHold %v and %d placed, want it to fit: %v",
					size, c.segment, could, len(placed), fits)
			}
			for _, p := range placed {
				if err := p.Segment.Free(p.Range); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// Puts of what no segment can take cost little, however many segments there are: a batch of
// 10,000 of them took 10 s and more.
func TestTooLargeForAllOfManySegments(t *testing.T) {
	p := NewPool(Random, nil)
	var all []*Segment
	for i := range Number(1 << 15) {
		all = append(all, mount(t, p, i+1, fmt.Sprint("a", i), 1<<10))
	}
	large := mount(t, p, 1<<15+1, "large", 1<<20)
	if !p.CouldHold(1<<20, 1) {
		t.Error("1 MiB with a segment of 1 MiB: got that it could not be held, want that it could")
	}
	p.Remove(large)
	began := time.Now()
	for range 10_000 {
		if p.CouldHold(1<<20, 1) || len(p.Allocate(nil, Request{Size: 1 << 20, Replicas: 1})) > 0 {
			t.Fatal("1 MiB with segments of 1 KiB: got that it could be held or placed, want neither")
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("10,000 puts took %v, want 5 s at most", took)
	}
	for _, s := range all {
		p.Remove(s)
	}
	if p.CouldHold(1, 1) {
		t.Error("1 byte without segments: got that it could be held, want that it could not")
	}
}
