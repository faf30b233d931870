package eviction_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/metadata"
)

func search(p *lonetest.Primary) *eviction.TenantSearch {
	return &eviction.TenantSearch{Store: p.Store, Tenant: metadata.DefaultTenant, SoftPins: true}
}

// next commits what a search finds next.
func next(p *lonetest.Primary, s *eviction.TenantSearch, bytes uint64, most int) (objects int, freed uint64) {
	drops, freed := s.Next(bytes, most, p.Now())
	p.Commit(changesOf(drops)...)
	return len(drops), freed
}

func TestATenantsObjectsGoOldestFirst(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	for _, key := range []string{"a", "leased", "soft", "b", "hard", "c"} {
		p.Put(func(put *metadata.Put) {
			put.HardPin = key == "hard"
			if key == "soft" {
				put.SoftPin = time.Hour
			}
		}, key)
		p.Idle(time.Second)
	}
	p.Commit(p.PutStart(nil, "open"))
	p.Pass(time.Minute)
	p.Get("leased")
	s := search(p)
	if n, freed := next(p, s, 101, 9); n != 2 || freed != 200 || p.Alive("a", "b") != 0 {
		t.Errorf("got %d objects of %d bytes, want the two oldest", n, freed)
	}
	if n, _ := next(p, s, 1000, 1); n != 1 || s.Done {
		t.Errorf("a submission of at most one object: got %d objects and done: %v, want 1 and more to come", n, s.Done)
	}
	if n, _ := next(p, s, 1000, 9); n != 0 || p.Alive("c") != 0 {
		t.Errorf("got %d objects evicted and %d left of c, want none more: c went with the submission before, soft pins go last",
			n, p.Alive("c"))
	}
	if n, _ := next(p, s, 1000, 9); n != 1 || p.Alive("soft") != 0 || !s.Done {
		t.Errorf("got %d objects in the end, want the softly pinned one", n)
	}
	if n := p.Alive("leased", "hard", "open"); n != 3 {
		t.Errorf("got %d left of a leased, a hard-pinned and an open object, want all 3", n)
	}
}

// A search does not find an object again whose eviction was prepared.
func TestATenantsObjectGoesOnce(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(nil, "a")
	p.Pass(time.Minute)
	first, _ := search(p).Next(1, 9, p.Now())
	if again, _ := search(p).Next(1, 9, p.Now()); len(first) != 1 || again != nil {
		t.Errorf("got %d objects, and %d again; want one", len(first), len(again))
	}
	first[0].Removal.Abort()
}

// A search looks only once at an object whose lease was renewed since it was filed.
func TestLeasedObjectsCostALookOnce(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	keys := lonetest.Keys("k", 500)
	p.Put(nil, keys...)
	p.Pass(time.Minute)
	p.Get(keys...)
	p.Scan()
	for _, most := range []int{500, 0} {
		s := search(p)
		for !s.Done {
			if n, _ := next(p, s, 1, 9); n > 0 {
				t.Fatalf("got %d leased objects evicted, want none before their leases end", n)
			}
		}
		if s.Looked > most {
			t.Errorf("looked at %d objects, want at most %d", s.Looked, most)
		}
	}
}

func TestATenantsGroupGoesWhole(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(inGroup("g"), "x", "y", "z")
	p.Put(func(put *metadata.Put) { put.Group, put.SoftPin = "g", time.Hour }, "soft")
	p.Put(nil, "single")
	p.Pass(time.Minute)
	p.Get("y")
	if n, _ := next(p, search(p), 1, 9); n != 1 || p.Alive("single") != 0 {
		t.Errorf("got %d objects while a member is leased, want the one outside of the group", n)
	}
	p.Pass(time.Minute)
	if n, freed := next(p, search(p), 1, 9); n != 3 || freed != 300 || p.Alive("soft") != 1 {
		t.Errorf("got %d members of %d bytes, want all 3 without a soft pin", n, freed)
	}
}

func TestATenantsLeasedGroupCostsNoLookAtItsMembers(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	for _, key := range []string{"x", "y", "z"} {
		p.Put(inGroup("g"), key)
		p.Idle(time.Second)
	}
	p.Pass(time.Minute)
	p.Get("x")
	if !withLocked(t, p, "z", []string{"x", "y"}, func() {
		if drops, _ := search(p).Next(1, 9, p.Now()); len(drops) > 0 {
			t.Errorf("got %d drops of a group that is leased, want none", len(drops))
		}
	}) {
		t.Error("the search waited for a locked member of a leased group, want no look at the members")
	}
}

// A group that does not fit into a submission behind other objects goes with the next.
func TestAGroupThatDoesNotFitComesNext(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(nil, "a")
	p.Idle(time.Second)
	p.Put(inGroup("g"), "x", "y", "z")
	p.Idle(time.Second)
	p.Put(nil, "b")
	p.Pass(time.Minute)
	s := search(p)
	if n, _ := next(p, s, 301, 3); n != 1 {
		t.Errorf("got %d objects first, want the one before the group", n)
	}
	if n, _ := next(p, s, 201, 3); n != 3 || p.Alive("b") != 1 {
		t.Errorf("got %d objects then, want the group", n)
	}
}
