package segment

import (
	"fmt"
	"math/bits"
)

// A Range is a run of units inside one segment. Units are bytes in segments
// of up to 3.75 GiB; see Allocator.
type Range struct {
	Offset uint32 // units from the segment's base
	Length uint32 // units; a whole size class if Allocate returned it
}

// End returns the first unit behind the range.
func (r Range) End() uint32 { return r.Offset + r.Length }

// none is the index that stands for "no region".
const none = int32(-1)

// A region is a free run of units, linked into the list of its class.
type region struct {
	Range
	prev, next int32
}

// An Allocator hands out ranges of one segment. It keeps only what is free: callers know
// who owns a busy range, so a busy range costs nothing here. Neighbouring free regions
// are always joined.
//
// Size classes, rounding and coalescing are those of the C++ master's offset allocator
// (mooncake-store/src/offset_allocator.cpp). Not safe for concurrent use.
type Allocator struct {
	shift    uint8  // log2 of the unit in bytes
	capacity uint32 // units

	regions []region
	spare   int32                   // head of the list of unused entries in regions
	byEnd   ends                    // of the free regions
	heads   [classCount]int32       // class -> first free region of the class
	used    [classCount / 32]uint32 // a bit for each class that has a region
	usedTop uint32                  // a bit for each non-zero word of used

	sink int32 // keeps the compiler from dropping the reads of readAhead
}

// NewAllocator returns an allocator over size bytes, all free. A size that is
// not a whole number of units loses the rest.
func NewAllocator(size uint64) *Allocator {
	a := &Allocator{shift: unitShift(size), spare: none}
	for i := range a.heads {
		a.heads[i] = none
	}
	a.capacity = uint32(size >> a.shift)
	if a.capacity > 0 {
		a.insert(a.byEnd.from(a.capacity), Range{0, a.capacity})
	}
	return a
}

// Units returns the range length, in units, that a request of size bytes
// takes: rounded up to a whole unit, then to its size class. It reports false
// for 0 bytes and for more than one class can hold (3.75 Gi units).
func (a *Allocator) Units(size uint64) (uint32, bool) {
	if size == 0 || size > uint64(maxUnits)<<a.shift {
		return 0, false
	}
	units := (size + 1<<a.shift - 1) >> a.shift
	return classUnits(classUp(uint32(units))), true
}

// Bytes converts units to bytes.
func (a *Allocator) Bytes(units uint32) uint64 { return uint64(units) << a.shift }

// Capacity returns how many units there are.
func (a *Allocator) Capacity() uint32 { return a.capacity }

// LargestFree returns the largest request, in bytes, that is sure to succeed.
func (a *Allocator) LargestFree() uint64 {
	if a.usedTop == 0 {
		return 0
	}
	top := uint32(bits.Len32(a.usedTop)) - 1
	leaf := uint32(bits.Len32(a.used[top])) - 1
	return a.Bytes(classUnits(top*32 + leaf))
}

// Allocate takes a range for size bytes. It reports false when no free region
// is large enough, which changes nothing.
func (a *Allocator) Allocate(size uint64) (Range, bool) {
	units, ok := a.Units(size)
	if !ok {
		return Range{}, false
	}
	index := a.find(classDown(units))
	if index == none {
		return Range{}, false
	}
	return Range{a.takeFront(index, units), units}, true
}

// Reserve takes exactly r, which must be free as a whole: a follower repeats
// with it what the primary allocated. It refuses, without a change, a range
// that is partly busy or outside the segment. Many ranges are fastest in their order.
func (a *Allocator) Reserve(r Range) error {
	if r.Length == 0 || uint64(r.Offset)+uint64(r.Length) > uint64(a.capacity) {
		return fmt.Errorf("range [%d, +%d) is not inside the segment of %d units", r.Offset, r.Length, a.capacity)
	}
	index, _ := a.byEnd.at(a.byEnd.from(r.Offset + 1))
	if index == none {
		return fmt.Errorf("range [%d, +%d) is busy", r.Offset, r.Length)
	}
	whole := a.regions[index].Range
	if whole.Offset > r.Offset || whole.End() < r.End() {
		return fmt.Errorf("range [%d, +%d) is partly busy", r.Offset, r.Length)
	}
	a.takeFront(index, r.End()-whole.Offset)
	if r.Offset > whole.Offset {
		a.insert(a.byEnd.from(r.Offset), Range{whole.Offset, r.Offset - whole.Offset})
	}
	return nil
}

// Free gives r back and joins it with free neighbours. It refuses, without a
// change, a range that is partly free already or outside the segment.
func (a *Allocator) Free(r Range) error {
	if r.Length == 0 || uint64(r.Offset)+uint64(r.Length) > uint64(a.capacity) {
		return fmt.Errorf("range [%d, +%d) is not inside the segment of %d units", r.Offset, r.Length, a.capacity)
	}
	at := a.byEnd.from(r.Offset)
	front, end := a.byEnd.at(at)
	next := at
	if front == none || end != r.Offset {
		front = none
	} else {
		next = a.byEnd.next(at)
	}
	behind, _ := a.byEnd.at(next)
	if behind != none {
		switch offset := a.regions[behind].Offset; {
		case offset < r.End():
			return fmt.Errorf("range [%d, +%d) is freed twice", r.Offset, r.Length)
		case offset > r.End():
			behind = none
		}
	}
	a.join(at, front, r, behind)
	return nil
}

// readAhead reads what freeing ranges will read: the ends of their free neighbours, these
// regions, and the neighbours of those in the lists of their classes. So the processor
// waits for the memory of many of them at once. It decides nothing.
func (a *Allocator) readAhead(ranges []Range) {
	for _, r := range ranges {
		at := a.byEnd.from(r.Offset)
		index, _ := a.byEnd.at(at)
		for range 2 {
			if index == none {
				break
			}
			g := &a.regions[index]
			if g.prev != none {
				a.sink += a.regions[g.prev].next
			}
			if g.next != none {
				a.sink += a.regions[g.next].prev
			}
			index, _ = a.byEnd.at(a.byEnd.next(at))
		}
	}
}

// join frees a range together with the free regions in front of it and behind it, none for
// none. at is the place of the one in front, or else that of the range. Where one region
// becomes longer, its place among the ends stays.
func (a *Allocator) join(at place, front int32, r Range, behind int32) {
	switch {
	case front == none && behind == none:
		a.insert(at, r)
		return
	case front == none:
		a.change(behind, Range{r.Offset, r.Length + a.regions[behind].Length})
		return
	}
	r = Range{a.regions[front].Offset, a.regions[front].Length + r.Length}
	if behind == none {
		a.byEnd.move(at, r.End())
		a.change(front, r)
		return
	}
	a.remove(at, front)
	a.change(behind, Range{r.Offset, r.Length + a.regions[behind].Length})
}

// find returns a free region of the given class or of the next larger one
// that has any.
func (a *Allocator) find(class uint32) int32 {
	top := class / 32
	if leaf := a.used[top] &^ (1<<(class%32) - 1); leaf != 0 {
		return a.heads[top*32+uint32(bits.TrailingZeros32(leaf))]
	}
	tops := a.usedTop &^ (1<<(top+1) - 1)
	if tops == 0 {
		return none
	}
	top = uint32(bits.TrailingZeros32(tops))
	return a.heads[top*32+uint32(bits.TrailingZeros32(a.used[top]))]
}

// freeRanges returns the free regions, in their order.
func (a *Allocator) freeRanges() (list []Range) {
	for i := range a.byEnd.all {
		list = append(list, a.regions[i].Range)
	}
	return list
}

// takeFront takes the first units of a free region and returns their offset.
// The rest of the region keeps its end, and with it its place in byEnd.
func (a *Allocator) takeFront(index int32, units uint32) uint32 {
	g := a.regions[index].Range
	if g.Length == units {
		a.remove(a.byEnd.from(g.End()), index)
	} else {
		a.change(index, Range{g.Offset + units, g.Length - units})
	}
	return g.Offset
}

// change makes a free region longer or shorter.
func (a *Allocator) change(index int32, r Range) {
	a.unlink(index)
	a.regions[index].Range = r
	a.link(index)
}

// insert adds a free region to the lists, and to byEnd at its place.
func (a *Allocator) insert(at place, r Range) {
	index := a.spare
	if index == none {
		index = int32(len(a.regions))
		a.regions = append(a.regions, region{})
	} else {
		a.spare = a.regions[index].next
	}
	a.regions[index].Range = r
	a.link(index)
	a.byEnd.insert(at, r.End(), index)
}

// remove takes a free region out of the lists, and of byEnd, where it has its place.
func (a *Allocator) remove(at place, index int32) {
	a.unlink(index)
	a.byEnd.delete(at)
	a.regions[index].next = a.spare
	a.spare = index
}

// link puts a region at the head of the list of its class.
func (a *Allocator) link(index int32) {
	g := &a.regions[index]
	class := classDown(g.Length)
	g.prev, g.next = none, a.heads[class]
	if g.next != none {
		a.regions[g.next].prev = index
	}
	a.heads[class] = index
	a.used[class/32] |= 1 << (class % 32)
	a.usedTop |= 1 << (class / 32)
}

func (a *Allocator) unlink(index int32) {
	g := a.regions[index]
	class := classDown(g.Length)
	if g.prev != none {
		a.regions[g.prev].next = g.next
	} else {
		a.heads[class] = g.next
	}
	if g.next != none {
		a.regions[g.next].prev = g.prev
	}
	if a.heads[class] == none {
		a.used[class/32] &^= 1 << (class % 32)
		if a.used[class/32] == 0 {
			a.usedTop &^= 1 << (class / 32)
		}
	}
}

// Size classes follow a small floating-point number of 3 mantissa bits, as in
// the C++ master's offset allocator: 256 classes, at most 12.5 % apart. A
// request is rounded up to its class; a free region is filed under the class
// rounded down, so every region of a class fits every request of that class.
const (
	mantissaBits  = 3
	mantissaValue = 1 << mantissaBits
	mantissaMask  = mantissaValue - 1

	classCount = 256

	// maxUnits is the largest size a class stands for, in units (class 239:
	// 15 << 28). A larger segment counts in units of several bytes.
	maxUnits = 15 << 28
)

// classUp returns the smallest class whose size is at least units, which must
// be at most maxUnits.
func classUp(units uint32) uint32 {
	if units < mantissaValue {
		return units
	}
	shift := uint32(bits.Len32(units)) - 1 - mantissaBits
	class := (shift+1)<<mantissaBits + (units>>shift)&mantissaMask
	if units&(1<<shift-1) != 0 {
		class++ // a mantissa that overflows carries into the exponent
	}
	return class
}

// classDown returns the largest class whose size is at most units.
func classDown(units uint32) uint32 {
	if units < mantissaValue {
		return units
	}
	shift := uint32(bits.Len32(units)) - 1 - mantissaBits
	return (shift+1)<<mantissaBits | (units>>shift)&mantissaMask
}

// classUnits returns the size that a class stands for.
func classUnits(class uint32) uint32 {
	exponent, mantissa := class>>mantissaBits, class&mantissaMask
	if exponent == 0 {
		return mantissa
	}
	return (mantissa | mantissaValue) << (exponent - 1)
}

// unitShift returns the log2 of the unit, in bytes, that a segment of size
// bytes counts in: 0 up to 3.75 GiB, one more for every doubling beyond.
func unitShift(size uint64) uint8 {
	var shift uint8
	for size>>shift > maxUnits {
		shift++
	}
	return shift
}
