// Package reftable is a hash table of 32-bit references, most of whose lookups read one
// cache line. It knows neither what they refer to nor their keys: callers give it hashes,
// and compare keys themselves.
//
// Entries lie in groups of one cache line: 12 references, and for each of them 8 bits of
// its hash, the tag, so that nearly all comparisons are with the right entry. An entry
// that finds its group full goes to the next one. Each group counts the entries that went
// on from it, so that a lookup knows where to end, and a removal leaves no tombstone.
// (The layout is that of Meta's F14, which in turn follows Google's SwissTable.)
package reftable

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// A Table holds references other than 0. Its zero value is empty. It is not safe for
// concurrent use, but for Guess.
type Table struct {
	groups []group
	count  int
	// first is the group in front of groups, for those who read without the lock: its
	// first reference says how many groups follow.
	first atomic.Pointer[group]
}

const slots = 12

// A group is one cache line.
type group struct {
	tags [slots]uint8  // 0 for a free slot
	over uint32        // entries that found the group full and went on
	refs [slots]uint32 // of the slots that are not free
}

const (
	maxLoad  = 10 // entries to a group on average, beyond which the table grows
	minLoad  = 2  // below which it shrinks
	goodLoad = 8  // after it has shrunk

	// doubled is the number of groups up to which a table grows twofold, as each growth
	// hashes all entries anew. Beyond it a table grows by a quarter, which takes less
	// memory: from 111 groups on, those of 10 M objects in 1,024 shards fill 64 KiB,
	// whole pages of Go's heap.
	doubled = 111
)

// Len returns the number of entries.
func (t *Table) Len() int { return t.count }

// Bytes returns how much memory the entries take.
func (t *Table) Bytes() int { return len(t.groups) * int(unsafe.Sizeof(group{})) }

// Find returns the reference with a hash for which is returns true, 0 if there is none.
func (t *Table) Find(hash uint64, is func(ref uint32) bool) uint32 {
	tag := repeated(hash)
	for at, left := home(hash, len(t.groups)), len(t.groups); left > 0; left-- {
		g := &t.groups[at]
		low, high := g.match(tag)
		for ; low != 0; low &= low - 1 {
			if ref := g.refs[bits.TrailingZeros64(low)/8]; is(ref) {
				return ref
			}
		}
		for ; high != 0; high &= high - 1 {
			if ref := g.refs[8+bits.TrailingZeros32(high)/8]; is(ref) {
				return ref
			}
		}
		if g.over == 0 {
			break
		}
		if at++; at == len(t.groups) {
			at = 0
		}
	}
	return 0
}

// Insert adds a reference. hashOf returns the hash of any entry.
func (t *Table) Insert(hash uint64, ref uint32, hashOf func(ref uint32) uint64) {
	if t.count >= len(t.groups)*maxLoad {
		t.resize(larger(len(t.groups)), hashOf)
	}
	t.insert(hash, ref)
	t.count++
}

func (t *Table) insert(hash uint64, ref uint32) {
	for at := home(hash, len(t.groups)); ; {
		g := &t.groups[at]
		if slot := g.free(); slot < slots {
			g.tags[slot], g.refs[slot] = tagOf(hash), ref
			return
		}
		g.over++
		if at++; at == len(t.groups) {
			at = 0
		}
	}
}

// larger returns the number of groups of a table after it has grown.
func larger(groups int) int {
	if groups < doubled {
		return min(max(1, 2*groups), doubled)
	}
	return groups + groups/4
}

// Reserve makes an empty table as large as one that grew to n entries, so that they are
// inserted without growing it.
func (t *Table) Reserve(n int) {
	groups := 0
	for groups*maxLoad < n {
		groups = larger(groups)
	}
	if t.count == 0 && groups > len(t.groups) {
		t.resize(groups, nil)
	}
}

// Delete removes a reference with a hash, if it is there.
func (t *Table) Delete(hash uint64, ref uint32, hashOf func(ref uint32) uint64) {
	start := home(hash, len(t.groups))
	for at, passed := start, 0; passed < len(t.groups); passed++ {
		g := &t.groups[at]
		for slot, tag := range g.tags {
			if tag == 0 || g.refs[slot] != ref {
				continue
			}
			g.tags[slot], g.refs[slot] = 0, 0
			for at := start; passed > 0; passed-- {
				t.groups[at].over--
				if at++; at == len(t.groups) {
					at = 0
				}
			}
			if t.count--; t.count < len(t.groups)*minLoad && len(t.groups) > 1 {
				t.resize(t.count/goodLoad+1, hashOf)
			}
			return
		}
		if g.over == 0 {
			return
		}
		if at++; at == len(t.groups) {
			at = 0
		}
	}
}

// resize moves all entries to so many groups.
func (t *Table) resize(n int, hashOf func(ref uint32) uint64) {
	before, all := t.groups, make([]group, 1+n)
	all[0].refs[0] = uint32(n)
	t.groups = all[1:]
	for i := range before {
		for slot, tag := range before[i].tags {
			if tag != 0 {
				t.insert(hashOf(before[i].refs[slot]), before[i].refs[slot])
			}
		}
	}
	t.first.Store(&all[0])
}

// Each visits all entries, those of a group together, until visit returns false. visit may
// delete an entry that it is given, and must not keep the list.
func (t *Table) Each(visit func(refs []uint32) bool) {
	t.Part(new(Place), len(t.groups), visit)
}

// A Place is how far Part has come. Its zero value is the beginning.
type Place struct {
	Again func() // is called when Part begins again; may be nil

	at int    // groups that were visited
	of *group // Table.first then
}

// Part is Each for the next groups, so many at most, from a place on. It reports whether
// there are more. If the table was resized since the part before, it begins again: then it
// visits entries twice.
func (t *Table) Part(from *Place, groups int, visit func(refs []uint32) bool) (more bool) {
	all := t.groups // a deletion may resize the table, and leaves these as they are
	if first := t.first.Load(); from.of != first {
		if from.of != nil && from.Again != nil {
			from.Again()
		}
		from.at, from.of = 0, first
	}
	var refs [slots]uint32
	end := min(from.at+groups, len(all))
	for ; from.at < end; from.at++ {
		g, n := &all[from.at], 0
		for slot, tag := range g.tags {
			if tag != 0 {
				refs[n], n = g.refs[slot], n+1
			}
		}
		if n > 0 && !visit(refs[:n]) {
			return false
		}
	}
	return end < len(all)
}

// Guess returns what Find most likely compares first, or 0. It may be called while
// another goroutine changes the table; then it may return anything. It is there to bring
// the memory that Find will read into the processor's caches.
//
//go:norace
func (t *Table) Guess(hash uint64) uint32 {
	first := t.first.Load()
	if first == nil {
		return 0
	}
	at := home(hash, int(first.refs[0]))
	g := (*group)(unsafe.Add(unsafe.Pointer(first), (1+at)*int(unsafe.Sizeof(*first))))
	low, high := g.match(repeated(hash))
	slot := bits.TrailingZeros64(low) / 8
	if low == 0 {
		slot += bits.TrailingZeros32(high) / 8
	}
	return g.refs[min(slot, slots-1)]
}

// Touch reads the group in which a lookup of a hash begins, so that it is in the
// processor's caches. Unlike Guess it needs what a lookup needs. Its result means nothing,
// and only keeps the compiler from dropping the read.
func (t *Table) Touch(hash uint64) uint32 {
	if len(t.groups) == 0 {
		return 0
	}
	return t.groups[home(hash, len(t.groups))].over
}

// home returns the group in which a lookup begins.
func home(hash uint64, groups int) int { return int(hash >> 32 * uint64(groups) >> 32) }

func tagOf(hash uint64) uint8 { return max(1, uint8(hash)) }

const (
	eachByte = 0x0101010101010101
	lowBits  = 0x7F * eachByte
)

func repeated(hash uint64) uint64 { return uint64(tagOf(hash)) * eachByte }

// match returns the highest bit of each byte that stands for a slot with a tag: of the
// first 8 slots, and of the rest.
//
//go:norace
func (g *group) match(tag uint64) (low uint64, high uint32) {
	return zeros(binary.LittleEndian.Uint64(g.tags[:8]) ^ tag), uint32(zeros(uint64(binary.LittleEndian.Uint32(g.tags[8:]))^tag&0xFFFFFFFF) & 0xFFFFFFFF)
}

// free returns the first free slot, slots if there is none.
func (g *group) free() int {
	low, high := g.match(0)
	if low != 0 {
		return bits.TrailingZeros64(low) / 8
	}
	return 8 + bits.TrailingZeros32(high)/8 // 32 zeros are 4 slots
}

// zeros returns the highest bit of each byte that is 0.
func zeros(v uint64) uint64 { return ^((v&lowBits + lowBits) | v | lowBits) }
