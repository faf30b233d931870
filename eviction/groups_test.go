package eviction_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
)

func inGroup(name string) func(*metadata.Put) {
	return func(p *metadata.Put) { p.Group = name }
}

func TestALeasedMemberKeepsItsGroup(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(inGroup("g"), "a", "b")
	p.Put(func(p *metadata.Put) { p.Group, p.HardPin = "g", true }, "pinned")
	p.Put(inGroup("h"), "other")
	p.Pass(time.Minute)
	p.Get("pinned") // renewed in memory only
	if n := evict(t, p, eviction.Bounds{Objects: 9}); n != 1 || p.Alive("a", "b") != 2 {
		t.Errorf("got %d evicted and %d members left, want the other object evicted and both left", n, p.Alive("a", "b"))
	}
	e := p.Store.Lock(metadata.DefaultTenant, "a")
	if err := e.Removable(false, p.Now()); errs.KindOf(err) != errs.ObjectHasLease {
		t.Errorf("a removal of another member: got %v, want %v", err, errs.ObjectHasLease)
	}
	e.Unlock()
	p.Pass(params.HoldTime() + time.Second)
	if n := evict(t, p, eviction.Bounds{Objects: 1}); n != 2 || p.Alive("pinned") != 1 {
		t.Errorf("after the lease: got %d evicted, want both members that are not pinned hard", n)
	}
}

// A lease that is only in the journal counts as well, since a demoted node, or another one, may be
// primary now.
func TestAJournaledLeaseKeepsItsGroup(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(inGroup("g"), "a", "b", "c")
	p.Pass(time.Minute)
	p.Get("b")
	p.Scan()
	p.Store.DropOverlay()
	for name, store := range map[string]*metadata.Store{"the same node": p.Store, "its follower": p.Follower} {
		pass := eviction.Select(store, eviction.Bounds{Objects: 2})
		if pass == nil || pass.Victims != 0 || len(pass.NearMisses) != 2 {
			t.Errorf("%s: got %+v, want two near misses and no victim", name, pass)
		}
		pass.Cutoff.Abort(store)
	}
	p.Pass(params.HoldTime() + time.Second)
	p.Get("b")
	p.Store.DropOverlay()
	if pass := eviction.Select(p.Store, eviction.Bounds{Objects: 3}); pass == nil || pass.Victims != 3 {
		t.Errorf("got %+v after a lease that was not journaled, want three victims", pass)
	}
}

// A group is evicted with its youngest member, whatever the bounds.
func TestAGroupGoesWhole(t *testing.T) {
	const n = 1000
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	all := lonetest.Keys("k", n)
	p.Put(inGroup("g"), all[0])
	p.Idle(time.Second)
	p.Put(nil, "between")
	p.Idle(time.Second)
	p.Put(inGroup("g"), all[1:]...)
	p.Pass(time.Minute)
	if n := evict(t, p, eviction.Bounds{Objects: 1}); n != 1 || p.Alive("between") != 0 {
		t.Errorf("got %d evicted, want the object that is older than the youngest member", n)
	}
	if n := evict(t, p, eviction.Bounds{Objects: 100}); n != len(all) {
		t.Errorf("got %d evicted in a pass of 100, want all %d members", n, len(all))
	}
}

// withLocked runs f while the shard of an object is locked; none of the others is in that shard. It
// reports whether f ended, which shows that f did not look at the object.
func withLocked(t *testing.T, p *lonetest.Primary, key string, others []string, f func()) bool {
	t.Helper()
	locked := p.Store.Lock(metadata.DefaultTenant, key)
	shard := locked.Ref().Shard
	locked.Unlock()
	for _, other := range others {
		e := p.Store.Lock(metadata.DefaultTenant, other)
		if e.Ref().Shard == shard {
			t.Fatalf("%s and %s are in one shard, want each in its own for this test", key, other)
		}
		e.Unlock()
	}
	locked = p.Store.Lock(metadata.DefaultTenant, key)
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
		locked.Unlock()
		return true
	case <-time.After(10 * time.Second):
		locked.Unlock()
		<-done
		return false
	}
}

// A leased candidate keeps its group, however many members that has, and the pass does not look at
// the other members.
func TestALeasedGroupCostsNoLookAtItsMembers(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	for _, key := range []string{"old", "s1", "s2", "young"} {
		group := ""
		if key == "old" || key == "young" {
			group = "g"
		}
		p.Put(inGroup(group), key)
		p.Idle(time.Second)
	}
	p.Pass(time.Minute)
	p.Get("old")
	if !withLocked(t, p, "young", []string{"old", "s1", "s2"}, func() {
		if pass := eviction.Select(p.Store, eviction.Bounds{Objects: 1}); pass == nil || pass.Victims != 1 || len(pass.NearMisses) != 1 {
			t.Errorf("got the pass %+v, want one victim and one near miss", pass)
		} else {
			pass.Cutoff.Abort(p.Store)
		}
	}) {
		t.Error("the pass waited for a locked member that is no candidate, want no look at it")
	}
}

// Members beyond the bound of a group form another one, so that the length of a pass does not grow
// with the size of a group.
func TestALargeGroupIsDivided(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	all := lonetest.Keys("k", 2500)
	p.Put(inGroup("g"), all...)
	p.Pass(time.Minute)
	p.Get(all[0])
	if n := evict(t, p, eviction.Bounds{Objects: 2500}); n != 2500-1024 || p.Alive(all[:1024]...) != 1024 {
		t.Errorf("a lease on the first member: got %d evicted, want all but its 1024", n)
	}
	p.Pass(params.HoldTime() + time.Second)
	p.Put(inGroup("g"), "new") // the part that was open had gone
	if n := evict(t, p, eviction.Bounds{Objects: 1}); n != 1024 || p.Alive("new") != 1 {
		t.Errorf("got %d evicted, want the 1024 that are left, and not what was put since", n)
	}
}

// A renewal of a member may be journaled between a pass and its cutoff. If the renewed lease ends at
// the deadline of the cutoff, the member's id could place it beyond the cutoff.
func TestARenewalOnItsWayDividesNoGroup(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(inGroup("g"), "a", "b")
	p.Pass(time.Minute)
	p.Get("a")
	p.Get("b")
	e := p.Store.Lock(metadata.DefaultTenant, "a")
	first := leasesync.Renewal{Ref: e.Ref(), Deadline: e.LeaseEnd()}
	e.Unlock()
	p.Commit(leasesync.Pack([]leasesync.Renewal{first})...)
	p.Pass(params.HoldTime() + time.Second)
	pass := eviction.Select(p.Store, eviction.Bounds{Objects: 2})
	p.Scan()
	p.Commit(leasesync.Pack(pass.NearMisses)...)
	p.Commit(pass.Cutoff)
	if alive := p.Alive("a", "b"); alive == 1 {
		t.Error("a cutoff divided a group: got one of two members left, want both or none")
	}
	evict(t, p, eviction.Bounds{Objects: 2})
	if alive := p.Alive("a", "b"); alive != 0 {
		t.Errorf("got %d of two members left after another pass, want none", alive)
	}
}

// Members put in one commit are equally old, and interleaved with equally old objects of others.
func TestACutoffDividesNoGroup(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	keys := lonetest.Keys("k", 6)
	var starts, ends []metadata.Change
	for i, key := range keys {
		starts = append(starts, p.PutStart(inGroup([]string{"", "g", "h"}[i%3]), key))
	}
	p.Commit(starts...)
	for _, key := range keys {
		ends = append(ends, p.PutEnd(key))
	}
	p.Commit(ends...)
	p.Pass(time.Minute)
	if n := evict(t, p, eviction.Bounds{Objects: 2}); n != 6 {
		// The cutoff ends behind the last member of g, which takes one of h along.
		t.Errorf("got %d evicted, want both groups and what lies between", n)
	}
}

// A member whose memory an upsert will reuse keeps its group.
func TestAnUpsertOfAMemberKeepsTheGroup(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(inGroup("g"), "a", "b")
	p.Pass(time.Minute)
	up, _, _, err := p.Store.PreparePutStart(&metadata.Put{
		Tenant: metadata.DefaultTenant, Key: "b", Client: p.Ref("b").Client, Size: 100, Replicas: 1, Upsert: true,
	}, p.Now())
	if err != nil || !up.InPlace {
		t.Fatalf("got %+v, %v; want an upsert in place", up, err)
	}
	if n := evict(t, p, eviction.Bounds{Objects: 2}); n != 0 {
		t.Errorf("got %d evicted while a member's memory is to be written anew, want none", n)
	}
	up.Abort(p.Store)
}

// While passes run and clients read all members, no object is evicted under a lease, its own or
// that of another member.
func TestReadersAgainstPasses(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	keys := lonetest.Keys("k", 8)
	p.Put(func(p *metadata.Put) { p.Group, p.HardPin = "g", true }, keys[0])
	for range 50 {
		p.Put(inGroup("g"), keys[1:]...)
		p.Pass(time.Minute)
		var leased sync.Map
		var readers sync.WaitGroup
		for _, key := range keys {
			readers.Go(func() {
				if list, wait, err := p.Leases.GetReplicaList(metadata.DefaultTenant, key, p.Now()); wait == nil && err == nil {
					leased.Store(key, list.ID)
				}
			})
		}
		pass := eviction.Select(p.Store, eviction.Bounds{Objects: 7})
		readers.Wait()
		if pass == nil {
			t.Fatal("got no pass over objects whose leases have ended, want one")
		}
		_, some := leased.Load(keys[0])
		leased.Range(func(any, any) bool { some = true; return false })
		p.Commit(leasesync.Pack(pass.NearMisses)...)
		p.Commit(pass.Cutoff)
		switch alive := p.Alive(keys[1:]...); {
		case some && alive != 7:
			t.Fatalf("one member of the group is leased: got %d of 7 members left, want all", alive)
		case !some && alive != 0:
			t.Fatalf("no member of the group is leased: got %d of 7 members left, want none", alive)
		}
		p.Pass(params.HoldTime() + time.Second)
		evict(t, p, eviction.Bounds{Objects: 7})
		evict(t, p, eviction.Bounds{Objects: 7})
		if alive := p.Alive(keys[1:]...); alive != 0 {
			t.Fatalf("got %d of 7 members left after the leases ended, want none", alive)
		}
	}
}

// A pass of groups may take more than a slice, and more than the limiter's burst.
func TestARoundOfLargeGroups(t *testing.T) {
	const groups, members = 6, 1000
	p := lonetest.Start(t, metadata.Options{}, params, 104*(groups*members+10))
	putTied(p, groups, members)
	p.Pass(time.Minute)
	n := round(t, loop(p, eviction.Watermark{High: 0.99, Ratio: 0.5}))
	if goal := groups * members / 2; n < goal || n > goal+2*members {
		t.Errorf("%d objects of %d were evicted in a round, want about half, by whole groups", n, groups*members)
	}
}

// Groups whose members are equally old and interleaved are evicted one by one.
func TestTiedGroupsGoOneByOne(t *testing.T) {
	const groups, members = 6, 1000
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	putTied(p, groups, members)
	p.Pass(time.Minute)
	for left := groups; left > 0; left-- {
		total := 0
		for range 3 { // the first pass only sets groups apart, perhaps
			if total += evict(t, p, eviction.Bounds{Objects: 10}); total > 0 {
				break
			}
		}
		if total == 0 || total > 2*members || total%members != 0 {
			t.Fatalf("%d objects went in a pass of 10, want a group or two of %d", total, members)
		}
		if left -= total/members - 1; p.Store.Stats().Objects != int64((left-1)*members) {
			t.Fatalf("%d objects are left, want whole groups", p.Store.Stats().Objects)
		}
	}
}

// putTied puts groups in one commit, one member of each in turn.
func putTied(p *lonetest.Primary, groups, members int) {
	var starts, ends []metadata.Change
	keys := lonetest.Keys("t", groups*members)
	for i, key := range keys {
		starts = append(starts, p.PutStart(inGroup(fmt.Sprint(i%groups)), key))
	}
	p.Commit(starts...)
	for _, key := range keys {
		ends = append(ends, p.PutEnd(key))
	}
	p.Commit(ends...)
}

// A group whose members lie far apart among very many objects of one deadline is not divided
// either, though a pass looks at the first of them only.
func TestACutoffDividesNoGroupOfOneDeadline(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	others := lonetest.Keys("k", 8000)
	p.Put(nil, "first")
	p.Put(inGroup("g"), "a")
	p.Put(nil, others...)
	p.Put(inGroup("g"), "z")
	for _, key := range append([]string{"first", "a", "z"}, others...) {
		p.Get(key)
	}
	p.Scan()
	p.Pass(time.Minute)
	if n := evict(t, p, eviction.Bounds{Objects: 100}); n == 0 || n > 100 || p.Alive("a", "z") != 2 || p.Alive("first") != 0 {
		t.Errorf("a pass of 100: got %d evicted, %d members left of 2 and %d others; want 1 to 100, both members, the oldest gone",
			n, p.Alive("a", "z"), p.Alive(others...))
	}
}
