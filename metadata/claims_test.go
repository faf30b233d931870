package metadata_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// unmountClaimed unmounts a segment as the primary does: with the ranges on which readers have
// leases.
func (c *cluster) unmountClaimed(id segment.ID) {
	c.t.Helper()
	number, _ := c.primary.FindSegment(id)
	leases, end := c.primary.BeginUnmount([]segment.Number{number}, c.now)
	defer end()
	c.must(c.commit(&deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{number}, Claims: leases}))
}

func (c *cluster) wantQuarantined(t *testing.T, what string, want uint64) {
	t.Helper()
	if got := c.primary.Stats().Quarantined; got != want {
		t.Errorf("%s: %d bytes are in quarantine, want %d", what, got, want)
	}
}

// Memory that is mounted again is given to nobody while a reader has a lease on it, journaled
// or not, or while a late writer may still write there.
func TestMemoryThatComesBack(t *testing.T) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<10)
	c.put("read")
	c.put("not read")
	c.must([]error{c.putStart("open")})
	c.read("read") // not journaled
	c.unmountClaimed(id)
	reload(t, c.primary)
	c.mount(1, "a", 1<<10)
	c.wantQuarantined(t, "mounted again", 208)
	c.unmountClaimed(id)
	c.takeOver(0)
	c.mount(1, "a", 150) // a part of it
	c.wantQuarantined(t, "a part", 104)
	c.pass(12 * time.Second)
	c.commit()
	c.wantQuarantined(t, "when the lease has ended", 0)
	c.unmountClaimed(id)
	c.mount(1, "a", 1<<10)
	c.wantQuarantined(t, "while the writer may be late", 104)
	c.follower = reload(t, c.primary)
	c.pass(params.ReleaseTimeout)
	c.commit()
	c.wantQuarantined(t, "in the end", 0)
	c.unmountClaimed(id)
	c.mount(1, "a", 1<<10)
	c.wantQuarantined(t, "after the end", 0)
}

// Ranges of a segment that another mount replaces are claimed as well. The same addresses at
// another endpoint are other memory.
func TestClaimsOfAMountThatIsReplaced(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<10)
	c.must([]error{c.putStart("open")})
	spec := segment.Spec{ID: segment.ID{9}, Name: "b", Base: 1<<32 + 8, Size: 1 << 10, Endpoint: "a:1", Client: client(2)}
	e, err := c.primary.PrepareMount(spec)
	if err != nil || len(e.Replaces) != 1 {
		t.Fatalf("a mount over another segment: got %+v, %v, want it to replace that one", e, err)
	}
	c.must(c.commit(e))
	c.wantQuarantined(t, "the overlap", 96)
	spec.ID, spec.Endpoint = segment.ID{10}, "c:1"
	e, _ = c.primary.PrepareMount(spec)
	c.must(c.commit(e))
	c.wantQuarantined(t, "with another endpoint's", 96)
}

// moved returns new mounts of a client's segments, under other ids.
func (c *cluster) moved(ids ...byte) (changes []metadata.Change) {
	c.t.Helper()
	var specs []segment.Spec
	for _, id := range ids {
		specs = append(specs, segment.Spec{ID: segment.ID{id}, Name: "a", Base: uint64(id) << 32, Size: 1 << 10, Endpoint: "a:1", Protocol: "tcp", Client: client(1)})
	}
	list, decided, err := c.primary.PrepareMounts(specs)
	if err != nil || decided != len(ids) {
		c.t.Fatalf("mounting %d segments at once: got %d decided, %v, want all", len(ids), decided, err)
	}
	for _, e := range list {
		changes = append(changes, e)
	}
	return changes
}

// Mounts that replace others in one commit look at the open reservations once for all.
func TestClaimsOfManyMounts(t *testing.T) {
	c := newCluster(t)
	for n := byte(1); n <= 8; n++ {
		c.mountOf(1, n, "a", 1<<10)
	}
	const open = 40
	for _, key := range keys("open", open) {
		c.must([]error{c.putStart(key)})
	}
	c.must(c.commit(c.moved(1, 2, 3, 4, 5, 6, 7, 8)...))
	c.wantQuarantined(t, "what writers may be at work on", open*104)
	for name, s := range map[string]*metadata.Store{"primary": c.primary, "follower": c.follower} {
		if got := s.ClaimsLooked(); got != open {
			t.Errorf("the %s has looked at %d reservations, want %d", name, got, open)
		}
	}
}

// A change between two mounts of one commit affects the claims of the second.
func TestClaimsOfMountsAmongPuts(t *testing.T) {
	c := newCluster(t)
	c.mountOf(1, 1, "a", 1<<10)
	c.must([]error{c.putStart("ends")})
	c.mountOf(1, 2, "b", 1<<10)
	b := func(p *metadata.Put) { p.Preferred = []string{"b"} }
	c.must([]error{c.putStart("stays", b)})
	begins, err := c.preparePut("begins", b)
	c.must([]error{err})
	mounts := c.moved(1)
	spec := segment.Spec{ID: segment.ID{9}, Name: "b", Base: 2 << 32, Size: 1 << 10, Endpoint: "b:1", Protocol: "tcp", Client: client(1)}
	second, err := c.primary.PrepareMount(spec)
	c.must([]error{err})
	c.must(c.commit(mounts[0], begins, second))
	c.wantQuarantined(t, "one on the first, and two on the second", 3*104)
}

// Under a term's guard the leases are unknown, so an unmount claims the whole segment.
func TestClaimsUnderAGuard(t *testing.T) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<10)
	c.takeOver(20 * time.Second)
	c.unmountClaimed(id)
	c.mount(1, "a", 1<<10)
	c.wantQuarantined(t, "in the guard", 1<<10)
	c.pass(21 * time.Second)
	c.commit()
	c.wantQuarantined(t, "behind it", 0)
}

// withObject returns a cluster with the object k in a segment.
func withObject(t *testing.T) (*cluster, segment.Number) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<10)
	c.put("k")
	number, _ := c.primary.FindSegment(id)
	return c, number
}

// Once an unmount is prepared, readers wait for its outcome, so that they get no lease that the
// unmount does not know.
func TestReadersWaitForAnUnmount(t *testing.T) {
	c, number := withObject(t)
	_, end := c.primary.BeginUnmount([]segment.Number{number}, c.now)
	before, _ := c.primary.Inspect(metadata.DefaultTenant, "k")
	_, wait, err := leases(c.primary).GetReplicaList(metadata.DefaultTenant, "k", c.now)
	if wait == nil {
		t.Fatalf("L: a read while an unmount is under way: got %v at once, want to wait for the outcome", err)
	}
	if !leases(c.primary).Exists(metadata.DefaultTenant, "k", c.now+1000) {
		t.Error("an unmount is under way: got that its object does not exist, want that it does")
	}
	if after, _ := c.primary.Inspect(metadata.DefaultTenant, "k"); after.LeaseEnds != before.LeaseEnds {
		t.Errorf("L: ExistKey moves the lease to %d while its segment leaves, want %d as in the event", after.LeaseEnds, before.LeaseEnds)
	}
	end()
	<-wait
	if _, err := c.get("k"); err != nil {
		t.Errorf("a read after the unmount was given up: got %v, want no error", err)
	}
}

// An unmount whose term has ended does not end the wait for the unmount of the next term.
func TestReadersWaitForTheNextUnmount(t *testing.T) {
	c, number := withObject(t)
	_, before := c.primary.BeginUnmount([]segment.Number{number}, c.now)
	_, end := c.primary.BeginUnmount([]segment.Number{number}, c.now)
	before()
	if _, wait, err := leases(c.primary).GetReplicaList(metadata.DefaultTenant, "k", c.now); wait == nil {
		t.Errorf("L: a read while the next unmount is under way: got %v at once, want to wait for its outcome", err)
	}
	end()
}

// Claims are bounded: many are covered by fewer ranges. An endpoint with the maximum takes no
// mount until some have ended.
func TestManyClaims(t *testing.T) {
	c := newCluster(t)
	for n := range 10 {
		id := c.mountAt(1<<40+uint64(n)<<20, byte(10+n))
		number, _ := c.primary.FindSegment(id)
		e := &deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{number}}
		for i := range uint32(2000) {
			e.Claims = append(e.Claims, metadata.Claim{
				Segment: number, Range: segment.Range{Offset: 100 * i, Length: 50}, Until: c.now + metadata.Time(1+i%7)*1000,
			})
		}
		c.must(c.commit(e))
		if n < 8 {
			continue
		}
		spec := segment.Spec{ID: segment.ID{99}, Name: "m", Base: 1, Size: 1, Endpoint: "m:1"}
		_, err := c.primary.PrepareMount(spec)
		wantKind(t, "beyond the most", err, errs.Unavailable)
		spec.Endpoint = "other:1"
		_, err = c.primary.PrepareMount(spec)
		wantKind(t, "at another endpoint", err, errs.OK)
		break
	}
	c.follower = reload(t, c.primary)
	c.pass(10 * time.Second)
	c.commit()
	c.mountAt(1<<40, 9)
	c.wantQuarantined(t, "in the end", 0)
}

// Claims end at their own times at each of many endpoints, on a node that has loaded a snapshot
// as on the primary.
func TestClaimsEndInTurn(t *testing.T) {
	c := newCluster(t)
	const endpoints, base = 7, uint32(100)
	claimMany(t, c.primary, endpoints, func(changes ...metadata.Change) { c.must(c.commit(changes...)) }, func(e *deleteevents.Event, number segment.Number, n int) {
		for k := range 3 {
			until := c.now/1000*1000 + metadata.Time(1+(n+k)%endpoints)*1000
			e.Claims = append(e.Claims, metadata.Claim{Segment: number, Range: segment.Range{Offset: base * uint32(k), Length: 50}, Until: until})
		}
	})
	began := c.now / 1000 * 1000
	for second := 1; second <= endpoints; second++ {
		c.follower = reload(t, c.primary)
		c.now = began + metadata.Time(second)*1000
		c.commit()
		left, at := 0, 0
		for n := range endpoints {
			held := 0
			for k := range 3 {
				if 1+(n+k)%endpoints > second {
					held++
				}
			}
			if left += held; held > 0 {
				at++
			}
		}
		for name, s := range map[string]*metadata.Store{"primary": c.primary, "follower": c.follower} {
			if gotAt, got := s.Claimed(); gotAt != at || got != left {
				t.Errorf("after %d s the %s has %d claims at %d endpoints, want %d at %d", second, name, got, gotAt, left, at)
			}
		}
	}
}

// leaveClaims unmounts a segment that readers have leases on.
func leaveClaims(c *cluster) {
	number, _ := c.primary.FindSegment(c.mountAt(1<<40, 77))
	e := &deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{number}}
	for i := range uint32(3) {
		e.Claims = append(e.Claims, metadata.Claim{Segment: number, Range: segment.Range{Offset: 100 * i, Length: 50}, Until: c.now + 5000})
	}
	c.must(c.commit(e))
}

func (c *cluster) mountAt(base uint64, n byte) segment.ID {
	c.t.Helper()
	spec := segment.Spec{ID: segment.ID{n}, Name: "m", Base: base, Size: 1 << 20, Endpoint: "m:1", Client: client(n)}
	e, err := c.primary.PrepareMount(spec)
	if err != nil {
		c.t.Fatalf("preparing a mount at %#x: got %v, want no error", base, err)
	}
	c.must(c.commit(e))
	return spec.ID
}

// Every node covers claims beyond the bound in the same way, also those of several segments
// that are unmounted in one commit (promise S).
func TestManyClaimsAreCoveredAlike(t *testing.T) {
	c := newCluster(t)
	e := &deleteevents.Event{Type: deleteevents.UnmountSegment}
	for n := range byte(34) {
		number, _ := c.primary.FindSegment(c.mountAt(1<<40+uint64(n)<<20, 10+n))
		e.Segments = append(e.Segments, number)
		claim := func(from, to uint32, ms metadata.Time) {
			e.Claims = append(e.Claims, metadata.Claim{Segment: number, Range: segment.Range{Offset: from, Length: to - from}, Until: c.now + ms})
		}
		if n%2 == 1 { // it touches claims of both neighbours, so without it there is a wide gap
			claim(0, 1<<20, 9000)
			continue
		}
		for i := range uint32(1000) {
			claim(50*i+7*i%11, 50*i+30, metadata.Time(1+i%7)*1000)
		}
		claim(50_000, 1<<20, 1000)
	}
	before, position := c.snapshot(), c.primary.Position()
	want := metadata.Digest(0)
	for i := range 8 {
		node, err := c.load(before)
		if err != nil {
			t.Fatal(err)
		}
		after, err := node.Apply(&metadata.Commit{Seq: position.Seq + 1, Term: c.term, Time: c.now, Changes: []metadata.Change{e}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = after.Digest
		}
		if after.Digest != want {
			t.Fatalf("S: node %d has the digest %v after the unmount, want %v as on the first", i, after.Digest, want)
		}
	}
}

// A put that is prepared while a mount is under way gets no claimed memory. Otherwise the mount
// would not fit the state to which it is applied.
func TestNoPutGetsClaimedMemoryOfAMountUnderWay(t *testing.T) {
	c := newCluster(t)
	for n := range uint32(3) {
		number, _ := c.primary.FindSegment(c.mountAt(1<<40, 9))
		e := &deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{number}}
		for i := range uint32(1900) {
			e.Claims = append(e.Claims, metadata.Claim{
				Segment: number, Range: segment.Range{Offset: 64 * (3*i + n), Length: 32}, Until: c.now + 60_000,
			})
		}
		c.must(c.commit(e))
	}
	var ended atomic.Bool
	var putting sync.WaitGroup
	putting.Go(func() {
		for n := 0; !ended.Load(); n++ {
			if e, err := c.preparePut(fmt.Sprint("k", n%100)); err == nil {
				e.Abort(c.primary)
			}
		}
	})
	defer putting.Wait()
	defer ended.Store(true)
	for range 5 {
		c.unmount(c.mountAt(1<<40, 9))
	}
}

// Flattened ranges hold each address until the latest time of all ranges that hold it, with as
// few ranges as possible.
func TestFlattenedRangesHoldWhatTheListHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const end = 60
		var want [end]uint64
		var list [][3]uint64
		for range rapid.IntRange(0, 12).Draw(t, "ranges") {
			from, to := rapid.Uint64Range(0, end).Draw(t, "from"), rapid.Uint64Range(0, end).Draw(t, "to")
			until := rapid.Uint64Range(1, 4).Draw(t, "until")
			list = append(list, [3]uint64{from, to, until})
			for at := from; at < to; at++ {
				want[at] = max(want[at], until)
			}
		}
		var got [end]uint64
		last := [3]uint64{}
		for _, r := range metadata.Flatten(list) {
			if r[0] >= r[1] || r[0] < last[1] || r[0] == last[1] && r[2] == last[2] {
				t.Fatalf("range %v after %v; want them in order, and joined", r, last)
			}
			for at := r[0]; at < r[1]; at++ {
				got[at] = r[2]
			}
			last = r
		}
		if got != want {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}
