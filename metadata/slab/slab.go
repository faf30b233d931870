// Package slab keeps many small blocks of memory outside of Go's heap, where the garbage
// collector neither scans nor counts them. A block is named by a Ref of 32 bits, which
// takes half of the memory of a pointer.
//
// Blocks must hold no Go pointers: the collector would not see them. A block never moves.
// Memory in which all blocks were freed goes back to the operating system, but stays
// mapped until the slab itself is garbage: reading through the Ref of a freed block is a
// bug, but does not crash. Freed blocks are overwritten, so that such a bug shows.
package slab

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// A Ref names a block; 0 names none. It is below MaxRef, so users have its highest bit for themselves.
type Ref uint32

// MaxRef is above all refs.
const MaxRef Ref = 1 << 31

// MaxBytes is what a slab holds at most: 16 GiB.
const MaxBytes = int64(MaxRef) * unit

// MaxBlock is the size of the largest block, in bytes.
const MaxBlock = chunkSize

const (
	unit        = 8 // bytes that a ref counts in
	regionShift = 21
	regionSize  = unit << regionShift // what is mapped at once
	regions     = int(MaxRef >> regionShift)
	chunkShift  = 14
	chunkSize   = unit << chunkShift // blocks of one class lie in chunks of so many bytes
	perRegion   = regionSize / chunkSize

	// keptChunks is how many empty chunks stay ready: giving memory back, and getting it
	// anew, cost more than all blocks of a chunk.
	keptChunks = 16

	poison = 0xDBDBDBDBDBDBDBDB
)

// A Slab hands out blocks. Alloc and Free must not be called concurrently, neither with
// each other nor with Stats. At and Room may be called at any time.
type Slab struct {
	at      [regions]unsafe.Pointer // of the regions; entries are set once
	mapped  *mapped
	chunks  []chunk
	partial [classes]int32 // per class, the first chunk with a free block
	kept    []int32        // empty chunks whose memory is there
	bare    []int32        // empty chunks whose memory was given back
	blocks  int64
	bytes   int64        // of blocks, rounded up
	limit   int          // chunks, with the first one, in which nothing lies
	room    atomic.Int64 // of them, those that are empty or were never used
}

// A chunk holds blocks of one class.
type chunk struct {
	class      uint8
	live       uint16 // blocks in use
	carved     uint16 // blocks handed out at least once since the chunk has its class
	free       uint16 // the first freed block, plus 1; each one names the next
	prev, next int32  // in the list of chunks with a free block
}

const none = -1

// New returns an empty slab that takes at most so many bytes of memory, up to MaxBytes.
func New(limit int64) *Slab {
	s := &Slab{mapped: new(mapped), limit: int(min(limit, MaxBytes) / chunkSize)}
	s.room.Store(int64(s.limit - 1))
	for i := range s.partial {
		s.partial[i] = none
	}
	runtime.AddCleanup(s, (*mapped).unmap, s.mapped)
	return s
}

// At returns the address of a block. The memory lives as long as the slab.
func (s *Slab) At(r Ref) unsafe.Pointer {
	return unsafe.Add(s.at[r>>regionShift], uintptr(r&(1<<regionShift-1))*unit)
}

// Touch reads from the first 128 bytes of a block, so that they are in the processor's
// caches. r may be anything: Touch does not read what is not mapped. Its result means
// nothing, and only keeps the compiler from dropping the reads.
//
//go:norace
func (s *Slab) Touch(r Ref) uint64 {
	const last, step = 1<<regionShift - 1, 56 / unit
	if r >= MaxRef || s.at[r>>regionShift] == nil {
		return 0
	}
	base, at := s.at[r>>regionShift], r&last
	return *(*uint64)(unsafe.Add(base, uintptr(at)*unit)) +
		*(*uint64)(unsafe.Add(base, uintptr(min(at+step, last))*unit)) +
		*(*uint64)(unsafe.Add(base, uintptr(min(at+2*step, last))*unit))
}

// Room returns how many bytes lie in chunks without blocks, and how many bytes the slab
// takes at most. A block finds room as long as there is such a chunk.
func (s *Slab) Room() (free, limit int64) {
	return s.room.Load() * chunkSize, int64(s.limit) * chunkSize
}

// Share returns what a block of a size takes of its chunk, both in bytes. A chunk holds
// few large blocks, and the rest of it is lost.
func Share(size int) int { return chunkSize / (chunkSize / sizeOf(classOf(size))) }

// Alloc returns a block of a size in bytes, from 1 to MaxBlock, or 0 if the slab is full.
// Its content is undefined. It panics when there is no memory, as Go itself does.
func (s *Slab) Alloc(size int) Ref {
	class := classOf(size)
	n := s.partial[class]
	if n == none {
		if n = s.chunkOf(class); n == none {
			return 0
		}
	}
	c := &s.chunks[n]
	c.live++
	s.blocks++
	s.bytes += int64(sizeOf(class))
	units := Ref(sizeOf(class) / unit)
	if c.free == 0 {
		r := Ref(n)<<chunkShift + Ref(c.carved)*units
		c.carved++
		s.settle(n)
		return r
	}
	r := Ref(n)<<chunkShift + Ref(c.free-1)*units
	c.free = *(*uint16)(s.At(r))
	s.settle(n)
	return r
}

// Free gives a block back. Whoever still has its ref must not use it.
func (s *Slab) Free(r Ref) {
	n := int32(r >> chunkShift)
	c := &s.chunks[n]
	size := sizeOf(int(c.class))
	block := uint16(int(r&(1<<chunkShift-1)) * unit / size)
	full := s.isFull(c)
	p := s.At(r)
	for i := 0; i < size; i += unit {
		*(*uint64)(unsafe.Add(p, i)) = poison
	}
	*(*uint16)(p) = c.free
	c.free = block + 1
	c.live--
	s.blocks--
	s.bytes -= int64(size)
	switch {
	case c.live == 0:
		if !full {
			s.unlist(n)
		}
		s.empty(n)
	case full:
		s.list(n)
	}
}

// settle takes a chunk off the list when it has no free block any more.
func (s *Slab) settle(n int32) {
	if s.isFull(&s.chunks[n]) {
		s.unlist(n)
	}
}

func (s *Slab) isFull(c *chunk) bool {
	return c.free == 0 && (int(c.carved)+1)*sizeOf(int(c.class)) > chunkSize
}

func (s *Slab) list(n int32) {
	c := &s.chunks[n]
	first := s.partial[c.class]
	c.prev, c.next = none, first
	if first != none {
		s.chunks[first].prev = n
	}
	s.partial[c.class] = n
}

func (s *Slab) unlist(n int32) {
	c := &s.chunks[n]
	if c.prev != none {
		s.chunks[c.prev].next = c.next
	} else {
		s.partial[c.class] = c.next
	}
	if c.next != none {
		s.chunks[c.next].prev = c.prev
	}
}

// chunkOf returns an empty chunk that is now of a class, none if there is no more.
func (s *Slab) chunkOf(class int) int32 {
	var n int32
	switch kept, bare := len(s.kept)-1, len(s.bare)-1; {
	case kept >= 0:
		n, s.kept = s.kept[kept], s.kept[:kept]
	case bare >= 0:
		n, s.bare = s.bare[bare], s.bare[:bare]
	default:
		n = s.extend()
	}
	if n == none {
		return none
	}
	s.room.Add(-1)
	c := &s.chunks[n]
	*c = chunk{class: uint8(class)}
	s.list(n)
	return n
}

// extend returns a chunk that was never used, none if there is no more.
func (s *Slab) extend() int32 {
	if len(s.chunks) == 0 {
		s.at[0] = s.mapped.add()
		s.chunks = make([]chunk, 1) // nothing lies in the first one: so no block has the ref 0
	}
	n := len(s.chunks)
	if n >= s.limit {
		return none
	}
	if n%perRegion == 0 {
		s.at[n/perRegion] = s.mapped.add()
	}
	s.chunks = append(s.chunks, chunk{})
	return int32(n)
}

// empty keeps an empty chunk ready, or gives its memory back.
func (s *Slab) empty(n int32) {
	s.room.Add(1)
	if len(s.kept) < keptChunks {
		s.kept = append(s.kept, n)
		return
	}
	release(s.At(Ref(n) << chunkShift))
	s.bare = append(s.bare, n)
}

// Stats are figures about a slab.
type Stats struct {
	Blocks int64 // in use
	Bytes  int64 // of these blocks, rounded up
	Held   int64 // bytes of memory that the slab has of the operating system at most
}

// Stats returns the figures of now.
func (s *Slab) Stats() Stats {
	return Stats{Blocks: s.blocks, Bytes: s.bytes, Held: int64(max(0, len(s.chunks)-1-len(s.bare))) * chunkSize}
}

// The classes of blocks are 8 bytes apart up to 256, and then 8 to each doubling, so
// that at most an eighth of a large block is lost.
const (
	fineSizes = 256
	perDouble = 8
	classes   = fineSizes/unit + 9*perDouble + 1
)

// classOf returns the class of blocks that hold so many bytes.
func classOf(size int) int {
	if size <= fineSizes {
		return (size - 1) / unit
	}
	shift := bits.Len(uint(size-1)) - 4 // of the three bits behind the first one
	return fineSizes/unit + (shift-5)*perDouble + (size-1)>>shift - perDouble
}

// sizeOf returns the bytes of the blocks of a class.
func sizeOf(class int) int {
	if class < fineSizes/unit {
		return (class + 1) * unit
	}
	class -= fineSizes / unit
	return (class%perDouble + perDouble + 1) << (class/perDouble + 5)
}
