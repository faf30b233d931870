package ordered_test

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/understudy-store/understudy/internal/ordered"
)

// A set and a map do what a sorted list does.
func TestLikeASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, byKey := ordered.NewSet(func(a, b int) bool { return a < b }), ordered.NewMap[int, int]()
		values := make(map[int]int)
		key := rapid.IntRange(0, 20)
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), key.Draw(t, "value")
				set.Set(k)
				byKey.Set(k, v)
				values[k] = v
			},
			"delete": func(t *rapid.T) {
				k := key.Draw(t, "key")
				set.Delete(k)
				byKey.Delete(k)
				delete(values, k)
			},
			"pop the first": func(*rapid.T) {
				k, _ := set.PopMin()
				byKey.Delete(k)
				delete(values, k)
			},
			"copy": func(*rapid.T) { // the original changes no more
				set, byKey = set.Copy(), byKey.Copy()
			},
			"": func(t *rapid.T) { compare(t, set, byKey, values) },
		})
	})
}

func compare(t *rapid.T, set ordered.Set[int], byKey ordered.Map[int, int], values map[int]int) {
	keys := slices.Sorted(maps.Keys(values))
	listed := []int{}
	set.Scan(func(k int) bool { listed = append(listed, k); return true })
	mapped := make(map[int]int)
	byKey.Scan(func(k, v int) bool { mapped[k] = v; return true })
	if !slices.Equal(listed, keys) || !maps.Equal(mapped, values) || set.Len() != len(keys) || byKey.Len() != len(keys) {
		t.Fatalf("got %v and %v, want %v", listed, mapped, values)
	}
	for at := -1; at <= 21; at++ {
		i, there := slices.BinarySearch(keys, at)
		next, after := set.From(at)
		first, _, found := byKey.From(at)
		if after != (i < len(keys)) || found != after || after && (next != keys[i] || first != next) {
			t.Fatalf("from %d on: got %d and %d, want those of %v", at, next, first, keys)
		}
		until := i
		if !there {
			until--
		}
		last, value, found := byKey.Until(at)
		if found != (until >= 0) || found && (last != keys[until] || value != values[last]) {
			t.Fatalf("until %d: got %d, want that of %v", at, last, keys)
		}
		if item, found := set.Until(at); found != (until >= 0) || found && item != keys[until] {
			t.Fatalf("the set's item until %d: got %d, want that of %v", at, item, keys)
		}
		rest := []int{}
		set.Ascend(at, func(k int) bool { rest = append(rest, k); return true })
		if value, found := byKey.Get(at); found != there || value != values[at] || !slices.Equal(rest, keys[i:]) {
			t.Fatalf("at %d: got %d, and %v behind it, want those of %v", at, value, rest, values)
		}
	}
	for i, want := range keys {
		if k, v := byKey.At(i); k != want || v != values[k] {
			t.Fatalf("the key at %d is %d, want %d", i, k, want)
		}
	}
	if len(keys) > 0 {
		first, _ := set.Min()
		if last, _, _ := byKey.Max(); first != keys[0] || last != keys[len(keys)-1] {
			t.Fatalf("got %d to %d, want those of %v", first, last, keys)
		}
	}
}

// What is changed behind a copy does not change the copy.
func TestCopiesStay(t *testing.T) {
	set, byKey := ordered.NewSet(func(a, b int) bool { return a < b }), ordered.NewMap[int, int]()
	for i := range 1000 {
		set.Set(i)
		byKey.Set(i, i)
	}
	sets, maps := set.Copy(), byKey.Copy()
	for i := range 1000 {
		set.Delete(i)
		byKey.Set(i, -1)
	}
	if value, _ := maps.Get(999); sets.Len() != 1000 || set.Len() != 0 || value != 999 {
		t.Errorf("a copy has %d items and %d, want 1000 and 999", sets.Len(), value)
	}
}
