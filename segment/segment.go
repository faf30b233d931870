// Package segment keeps the memory that clients lend to the store: mounted
// segments, the ranges allocated in them, and the choice of segments for the
// replicas of an object.
//
// It is part of the pure core: it starts no goroutine, does no I/O, writes no
// logs and reads no clock. It knows nothing of objects, leases or journals.
package segment

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
)

// An ID is the UUID that a client gave to one mount.
type ID uuid.UUID

func (id ID) String() string { return uuid.UUID(id).String() }

// MarshalText returns the canonical form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// A ClientID is the UUID of the process that owns a segment or writes an
// object.
type ClientID uuid.UUID

func (id ClientID) String() string { return uuid.UUID(id).String() }

// MarshalText returns the canonical form.
func (id ClientID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// A Number is the short name of one mount, given when it is journaled and
// never reused. 0 names no segment.
type Number uint32

// MinSize and MaxSize bound a segment, in bytes. The upper bound keeps a
// segment's ranges within 32 bits of units of at most 1 GiB.
const (
	MinSize = 1
	MaxSize = uint64(maxUnits) << 30
)

// A Spec is what a client says of the memory it mounts.
type Spec struct {
	ID       ID
	Name     string   // the host's name; several segments may share it
	Base     uint64   // address of the first byte in the owner's memory
	Size     uint64   // bytes
	Endpoint string   // transfer engine endpoint, where the bytes are reached
	Protocol string   // transfer protocol, for example "rdma" or "tcp"
	HostID   string   // stable identity of the host; may be empty
	Client   ClientID // the owner
	Instance uint64   // of the owner's process, new with each start; 0 if unknown
}

// SameMount reports whether two specifications are equal. It ignores the instances unless
// both are known.
func (s Spec) SameMount(o Spec) bool {
	if s.Instance == 0 || o.Instance == 0 {
		s.Instance, o.Instance = 0, 0
	}
	return s == o
}

// Validate returns an error that names the invalid property of the segment.
func (s Spec) Validate() error {
	switch {
	case s.ID == ID{}:
		return fmt.Errorf("the segment has no id")
	case s.Name == "":
		return fmt.Errorf("segment %v has no name", s.ID)
	case s.Base == 0:
		return fmt.Errorf("segment %v has base address 0", s.ID)
	case s.Size < MinSize || s.Size > MaxSize:
		return fmt.Errorf("segment %v has %d bytes, outside %d to %d", s.ID, s.Size, MinSize, MaxSize)
	case s.Base+s.Size < s.Base:
		return fmt.Errorf("segment %v runs over the end of the address space", s.ID)
	}
	return nil
}

// SamePlace reports whether two segments share memory: addresses that overlap
// behind the same endpoint.
func (s Spec) SamePlace(o Spec) bool {
	return s.Endpoint == o.Endpoint && s.Base < o.Base+o.Size && o.Base < s.Base+s.Size
}

// A Segment is one mount with its allocator. Its methods may be called
// concurrently.
type Segment struct {
	Spec
	Number Number

	mu        sync.Mutex // guards the next two; a leaf: nothing is locked under it
	allocator *Allocator
	sum       *atomic.Uint64 // of the busy bytes of some segments, nil for none

	busy     atomic.Uint64 // bytes in allocated ranges
	fits     atomic.Uint64 // bytes of the largest object that fits now
	capacity uint64        // bytes that can be allocated
	largest  uint64        // bytes of the largest object that fits when all is free
	gone     atomic.Bool   // unmounted
	eligible atomic.Bool   // in a Pool
	place    int           // index in its group there; guarded by the Pool's lock
	room     atomic.Pointer[room]
}

// New returns a mounted segment, all free.
func New(spec Spec, number Number) *Segment {
	a := NewAllocator(spec.Size)
	s := &Segment{Spec: spec, Number: number, allocator: a, capacity: a.Bytes(a.Capacity()), largest: a.LargestFree()}
	s.fits.Store(s.largest)
	return s
}

// Allocate takes a range for size bytes, or reports false.
func (s *Segment) Allocate(size uint64) (Range, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.allocator.Allocate(size)
	if ok {
		s.addBusy(s.allocator.Bytes(r.Length))
	}
	return r, ok
}

// Reserve takes exactly r; it fails when part of r is busy.
func (s *Segment) Reserve(r Range) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.allocator.Reserve(r); err != nil {
		return fmt.Errorf("segment %v: %w", s.ID, err)
	}
	s.addBusy(s.allocator.Bytes(r.Length))
	return nil
}

// Free gives r back; it fails when part of r is free.
func (s *Segment) Free(r Range) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free(r)
}

// free is Free for one or more ranges. It leaves out one that fails, and those behind it.
// Needs the lock.
func (s *Segment) free(ranges ...Range) (err error) {
	var bytes uint64
	for _, r := range ranges {
		if err = s.allocator.Free(r); err != nil {
			err = fmt.Errorf("segment %v: %w", s.ID, err)
			break
		}
		bytes += s.allocator.Bytes(r.Length)
	}
	s.addBusy(-bytes)
	if room := s.room.Load(); room != nil {
		room.freed(s.fits.Load())
	}
	return err
}

// A Lot is ranges of one segment.
type Lot struct {
	*Segment
	Ranges []Range
}

// atOnce is how many segments FreeLots locks at once.
const atOnce = 16

// FreeLots frees ranges of distinct segments, each segment's in their order. It locks some
// segments at once, and reads ahead what freeing their ranges will read, so that the
// processor waits for the memory of many of them at once. So only one call may be under
// way. It returns the first error; other segments' ranges are freed all the same.
func FreeLots(lots []Lot) (err error) {
	for some := range slices.Chunk(lots, atOnce) {
		for _, l := range some {
			l.mu.Lock()
		}
		for _, l := range some {
			l.allocator.readAhead(l.Ranges)
		}
		for _, l := range some {
			err = cmp.Or(err, l.free(l.Ranges...))
			l.mu.Unlock()
		}
	}
	return err
}

// CountIn makes the busy bytes count in a sum, nil for none, and no longer in the
// previous one.
func (s *Segment) CountIn(sum *atomic.Uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	busy := s.busy.Load()
	if s.sum != nil {
		s.sum.Add(-busy)
	}
	if s.sum = sum; sum != nil {
		sum.Add(busy)
	}
}

// addBusy counts what the allocator gave out, or took back. Needs the lock.
func (s *Segment) addBusy(bytes uint64) {
	s.fits.Store(s.allocator.LargestFree())
	s.busy.Add(bytes)
	if s.sum != nil {
		s.sum.Add(bytes)
	}
}

// FreeRanges returns what is free, in the order of the ranges.
func (s *Segment) FreeRanges() []Range {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allocator.freeRanges()
}

// Whole returns the range that covers the segment.
func (s *Segment) Whole() Range { return Range{0, s.allocator.Capacity()} }

// Bytes converts units of this segment to bytes.
func (s *Segment) Bytes(units uint32) uint64 { return s.allocator.Bytes(units) }

// Address returns the address of a range's first byte in the owner's memory.
func (s *Segment) Address(r Range) uint64 { return s.Base + s.Bytes(r.Offset) }

// Capacity returns the bytes that can be allocated at most.
func (s *Segment) Capacity() uint64 { return s.capacity }

// Busy returns the bytes in allocated ranges, rounding included.
func (s *Segment) Busy() uint64 { return s.busy.Load() }

// Gone reports whether the segment was unmounted. It never comes back.
func (s *Segment) Gone() bool { return s.gone.Load() }

// MarkGone unmounts the segment for every reader at once.
func (s *Segment) MarkGone() { s.gone.Store(true) }

// mightHold reports whether so many bytes are free, in one piece or not. It takes no lock.
func (s *Segment) mightHold(size uint64) bool {
	return size <= s.largest && size <= s.capacity-min(s.capacity, s.busy.Load())
}

// freeRatio returns the free part of the segment, from 0 to 1.
func (s *Segment) freeRatio() float64 {
	if s.capacity == 0 {
		return 0
	}
	return 1 - float64(s.busy.Load())/float64(s.capacity)
}
