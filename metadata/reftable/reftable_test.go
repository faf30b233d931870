package reftable

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// TestTable compares a table with a map, while hashes collide wholly, in their tags, in
// their groups, or hardly ever.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, model := new(Table), make(map[uint32]bool)
		shift := rapid.SampledFrom([]int{0, 8, 32, 61, 64}).Draw(t, "shift")
		hash := func(ref uint32) uint64 { return uint64(ref) * 0x9E3779B97F4A7C15 >> shift << (shift / 2) }
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			from := rapid.Uint32Range(1, 400).Draw(t, "from")
			add := rapid.Bool().Draw(t, "add")
			through := from + rapid.Uint32Range(0, 80).Draw(t, "count")
			for ref := from; ref <= through; ref++ {
				is := func(r uint32) bool { return r == ref }
				got := table.Find(hash(ref), is)
				if (got == ref) != model[ref] || got != 0 && got != ref {
					t.Fatalf("looking up %d: got %d, want it found: %v", ref, got, model[ref])
				}
				table.Guess(hash(ref)) // returns anything
				switch {
				case add && !model[ref]:
					table.Insert(hash(ref), ref, hash)
					model[ref] = true
				case !add:
					table.Delete(hash(ref), ref, hash) // it may not be there
					delete(model, ref)
				}
			}
			check(t, table, model)
		}
		remaining := maps.Clone(model)
		table.Each(func(refs []uint32) bool { // those visited may be deleted
			for _, ref := range refs {
				if !remaining[ref] {
					t.Fatalf("the visit of an entry: got %d, want each that is there, once", ref)
				}
				delete(remaining, ref)
				table.Delete(hash(ref), ref, hash)
			}
			return true
		})
		if len(remaining) != 0 || table.Len() != 0 || len(table.groups) > 1 {
			t.Fatalf("got %d entries not visited, and %d left in %d groups, want none left, in one group",
				len(remaining), table.Len(), len(table.groups))
		}
		for _, g := range table.groups {
			if g != (group{}) {
				t.Fatalf("an empty table: got the group %+v, want it empty", g)
			}
		}
	})
}

func check(t *rapid.T, table *Table, model map[uint32]bool) {
	var all []uint32
	table.Each(func(refs []uint32) bool {
		all = append(all, refs...)
		return true
	})
	slices.Sort(all)
	if want := slices.Sorted(maps.Keys(model)); !slices.Equal(all, want) || table.Len() != len(want) {
		t.Fatalf("%d entries: %v, want %v", table.Len(), all, want)
	}
	if n := len(table.groups); n > 1 && (table.Len() < n*minLoad || table.Len() > n*maxLoad) {
		t.Fatalf("got %d entries in %d groups, want %d to %d in each on average", table.Len(), n, minLoad, maxLoad)
	}
}

// A group is a cache line, and lies in one.
func TestGroupsAreCacheLines(t *testing.T) {
	if size := unsafe.Sizeof(group{}); size != 64 {
		t.Fatalf("a group has %d bytes, want 64, a cache line", size)
	}
	hash := func(ref uint32) uint64 { return uint64(ref) * 0x9E3779B97F4A7C15 }
	table := new(Table)
	for ref := uint32(1); ref < 20_000; ref++ {
		table.Insert(hash(ref), ref, hash)
		if at := uintptr(unsafe.Pointer(&table.groups[0])); at%64 != 0 {
			t.Fatalf("%d groups lie at %#x, want a multiple of 64", len(table.groups), at)
		}
	}
}

// A table that grows while it is small has each entry hashed anew less than twice.
func TestGrowth(t *testing.T) {
	table, hashed := new(Table), 0
	hash := func(ref uint32) uint64 { return uint64(ref) * 0x9E3779B97F4A7C15 }
	const n = maxLoad * doubled
	for ref := uint32(1); ref <= n; ref++ {
		table.Insert(hash(ref), ref, func(ref uint32) uint64 { hashed++; return hash(ref) })
	}
	if hashed > 2*n || len(table.groups) > doubled {
		t.Errorf("%d entries: got %d groups and %d hashed anew, want %d and %d at most", n, len(table.groups), hashed, doubled, 2*n)
	}
}

// A guess is right nearly always.
func TestGuess(t *testing.T) {
	hash := func(ref uint32) uint64 { return uint64(ref) * 0x9E3779B97F4A7C15 }
	const n = 9_999
	table, right := new(Table), 0
	if table.Guess(1) != 0 {
		t.Errorf("a guess in an empty table: got %d, want 0", table.Guess(1))
	}
	for ref := range uint32(n) {
		table.Insert(hash(ref+1), ref+1, hash)
	}
	for ref := range uint32(n) {
		if table.Guess(hash(ref+1)) == ref+1 {
			right++
		}
	}
	if right < n*8/10 {
		t.Errorf("got %d of %d guesses right, want 8 of 10", right, n)
	}
}

func BenchmarkFind(b *testing.B) {
	hash := func(ref uint32) uint64 { return uint64(ref) * 0x9E3779B97F4A7C15 }
	table := new(Table)
	const n = 10_000
	for ref := range uint32(n) {
		table.Insert(hash(ref+1), ref+1, hash)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		ref := random.Uint32N(n) + 1
		if table.Find(hash(ref), func(r uint32) bool { return r == ref }) != ref {
			b.Fatal(ref)
		}
	}
}

// A table that is made for its entries is as large as one that grew, and does not grow.
func TestReserve(t *testing.T) {
	hashOf := func(ref uint32) uint64 { return uint64(ref) * 0x9E3779B97F4A7C15 }
	for _, n := range []int{0, 1, 10, 11, 1000, 10_000} {
		var grown, made Table
		made.Reserve(n)
		reserved := made.Bytes()
		for i := range n {
			ref := uint32(i + 1)
			grown.Insert(hashOf(ref), ref, hashOf)
			made.Insert(hashOf(ref), ref, hashOf)
		}
		if made.Bytes() != grown.Bytes() || made.Bytes() != reserved {
			t.Errorf("%d entries: got %d bytes, %d reserved, want %d as if it grew", n, made.Bytes(), reserved, grown.Bytes())
		}
		if made.Reserve(2 * n); n > 0 && made.Bytes() != reserved {
			t.Errorf("%d entries: got %d bytes after a second Reserve, want %d: it is not empty", n, made.Bytes(), reserved)
		}
	}
}

// Whatever changes between the parts of a walk, what is there all the time is visited, and
// nothing is twice since the walk began again.
func TestParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, hash := new(Table), func(ref uint32) uint64 { return uint64(ref) * 0x9E3779B97F4A7C15 }
		stays := uint32(rapid.IntRange(0, 300).Draw(t, "stay"))
		for ref := range stays {
			table.Insert(hash(1+ref), 1+ref, hash)
		}
		changes := make(map[uint32]bool)
		visited := make(map[uint32]bool)
		place := &Place{Again: func() { clear(visited) }}
		for parts, more := 0, true; more; parts++ {
			more = table.Part(place, rapid.IntRange(1, 5).Draw(t, "groups"), func(refs []uint32) bool {
				for _, ref := range refs {
					if visited[ref] && ref <= stays {
						t.Fatalf("the parts have %d twice, want it once", ref)
					}
					visited[ref] = true
				}
				return true
			})
			if parts > 20 { // each resize begins anew
				continue
			}
			for range rapid.IntRange(0, 100).Draw(t, "changes") {
				ref := 1000 + rapid.Uint32Range(0, 400).Draw(t, "ref")
				if changes[ref] = !changes[ref]; changes[ref] {
					table.Insert(hash(ref), ref, hash)
				} else {
					table.Delete(hash(ref), ref, hash)
				}
			}
		}
		for ref := range stays {
			if !visited[1+ref] {
				t.Fatalf("the parts lack %d, want all that stayed", 1+ref)
			}
		}
	})
}
