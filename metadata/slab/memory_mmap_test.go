//go:build linux && !race

package slab

import (
	"errors"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const givesBack = true // memory of free chunks

// The memory of a slab goes with the slab.
func TestGarbageIsUnmapped(t *testing.T) {
	at := func() uintptr {
		s := New(MaxBytes)
		return uintptr(s.At(s.Alloc(100)))
	}()
	page := at &^ uintptr(unix.Getpagesize()-1)
	for t.Context().Err() == nil {
		runtime.GC()
		var in [1]byte
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, page, 1, uintptr(unsafe.Pointer(&in[0])))
		if errors.Is(errno, unix.ENOMEM) { // nothing is mapped there
			return
		}
		runtime.Gosched()
	}
}
