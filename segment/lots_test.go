package segment

import (
	"hash/fnv"
	"math/rand/v2"
	"testing"
)

// What is allocated after many ranges were freed, alone or in lots, is what each older
// version allocates: the lists of free regions are in the same order.
func TestAllocationsStay(t *testing.T) {
	for _, size := range []uint64{1 << 20, 16 << 30} {
		s, random, sum := New(Spec{Size: size}, 1), rand.New(rand.NewPCG(1, size)), fnv.New64a()
		one := New(Spec{Size: size}, 2) // frees one by one
		var busy []Range
		for range 20_000 {
			if random.IntN(5) > 0 || len(busy) < 8 {
				bytes := 1 + random.Uint64N(size/2000)
				r, ok := s.Allocate(bytes)
				if other, _ := one.Allocate(bytes); other != r {
					t.Fatalf("%d bytes: got %v after lots were freed, want %v, as after one by one", bytes, r, other)
				}
				sum.Write([]byte{byte(r.Offset), byte(r.Offset >> 8), byte(r.Offset >> 16), byte(r.Offset >> 24), byte(r.Length)})
				if ok {
					busy = append(busy, r)
				}
				continue
			}
			random.Shuffle(len(busy), func(i, j int) { busy[i], busy[j] = busy[j], busy[i] })
			lot := busy[:8]
			busy = busy[8:]
			if err := FreeLots([]Lot{{s, lot}}); err != nil {
				t.Fatal(err)
			}
			for _, r := range lot {
				if err := one.Free(r); err != nil {
					t.Fatal(err)
				}
			}
		}
		if want := map[uint64]uint64{1 << 20: 0x780e9c9405157a33, 16 << 30: 0x149316c8dcaa93f}[size]; sum.Sum64() != want {
			t.Errorf("a segment of %d bytes: the ranges have the hash %#x, want %#x", size, sum.Sum64(), want)
		}
		if s.Busy() != one.Busy() {
			t.Errorf("got %d busy bytes, want %d", s.Busy(), one.Busy())
		}
	}
}
