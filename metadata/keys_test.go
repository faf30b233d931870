package metadata_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// seen keeps every key that it is shown.
type seen struct{ keys []string }

func (s *seen) MediaChanged(_ *metadata.Store, _ metadata.Seq, what *metadata.MediaChange) {
	s.keys = append(s.keys, what.Key)
}

func (s *seen) Applied(*metadata.Store, metadata.Term, metadata.Seq, bool) {}

// everyKey appends the keys that a store shows, however it does.
func everyKey(s *metadata.Store, list []string) []string {
	for shard := range metadata.ShardCount {
		for _, k := range s.Keys(nil, shard, false) {
			object, err := s.Inspect(k.Tenant, k.Key)
			if err != nil {
				panic(err)
			}
			list = append(list, k.Key, object.Key)
		}
		s.EachObject(shard, nil, func(e metadata.Entry) { list = append(list, e.Key()) })
		s.Present(shard, func(m *metadata.MediaChange) { list = append(list, m.Key) })
		s.Census(shard, 0, func(g metadata.Glance, _ func(func(segment.Number) bool)) { list = append(list, g.Key) })
		items, _ := s.DrainItems(nil, shard, &metadata.Drain{Numbers: []segment.Number{1}}, 0)
		for _, item := range items {
			list = append(list, item.Key)
		}
		for _, source := range s.ShardOffloadSources(nil, shard) {
			if k, _, ok := s.BeginCopy(source, 0); ok {
				list = append(list, k.Key)
				s.EndCopy(source.Client, k, source.ID)
			}
		}
	}
	segments, _ := allRanges(s, segment.ID{})
	for _, p := range segments {
		for _, r := range p.Ranges {
			list = append(list, r.Key)
		}
	}
	return list
}

// Keys that the store has returned do not change when their objects are removed and other
// objects get their memory.
func TestKeysThatLeftTheStore(t *testing.T) {
	watcher := new(seen)
	c := &cluster{t: t, primary: metadata.New(metadata.Options{Watcher: watcher}), follower: metadata.New(metadata.Options{}), now: 1000}
	c.startTerm(params, 0)
	c.mount(1, "a", 1<<30)
	names := keys("key-", 64)
	for _, name := range names {
		c.put(name)
	}
	left := append(everyKey(c.primary, nil), watcher.keys...)
	for _, name := range names {
		if err := c.remove(name, true); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range keys("xyz-", 64) {
		c.put(other)
	}
	if ways := len(left) / len(names); ways < 9 {
		t.Errorf("got each key from the store in %d ways, want 9 at least, for this test to cover them", ways)
	}
	for _, k := range left {
		if !slices.Contains(names, k) {
			t.Fatalf("got %q in place of a key that the store had returned, want one of the first keys, unchanged", k)
		}
	}
}

// A prepared change outlives its object, and blocks the key until it is aborted, although
// another object has got the object's memory by then.
func TestPreparedChangesOutliveTheirObjects(t *testing.T) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<20)
	c.put("key-1")
	e, _, err := deleteevents.Prepare(c.primary, deleteevents.Request{Tenant: metadata.DefaultTenant, Key: "key-1", Force: true}, c.now)
	if err != nil {
		t.Fatal(err)
	}
	c.unmount(id)
	for c.primary.Sweep(metadata.ShardCount) {
	}
	c.mount(2, "b", 1<<20)
	for _, other := range keys("xyz-", 9) {
		c.put(other)
	}
	if err := c.putStart("key-1"); err == nil {
		t.Error("a put of a key that a prepared removal blocks: got no error, want one")
	}
	e.Abort(c.primary)
	c.put("key-1")
	if !c.exists("key-1") {
		t.Error("the removal was aborted, and the key put: got that it does not exist, want that it does")
	}
}

// Marks and victims belong to an object, and do not pass to the next object in its memory.
func TestMarksDoNotPassOn(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("key-1")
	c.put("old-1")
	c.read("key-1")
	c.pass(params.LeaseTTL * 2)
	c.must(c.commit())
	pass := eviction.Select(c.primary, eviction.Bounds{Objects: 1})
	if pass == nil || pass.Victims != 1 {
		t.Fatalf("got the pass %+v, want one with one victim", pass)
	}
	for _, name := range []string{"key-1", "old-1"} { // as an event decided before has it
		e := c.primary.Lock(metadata.DefaultTenant, name)
		removal := &metadata.Removal{Ref: e.Ref()}
		e.Unlock()
		c.must(c.commit(&deleteevents.Event{Type: deleteevents.Remove, Removals: []*metadata.Removal{removal}}))
	}
	c.put("key-1")
	c.put("old-1")
	for _, name := range []string{"key-1", "old-1"} {
		if e := c.primary.Lock(metadata.DefaultTenant, name); e.Busy() {
			t.Errorf("%s was put where a victim was: got that it is busy, want not: marks do not pass on", name)
			e.Unlock()
		} else {
			e.Unlock()
		}
	}
	if changes := marked(c.primary); len(changes) != 0 {
		t.Errorf("the marked objects are gone: got the renewals %v, want none", changes)
	}
	pass.Cutoff.Abort(c.primary)
	c.read("key-1")
	if changes := marked(c.primary); len(changes) != 1 {
		t.Errorf("one object was read: got %d batches of renewals, want 1", len(changes))
	}
}

// Only keys.go uses keys in place, so that it is easy to see that none leaves the store.
func TestKeysInPlaceStayThere(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	use, users := regexp.MustCompile(`\.(view|behind)\(\)`), 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found := use.FindAllString(string(text), -1)
		switch name {
		case "keys.go":
			users += len(found)
		case "record.go", "keys_test.go": // writes it; names it
		default:
			if len(found) > 0 {
				t.Errorf("%s: got the uses %v of a key in place, want a copy, key(), or a function in keys.go", name, found)
			}
		}
	}
	if users == 0 {
		t.Error("keys.go: got no use of a key in place, want some: adapt the pattern of this test")
	}
}

// Lookups of many keys find the same objects as single ones: in any order, with keys that are missing,
// duplicate, or collide in their shard, and with more keys than are read ahead at once.
func TestLookupsAsSingleOnes(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	var asked []string
	for i := range 300 {
		name := fmt.Sprint("key-", i)
		if i%3 != 0 {
			c.put(name)
		}
		asked = append(asked, name, fmt.Sprint("key-", i/2))
	}
	for _, tenant := range []string{metadata.DefaultTenant, "nobody"} {
		lookups := c.primary.Lookups(tenant, asked)
		for i, name := range asked {
			if i%7 == 1 {
				continue // it may be left out
			}
			for range 2 { // and asked again
				e := lookups.Lock(i)
				there, got := e.Exists(), ""
				if there {
					got = e.Key()
				}
				e.Unlock()
				single := c.primary.Lock(tenant, name)
				want := single.Exists()
				single.Unlock()
				if there != want || there && got != name {
					t.Fatalf("%s in a batch: got %v, %q, want the same object as in a single lookup, which is there: %v",
						name, there, got, want)
				}
			}
		}
	}
}
