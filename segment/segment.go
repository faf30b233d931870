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
	"math/rand/v2"
	"slices"
	"strings"
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

// SameMount reports whether two specifications say the same of one mount, as far
// as instances are known.
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
	capacity uint64        // bytes that can be allocated
	largest  uint64        // bytes of the largest object that fits when all is free
	gone     atomic.Bool   // unmounted
}

// New returns a mounted segment, all free.
func New(spec Spec, number Number) *Segment {
	a := NewAllocator(spec.Size)
	return &Segment{Spec: spec, Number: number, allocator: a, capacity: a.Bytes(a.Capacity()), largest: a.LargestFree()}
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
	if err := s.allocator.Free(r); err != nil {
		return fmt.Errorf("segment %v: %w", s.ID, err)
	}
	s.addBusy(-s.allocator.Bytes(r.Length))
	return nil
}

// CountIn has the busy bytes count in a sum, and no more in the one before; nil for none.
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

// addBusy needs the lock.
func (s *Segment) addBusy(bytes uint64) {
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

// A Strategy chooses segments for new replicas.
type Strategy uint8

// The strategies, with the C++ master's names.
const (
	// Random spreads replicas evenly over segment names.
	Random Strategy = iota
	// FreeRatioFirst samples six names per replica and takes those whose
	// segments have the largest free part.
	FreeRatioFirst
	// SSDFreeRatioFirst samples likewise and takes those whose owners' SSDs have the
	// largest free part.
	SSDFreeRatioFirst
)

const (
	maxProbes      = 100            // names tried for one object, besides preferred ones (C++ master)
	maxLooks       = 20 * maxProbes // names looked at for one object, of which most may be full
	samplesPerCopy = 6              // names sampled per replica by the two others (C++ master)
)

// An Allocation is a range in a segment.
type Allocation struct {
	Segment *Segment
	Range   Range
}

// A Request asks for the replicas of one object.
type Request struct {
	Size      uint64   // bytes of each replica
	Replicas  int      // wanted; at least 1
	Preferred []string // segment names to try first, in order; never mandatory
}

// A Pool is the set of segments that allocations choose from. All of it may be
// called concurrently.
type Pool struct {
	// FreeOnSSD returns the free part of a client's SSD, from 0 to 1, for
	// SSDFreeRatioFirst; set before the first allocation.
	FreeOnSSD func(ClientID) float64

	strategy Strategy
	random   func(n int) int         // a uniform number in [0, n)
	groups   atomic.Pointer[[]group] // what readers see, nil after a change

	mu     sync.Mutex // guards sorted; a leaf
	sorted []group    // by name
}

// A group is the segments of one name; replicas of an object never share one.
type group struct {
	name     string
	segments []*Segment
}

// NewPool returns an empty pool. random returns a uniform number in [0, n) and
// may be nil for the shared generator of math/rand/v2.
func NewPool(strategy Strategy, random func(n int) int) *Pool {
	if random == nil {
		random = rand.IntN
	}
	return &Pool{strategy: strategy, random: random}
}

// Add makes a segment eligible for allocations.
func (p *Pool) Add(s *Segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, found := slices.BinarySearchFunc(p.sorted, s.Name, group.compare)
	if found {
		p.sorted[at].segments = append(slices.Clone(p.sorted[at].segments), s)
	} else {
		p.sorted = slices.Insert(p.sorted, at, group{s.Name, []*Segment{s}})
	}
	p.groups.Store(nil)
}

// Remove makes a segment ineligible. An allocation that runs at the same time
// may still take a range in it.
func (p *Pool) Remove(s *Segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, found := slices.BinarySearchFunc(p.sorted, s.Name, group.compare)
	if !found {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(p.sorted[at].segments), func(o *Segment) bool { return o == s })
	if len(rest) == 0 {
		p.sorted = slices.Delete(p.sorted, at, at+1)
	} else {
		p.sorted[at].segments = rest
	}
	p.groups.Store(nil)
}

// view returns the groups as they are now, which do not change. It copies them
// once after each change, or rather after many: mounting takes a time that grows
// with the number of segments, not with its square.
func (p *Pool) view() []group {
	if groups := p.groups.Load(); groups != nil {
		return *groups
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	groups := slices.Clone(p.sorted)
	p.groups.Store(&groups)
	return groups
}

func (g group) compare(name string) int { return strings.Compare(g.name, name) }

// CouldHold reports whether an object of a size could have so many replicas if
// all memory were free: there are as many names, and a segment that can take it.
func (p *Pool) CouldHold(size uint64, replicas int) bool {
	groups := p.view()
	return len(groups) >= replicas && slices.ContainsFunc(groups, func(g group) bool {
		return slices.ContainsFunc(g.segments, func(s *Segment) bool { return s.largest >= size })
	})
}

// Has reports whether a segment of a name is eligible for allocations.
func (p *Pool) Has(name string) bool {
	_, found := slices.BinarySearchFunc(p.view(), name, group.compare)
	return found
}

// HasSegment reports whether a segment is eligible for allocations.
func (p *Pool) HasSegment(s *Segment) bool {
	groups := p.view()
	at, found := slices.BinarySearchFunc(groups, s.Name, group.compare)
	return found && slices.Contains(groups[at].segments, s)
}

// AllocateOn takes a range in a segment of a name, or reports false.
func (p *Pool) AllocateOn(name string, size uint64) (Allocation, bool) {
	groups := p.view()
	at, found := slices.BinarySearchFunc(groups, name, group.compare)
	if !found {
		return Allocation{}, false
	}
	a := attempt{pool: p, groups: groups, req: Request{Size: size}}
	if a.try(at); len(a.dst) == 0 {
		return Allocation{}, false
	}
	return a.dst[0], true
}

// Allocate appends to dst an allocation for each replica, on distinct segment
// names, preferred names first. It is best effort: fewer than asked
// for, even none, is not an error here (behaviours 1.2: one replica is enough).
func (p *Pool) Allocate(dst []Allocation, req Request) []Allocation {
	groups := p.view()
	if len(groups) == 0 {
		return dst
	}
	a := attempt{pool: p, groups: groups, req: req, dst: dst, first: len(dst)}
	for _, name := range req.Preferred {
		if a.placed() {
			break
		}
		if at, found := slices.BinarySearchFunc(groups, name, group.compare); found {
			a.try(at)
		}
	}
	a.probes, a.looks = 0, 0 // a preference takes nothing from the rest (behaviours 4)
	if p.strategy != Random && !a.done() {
		a.tryFreest()
	}
	start := p.random(len(groups))
	for i := range groups {
		if a.done() {
			break
		}
		a.try((start + i) % len(groups))
	}
	return a.dst
}

// An attempt is one call of Allocate under way.
type attempt struct {
	pool   *Pool
	groups []group
	req    Request
	dst    []Allocation
	first  int // where this attempt's allocations begin in dst
	probes int // names with enough free bytes, if in one piece
	looks  int
}

func (a *attempt) placed() bool { return len(a.dst)-a.first >= a.req.Replicas }

func (a *attempt) done() bool { return a.placed() || a.probes >= maxProbes || a.looks >= maxLooks }

// try takes a range in one segment of the group, unless the object has a
// replica under that name already. All segments of a name are one probe, and those
// without enough free bytes are none: a host with very many must not hide the others.
func (a *attempt) try(at int) {
	g := a.groups[at]
	for _, placed := range a.dst[a.first:] {
		if placed.Segment.Name == g.name {
			return
		}
	}
	a.looks++
	start := 0
	if len(g.segments) > 1 {
		start = a.pool.random(len(g.segments))
	}
	probed := false
	for i := range g.segments {
		s := g.segments[(start+i)%len(g.segments)]
		if !s.mightHold(a.req.Size) {
			continue
		}
		if !probed {
			probed = true
			a.probes++
		}
		if r, ok := s.Allocate(a.req.Size); ok {
			a.dst = append(a.dst, Allocation{s, r})
			return
		}
	}
}

// free returns the free part of what the strategy looks at.
func (p *Pool) free(s *Segment) float64 {
	if p.strategy == SSDFreeRatioFirst {
		return p.FreeOnSSD(s.Client)
	}
	return s.freeRatio()
}

// tryFreest samples names and tries them by the free part of their segments, or of
// their owners' SSDs, the largest first.
func (a *attempt) tryFreest() {
	type sample struct {
		at   int
		free float64
	}
	var buf [64]sample
	samples := buf[:0]
	for range min(samplesPerCopy*a.req.Replicas, len(a.groups), len(buf)) {
		at := a.pool.random(len(a.groups))
		best := 0.0
		for _, s := range a.groups[at].segments {
			best = max(best, a.pool.free(s))
		}
		samples = append(samples, sample{at, best})
	}
	slices.SortFunc(samples, func(x, y sample) int { return cmp.Compare(y.free, x.free) })
	for _, s := range samples {
		if a.done() {
			return
		}
		a.try(s.at)
	}
}
