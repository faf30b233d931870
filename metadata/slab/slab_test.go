package slab

import (
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

func TestClasses(t *testing.T) {
	for size := 1; size <= MaxBlock; size++ {
		class := classOf(size)
		if class < 0 || class >= classes {
			t.Fatalf("%d bytes: got class %d, want 0 to %d", size, class, classes-1)
		}
		holds := sizeOf(class)
		if holds < size || holds%unit != 0 || holds > size+max(unit-1, size/8) {
			t.Fatalf("%d bytes: got class %d of %d bytes, want room, and at most an eighth or a unit more", size, class, holds)
		}
		if class > 0 && sizeOf(class-1) >= size {
			t.Fatalf("%d bytes: got class %d, want the one before it, of %d bytes", size, class, sizeOf(class-1))
		}
	}
}

// A block of the model, filled with a byte of its own.
type block struct {
	ref  Ref
	size int
	fill byte
}

func (b block) bytes(s *Slab) []byte { return unsafe.Slice((*byte)(s.At(b.ref)), b.size) }

// TestBlocksAreTheirOwners takes and gives back blocks at random. No two share a byte,
// and memory that is all free goes back.
func TestBlocksAreTheirOwners(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, fill := New(MaxBytes), byte(0)
		var blocks []block
		sizes := rapid.OneOf(rapid.IntRange(1, 300), rapid.IntRange(1, MaxBlock))
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			if len(blocks) > 0 && rapid.IntRange(0, 2).Draw(t, "free") == 0 {
				at := rapid.IntRange(0, len(blocks)-1).Draw(t, "at")
				checkFill(t, s, blocks[at])
				s.Free(blocks[at].ref)
				blocks[at] = blocks[len(blocks)-1]
				blocks = blocks[:len(blocks)-1]
				continue
			}
			size := sizes.Draw(t, "size")
			for range rapid.IntRange(1, 40).Draw(t, "count") {
				fill++
				b := block{s.Alloc(size), size, fill}
				if b.ref == 0 || b.ref >= MaxRef || uintptr(s.At(b.ref))%unit != 0 {
					t.Fatalf("got the block %d at %p, want a reference that is not 0, below %d, and aligned to %d",
						b.ref, s.At(b.ref), uint64(MaxRef), unit)
				}
				for i := range b.bytes(s) {
					b.bytes(s)[i] = fill
				}
				blocks = append(blocks, b)
			}
			if got := s.Stats().Blocks; got != int64(len(blocks)) {
				t.Fatalf("%d blocks, want %d", got, len(blocks))
			}
		}
		for _, b := range blocks {
			checkFill(t, s, b)
			s.Free(b.ref)
		}
		if got := s.Stats(); got.Blocks != 0 || got.Bytes != 0 || got.Held > (keptChunks+1)*chunkSize {
			t.Fatalf("all blocks are free: got %+v, want no blocks, and at most %d bytes held", got, (keptChunks+1)*chunkSize)
		}
		runtime.KeepAlive(s)
	})
}

func checkFill(t *rapid.T, s *Slab, b block) {
	for i, v := range b.bytes(s) {
		if v != b.fill {
			t.Fatalf("byte %d of block %d, of %d bytes, is %#x, want %#x", i, b.ref, b.size, v, b.fill)
		}
	}
}

// What was freed is overwritten, is used again first, and may be read though its memory
// has gone back.
func TestFreedBlocks(t *testing.T) {
	s := New(MaxBytes)
	var refs []Ref
	for range 64 * chunkSize / 128 {
		r := s.Alloc(128)
		*(*uint64)(unsafe.Add(s.At(r), 64)) = 1
		refs = append(refs, r)
	}
	s.Free(refs[0])
	if got := *(*uint64)(unsafe.Add(s.At(refs[0]), 64)); got != poison {
		t.Errorf("a freed block: got %#x in it, want it overwritten with %#x", got, uint64(poison))
	}
	if r := s.Alloc(121); r != refs[0] {
		t.Errorf("after a block was freed: got block %d, want the freed one, %d", r, refs[0])
	}
	held := s.Stats().Held
	for _, r := range refs {
		s.Free(r)
	}
	if now := s.Stats().Held; held < 64*chunkSize || now > keptChunks*chunkSize {
		t.Errorf("all blocks are free: got %d bytes held, of %d before, want %d at most", now, held, keptChunks*chunkSize)
	}
	gone := 0
	for _, r := range refs {
		if *(*uint64)(unsafe.Add(s.At(r), 64)) == 0 {
			gone++
		}
	}
	if givesBack && gone == 0 {
		t.Error("all blocks are free: got all their memory kept, want some given back")
	}
	for range refs {
		s.Alloc(64)
	}
	if now := s.Stats().Held; now > held {
		t.Errorf("as many blocks of half the size: got %d bytes held, want %d at most", now, held)
	}
	runtime.KeepAlive(s)
}

// A full slab says so, and goes on when something was freed.
func TestFull(t *testing.T) {
	s := New(4 * MaxBlock) // nothing lies in the first chunk
	var refs []Ref
	for range 3 {
		refs = append(refs, s.Alloc(MaxBlock-1))
	}
	free, limit := s.Room()
	if r := s.Alloc(8); r != 0 || free != 0 || limit != 4*MaxBlock || slices.Contains(refs, 0) {
		t.Errorf("a full slab: got the blocks %v and then %d, with %d bytes free of %d; want three, then none, and 0 of %d",
			refs, r, free, limit, 4*MaxBlock)
	}
	s.Free(refs[1])
	if free, _ := s.Room(); free != MaxBlock {
		t.Errorf("%d bytes are free, want a chunk", free)
	}
	for range MaxBlock / 8 {
		if s.Alloc(8) == 0 {
			t.Fatal("a chunk is free: got no room for a block of 8 bytes, want room")
		}
	}
	if r := s.Alloc(8); r != 0 {
		t.Errorf("a full slab: got block %d, want none", r)
	}
	runtime.KeepAlive(s)
}

func TestTouchOfAnything(*testing.T) {
	s := New(MaxBytes)
	s.Alloc(8)
	for _, r := range []Ref{0, 1, 1<<regionShift - 1, 1 << regionShift, MaxRef - 1, MaxRef, 1<<32 - 1} {
		s.Touch(r)
	}
	runtime.KeepAlive(s)
}

func BenchmarkAllocFree(b *testing.B) {
	s := New(MaxBytes)
	for b.Loop() {
		s.Free(s.Alloc(120))
	}
	runtime.KeepAlive(s)
}
