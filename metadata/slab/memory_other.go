//go:build !linux

package slab

import "unsafe"

// mapped is the memory of a slab: on systems other than Linux of Go's heap, which does
// not scan it either.
type mapped struct{ regions [][]uint64 }

func (m *mapped) add() unsafe.Pointer {
	words := make([]uint64, regionSize/8)
	m.regions = append(m.regions, words)
	return unsafe.Pointer(unsafe.SliceData(words))
}

func release(unsafe.Pointer) {}

func (m *mapped) unmap() {}
