//go:build linux && !race

package slab

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapped is the memory of a slab.
type mapped struct{ regions []unsafe.Pointer }

// add maps a region. Its pages take memory when they are first written.
func (m *mapped) add() unsafe.Pointer {
	p, err := unix.MmapPtr(-1, 0, nil, regionSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		panic(fmt.Sprintf("slab: out of memory: mapping %d bytes: %v", regionSize, err))
	}
	m.regions = append(m.regions, p)
	return p
}

// release gives the memory of a chunk back; it reads as zeros until it is written anew.
func release(p unsafe.Pointer) {
	// An error would mean that the memory is not given back, and nothing else.
	_ = unix.Madvise(unsafe.Slice((*byte)(p), chunkSize), unix.MADV_DONTNEED)
}

// unmap takes all of it away.
func (m *mapped) unmap() {
	for _, p := range m.regions {
		_ = unix.MunmapPtr(p, regionSize)
	}
}
