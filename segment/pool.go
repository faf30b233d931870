package segment

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/understudy-store/understudy/internal/ordered"
)

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
	samplesPerCopy = 6              // names sampled per replica by the other strategies (C++ master)
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
	random   func(n int) int        // a uniform number in [0, n)
	seen     atomic.Pointer[groups] // what readers see, nil after a change
	largest  atomic.Uint64          // bytes of the largest object that fits in any segment that is empty

	mu    sync.Mutex // guards the rest; a leaf
	all   groups
	views int                      // taken of all so far
	sizes ordered.Map[uint64, int] // how many segments there are by the largest object that fits in them
}

// groups are all segments by their names, in order. A copy takes no time: it shares with
// the original what has changed in neither.
type groups struct{ ordered.Map[string, group] }

// A group is the segments of one name; replicas of an object never share one.
type group struct {
	room     *room
	segments []*Segment
	views    int // Pool.views when segments was last copied: later views share it
}

// A room remembers the size from which on no segment of a name has room, so that most
// allocations pass over a host with very many full segments without a look at each.
type room struct {
	tooLarge atomic.Uint64 // bytes; 1<<64 - 1 if not known
	frees    atomic.Uint64
}

func newRoom() *room {
	r := new(room)
	r.tooLarge.Store(math.MaxUint64)
	return r
}

// freed notes that an object of up to so many bytes fits in one of the segments. Call it
// only once that is so: the order matters, see attempt.lacks.
func (r *room) freed(fits uint64) {
	r.frees.Add(1)
	if fits >= r.tooLarge.Load() {
		r.tooLarge.Store(math.MaxUint64)
	}
}

// NewPool returns an empty pool. random returns a uniform number in [0, n) and
// may be nil for the shared generator of math/rand/v2.
func NewPool(strategy Strategy, random func(n int) int) *Pool {
	if random == nil {
		random = rand.IntN
	}
	return &Pool{
		strategy: strategy, random: random,
		all: groups{ordered.NewMap[string, group]()}, sizes: ordered.NewMap[uint64, int](),
	}
}

// Add makes a segment eligible for allocations. A segment is in one pool at most.
func (p *Pool) Add(s *Segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.eligible.Swap(true) {
		return
	}
	g, there := p.all.Get(s.Name)
	if !there {
		g.room = newRoom()
	}
	s.room.Store(g.room)
	s.place = len(g.segments)
	g.segments = append(g.segments, s) // behind what views see
	p.all.Set(s.Name, g)
	p.seen.Store(nil)
	g.room.freed(math.MaxUint64)
	p.countSize(s, 1)
}

// countSize counts a segment by its size, or one less. The lock is held.
func (p *Pool) countSize(s *Segment, by int) {
	n, _ := p.sizes.Get(s.largest)
	if n += by; n > 0 {
		p.sizes.Set(s.largest, n)
	} else {
		p.sizes.Delete(s.largest)
	}
	largest, _, _ := p.sizes.Max()
	p.largest.Store(largest)
}

// Remove makes a segment ineligible. An allocation that runs at the same time
// may still take a range in it.
func (p *Pool) Remove(s *Segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.eligible.Swap(false) {
		return
	}
	p.seen.Store(nil)
	p.countSize(s, -1)
	g, _ := p.all.Get(s.Name)
	last := len(g.segments) - 1
	if last == 0 {
		p.all.Delete(s.Name)
		return
	}
	if g.views != p.views {
		g.segments, g.views = slices.Clone(g.segments), p.views
	}
	moved := g.segments[last]
	g.segments[s.place], moved.place = moved, s.place
	g.segments[last] = nil
	g.segments = g.segments[:last]
	p.all.Set(s.Name, g)
}

// view returns the groups as they are now. The result never changes.
func (p *Pool) view() *groups {
	if seen := p.seen.Load(); seen != nil {
		return seen
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := &groups{p.all.Copy()}
	p.views++
	p.seen.Store(seen)
	return seen
}

// CouldHold reports whether an object of a size could have so many replicas if
// all memory were free: there are as many names, and a segment that can take it.
func (p *Pool) CouldHold(size uint64, replicas int) bool {
	n := p.view().Len()
	return n > 0 && n >= replicas && size <= p.largest.Load()
}

// Has reports whether a segment of a name is eligible for allocations.
func (p *Pool) Has(name string) bool {
	_, found := p.view().Get(name)
	return found
}

// HasSegment reports whether a segment is eligible for allocations.
func (p *Pool) HasSegment(s *Segment) bool { return s.eligible.Load() }

// AllocateOn takes a range in a segment of a name, or reports false.
func (p *Pool) AllocateOn(name string, size uint64) (Allocation, bool) {
	groups := p.view()
	g, found := groups.Get(name)
	if !found {
		return Allocation{}, false
	}
	a := attempt{pool: p, groups: groups, req: Request{Size: size}}
	if a.try(name, g); len(a.dst) == 0 {
		return Allocation{}, false
	}
	return a.dst[0], true
}

// Allocate appends to dst an allocation for each replica, on distinct segment
// names, preferred names first. It is best effort: fewer than asked
// for, even none, is not an error here (behaviours 1.2: one replica is enough).
func (p *Pool) Allocate(dst []Allocation, req Request) []Allocation {
	groups := p.view()
	if groups.Len() == 0 || req.Size > p.largest.Load() {
		return dst
	}
	a := attempt{pool: p, groups: groups, req: req, dst: dst, first: len(dst)}
	for i := 0; i < len(req.Preferred) && !a.placed(); i++ {
		if g, found := groups.Get(req.Preferred[i]); found {
			a.try(req.Preferred[i], g)
		}
	}
	a.probes, a.looks = 0, 0 // a preference takes nothing from the rest (behaviours 4)
	if p.strategy != Random && !a.done() {
		a.tryFreest()
	}
	a.tryFrom(p.random(groups.Len()))
	return a.dst
}

// An attempt is one call of Allocate under way.
type attempt struct {
	pool   *Pool
	groups *groups
	req    Request
	dst    []Allocation
	first  int // where this attempt's allocations begin in dst
	probes int // names that have enough free bytes, in one piece or not
	looks  int
}

func (a *attempt) placed() bool { return len(a.dst)-a.first >= a.req.Replicas }

func (a *attempt) done() bool { return a.placed() || a.probes >= maxProbes || a.looks >= maxLooks }

// try takes a range in one segment of the group, unless the object has a replica under
// that name already. All segments of a name are one probe, or none if all lack free
// bytes: a host with very many must not hide the others.
func (a *attempt) try(name string, g group) {
	if slices.ContainsFunc(a.dst[a.first:], func(placed Allocation) bool { return placed.Segment.Name == name }) {
		return
	}
	a.looks++
	if a.req.Size >= g.room.tooLarge.Load() {
		return
	}
	frees := g.room.frees.Load()
	start := 0
	if len(g.segments) > 1 {
		start = a.pool.random(len(g.segments))
	}
	probes := a.probes + 1
	for i := range g.segments {
		s := g.segments[(start+i)%len(g.segments)]
		if !s.mightHold(a.req.Size) {
			continue
		}
		a.probes = probes
		if s.fits.Load() < a.req.Size {
			continue
		}
		if r, ok := s.Allocate(a.req.Size); ok {
			a.dst = append(a.dst, Allocation{s, r})
			return
		}
	}
	a.lacks(g.room, frees)
}

// lacks notes that no segment of a name had room, unless that may have changed: memory
// was freed, or segments have come or gone. A change that comes later finds the note and
// takes it back.
func (a *attempt) lacks(r *room, frees uint64) {
	r.tooLarge.Store(a.req.Size)
	if r.frees.Load() != frees || a.pool.seen.Load() != a.groups {
		r.tooLarge.Store(math.MaxUint64)
	}
}

// tryFrom tries the names in their order, from one on.
func (a *attempt) tryFrom(start int) {
	n := a.groups.Len()
	for i := 0; i < n && !a.done(); i++ {
		name, g := a.groups.At((start + i) % n)
		a.try(name, g)
	}
}

// free returns the free part of what the strategy compares, from 0 to 1.
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
		name string
		group
		free float64
	}
	var buf [64]sample
	samples := buf[:0]
	for range min(samplesPerCopy*a.req.Replicas, a.groups.Len(), len(buf)) {
		name, g := a.groups.At(a.pool.random(a.groups.Len()))
		best := 0.0
		for _, s := range g.segments {
			best = max(best, a.pool.free(s))
		}
		samples = append(samples, sample{name, g, best})
	}
	slices.SortFunc(samples, func(x, y sample) int { return cmp.Compare(y.free, x.free) })
	for _, s := range samples {
		if a.done() {
			return
		}
		a.try(s.name, s.group)
	}
}
