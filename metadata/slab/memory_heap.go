//go:build !linux || race

package slab

import "unsafe"

// mapped is the memory of a slab. On systems other than Linux it is on Go's heap, but
// holds no pointers, so it is not scanned there either. So it is under the race detector,
// which does not see mapped memory.
type mapped struct{ regions [][]uint64 }

func (m *mapped) add() unsafe.Pointer {
	words := make([]uint64, regionSize/8)
	m.regions = append(m.regions, words)
	return unsafe.Pointer(unsafe.SliceData(words))
}

func release(unsafe.Pointer) {}

func (m *mapped) unmap() {}
