package segment

import "slices"

// ends keeps free regions in the order of their ends. The keys lie side by side, in
// leaves of some cache lines under one short list: most of what it costs to free a range
// is waiting for memory, and a search waits about twice. Its zero value is empty.
type ends struct {
	lasts  []uint32 // the last end of each leaf
	leaves []*leaf
}

// leafSize is how many ends a leaf holds: more make each insertion move more of them,
// fewer make the list of leaves longer.
const leafSize = 128

// perLine is how many ends lie in a cache line of 64 bytes.
const perLine = 16

type leaf struct {
	n       int
	ends    [leafSize]uint32
	regions [leafSize]int32 // the indexes of the regions with these ends
}

// A place is that of an end in the order. It holds until the next insertion or deletion.
type place struct{ leaf, at int }

// from returns the place of the first end that is not before a unit. There may be none:
// then an end that is inserted there is the last one.
func (x *ends) from(unit uint32) place {
	in, _ := slices.BinarySearch(x.lasts, unit)
	if in == len(x.leaves) {
		return place{leaf: in}
	}
	return place{in, x.leaves[in].from(unit)}
}

// from returns the first place of an end that is not before a unit, n if there is none. It
// looks at the last end of each cache line first, which waits for all lines at once.
func (l *leaf) from(unit uint32) int {
	at := 0
	for last := perLine - 1; last < l.n; last += perLine {
		if l.ends[last] < unit {
			at = last + 1
		}
	}
	for at < l.n && l.ends[at] < unit {
		at++
	}
	return at
}

// at returns the index of the region at a place, and its end; none if there is none.
func (x *ends) at(p place) (index int32, end uint32) {
	if p.leaf == len(x.leaves) {
		return none, 0
	}
	l := x.leaves[p.leaf]
	return l.regions[p.at], l.ends[p.at]
}

// next returns the place behind one that has an end.
func (x *ends) next(p place) place {
	if p.at++; p.at == x.leaves[p.leaf].n {
		p = place{leaf: p.leaf + 1}
	}
	return p
}

// insert puts an end in at its place, which is from(end).
func (x *ends) insert(p place, end uint32, index int32) {
	if p.leaf == len(x.leaves) { // behind all others
		if p.leaf == 0 {
			x.leaves, x.lasts = append(x.leaves, new(leaf)), append(x.lasts, end)
		} else {
			p.leaf--
		}
		p.at = x.leaves[p.leaf].n
	}
	if x.leaves[p.leaf].n == leafSize {
		p = x.split(p)
	}
	l := x.leaves[p.leaf]
	copy(l.ends[p.at+1:l.n+1], l.ends[p.at:l.n])
	copy(l.regions[p.at+1:l.n+1], l.regions[p.at:l.n])
	l.ends[p.at], l.regions[p.at] = end, index
	l.n++
	x.lasts[p.leaf] = l.ends[l.n-1]
}

// split moves the second half of a full leaf into a leaf of its own, and returns where a
// place in it is now.
func (x *ends) split(p place) place {
	const half = leafSize / 2
	first, second := x.leaves[p.leaf], new(leaf)
	second.n = copy(second.ends[:], first.ends[half:])
	copy(second.regions[:], first.regions[half:])
	first.n = half
	x.leaves = slices.Insert(x.leaves, p.leaf+1, second)
	x.lasts = slices.Insert(x.lasts, p.leaf, first.ends[half-1])
	if p.at > half {
		p = place{p.leaf + 1, p.at - half}
	}
	return p
}

// delete takes the end at a place out. A leaf that is nearly empty then takes in the next
// one, if both are small, so that a list that shrinks evenly gives its memory back.
func (x *ends) delete(p place) {
	l := x.leaves[p.leaf]
	copy(l.ends[p.at:], l.ends[p.at+1:l.n])
	copy(l.regions[p.at:], l.regions[p.at+1:l.n])
	if l.n--; l.n == 0 {
		x.drop(p.leaf)
		return
	}
	x.lasts[p.leaf] = l.ends[l.n-1]
	if l.n > leafSize/4 || p.leaf+1 == len(x.leaves) || x.leaves[p.leaf+1].n > leafSize/2 {
		return
	}
	next := x.leaves[p.leaf+1]
	copy(l.ends[l.n:], next.ends[:next.n])
	copy(l.regions[l.n:], next.regions[:next.n])
	l.n += next.n
	x.lasts[p.leaf] = l.ends[l.n-1]
	x.drop(p.leaf + 1)
}

// drop takes a leaf away.
func (x *ends) drop(at int) {
	x.leaves, x.lasts = slices.Delete(x.leaves, at, at+1), slices.Delete(x.lasts, at, at+1)
}

// move changes the end at a place to one that has the same place in the order.
func (x *ends) move(p place, end uint32) {
	l := x.leaves[p.leaf]
	if l.ends[p.at] = end; p.at == l.n-1 {
		x.lasts[p.leaf] = end
	}
}

// all visits the indexes of the regions, in the order of their ends.
func (x *ends) all(yield func(index int32) bool) {
	for _, l := range x.leaves {
		for _, index := range l.regions[:l.n] {
			if !yield(index) {
				return
			}
		}
	}
}
