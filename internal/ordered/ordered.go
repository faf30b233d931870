// Package ordered has sets and maps that keep their items in order: B-trees, behind
// interfaces. A struct with a tree in a field would make the compiler build all methods of
// that tree in each package that imports the struct's, some hundred functions for each
// type of items; behind an interface they are built once. Nothing here may be changed
// concurrently; a copy may be read while the original is changed.
package ordered

import (
	"cmp"

	"github.com/tidwall/btree"
)

// A Set is a set of items.
type Set[T any] interface {
	Len() int
	Set(item T)    // puts it in, in place of one that is neither before nor behind it
	Delete(item T) // the one that is neither before nor behind it
	Min() (first T, found bool)
	PopMin() (first T, found bool)      // takes it out
	Until(item T) (found T, there bool) // the last that is not behind this one
	From(item T) (found T, there bool)  // the first that is not before this one
	Ascend(from T, visit func(T) bool)  // from the same, as long as visit returns true
	Scan(visit func(T) bool)            // all of them, as long as visit returns true
	Copy() Set[T]                       // in a time that does not grow with the set
}

// NewSet returns an empty set that before orders.
func NewSet[T any](before func(a, b T) bool) Set[T] {
	return set[T]{btree.NewBTreeGOptions(before, btree.Options{NoLocks: true})}
}

type set[T any] struct{ tree *btree.BTreeG[T] }

func (s set[T]) Len() int                          { return s.tree.Len() }
func (s set[T]) Set(item T)                        { s.tree.Set(item) }
func (s set[T]) Delete(item T)                     { s.tree.Delete(item) }
func (s set[T]) Min() (T, bool)                    { return s.tree.Min() }
func (s set[T]) PopMin() (T, bool)                 { return s.tree.PopMin() }
func (s set[T]) Ascend(from T, visit func(T) bool) { s.tree.Ascend(from, visit) }
func (s set[T]) Scan(visit func(T) bool)           { s.tree.Scan(visit) }
func (s set[T]) Copy() Set[T]                      { return set[T]{s.tree.Copy()} }

func (s set[T]) Until(item T) (found T, there bool) {
	s.tree.Descend(item, func(x T) bool {
		found, there = x, true
		return false
	})
	return found, there
}

func (s set[T]) From(item T) (found T, there bool) {
	s.tree.Ascend(item, func(x T) bool {
		found, there = x, true
		return false
	})
	return found, there
}

// A Map has a value for each of its keys.
type Map[K cmp.Ordered, V any] interface {
	Len() int
	Get(K) (value V, found bool)
	Set(K, V)
	Delete(K)
	Max() (last K, value V, found bool)
	At(index int) (K, V)                   // in the order of the keys, from 0
	Until(K) (last K, value V, found bool) // the last that is not behind this key
	From(K) (first K, value V, found bool) // the first that is not before this key
	Scan(visit func(K, V) bool)            // all of them, as long as visit returns true
	Copy() Map[K, V]                       // in a time that does not grow with the map
}

// NewMap returns an empty map.
func NewMap[K cmp.Ordered, V any]() Map[K, V] { return mapping[K, V]{new(btree.Map[K, V])} }

type mapping[K cmp.Ordered, V any] struct{ tree *btree.Map[K, V] }

func (m mapping[K, V]) Len() int                   { return m.tree.Len() }
func (m mapping[K, V]) Get(key K) (V, bool)        { return m.tree.Get(key) }
func (m mapping[K, V]) Set(key K, value V)         { m.tree.Set(key, value) }
func (m mapping[K, V]) Delete(key K)               { m.tree.Delete(key) }
func (m mapping[K, V]) Max() (K, V, bool)          { return m.tree.Max() }
func (m mapping[K, V]) Scan(visit func(K, V) bool) { m.tree.Scan(visit) }
func (m mapping[K, V]) Copy() Map[K, V]            { return mapping[K, V]{m.tree.Copy()} }

func (m mapping[K, V]) At(index int) (K, V) {
	key, value, _ := m.tree.GetAt(index)
	return key, value
}

func (m mapping[K, V]) Until(key K) (last K, value V, found bool) {
	m.tree.Descend(key, func(k K, v V) bool {
		last, value, found = k, v, true
		return false
	})
	return last, value, found
}

func (m mapping[K, V]) From(key K) (first K, value V, found bool) {
	m.tree.Ascend(key, func(k K, v V) bool {
		first, value, found = k, v, true
		return false
	})
	return first, value, found
}
