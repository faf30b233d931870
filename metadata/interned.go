package metadata

import "sync/atomic"

// interned gives values short names for as long as records use them, because records hold
// no pointers. Whoever may read a record may look up the value of a name in it; all else
// is guarded by Store.applyMu. The name of the zero value is 0.
type interned[T comparable] struct {
	names  map[T]uint32
	uses   []int    // of each name
	spare  []uint32 // names of nothing
	values atomic.Pointer[[]T]
}

// value returns what a name stands for.
func (n *interned[T]) value(name uint32) (v T) {
	if name == 0 {
		return v
	}
	return (*n.values.Load())[name]
}

// take returns the name of a value, for one more user.
func (n *interned[T]) take(v T) uint32 {
	var zero T
	if v == zero {
		return 0
	}
	name, known := n.names[v]
	if !known {
		name = n.add(v)
	}
	n.uses[name]++
	return name
}

func (n *interned[T]) add(v T) (name uint32) {
	if n.names == nil {
		n.names, n.uses = make(map[T]uint32), make([]int, 1)
		values := make([]T, 1)
		n.values.Store(&values)
	}
	values := *n.values.Load()
	if last := len(n.spare) - 1; last >= 0 {
		name, n.spare = n.spare[last], n.spare[:last]
		values[name] = v // nobody reads the value of a name that has no user
	} else {
		name = uint32(len(values))
		values = append(values, v)
		n.uses = append(n.uses, 0)
		n.values.Store(&values)
	}
	n.names[v] = name
	return name
}

// drop takes a user of a name away. The last one takes the name along.
func (n *interned[T]) drop(name uint32) {
	if name == 0 {
		return
	}
	if n.uses[name]--; n.uses[name] > 0 {
		return
	}
	var zero T
	values := *n.values.Load()
	delete(n.names, values[name])
	values[name] = zero
	n.spare = append(n.spare, name)
}
