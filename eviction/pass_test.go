package eviction_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
)

func softPin(p *metadata.Put) { p.SoftPin = 30 * time.Minute }
func hardPin(p *metadata.Put) { p.HardPin = true }

// evict runs one pass and returns how many objects went.
func evict(t *testing.T, p *lonetest.Primary, b eviction.Bounds) int {
	t.Helper()
	pass := eviction.Select(p.Store, b)
	if pass == nil {
		return 0
	}
	before := p.Store.Stats().Evicted
	p.Commit(leasesync.Pack(pass.NearMisses)...)
	p.Commit(pass.Cutoff)
	return int(p.Store.Stats().Evicted - before)
}

func TestTheOldestGoFirst(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	all := lonetest.Keys("k", 400)
	for _, key := range all {
		p.Put(nil, key)
		p.Idle(time.Duration(rand.IntN(3)) * time.Millisecond) // ties are broken by id
	}
	p.Pass(time.Minute)
	if n := evict(t, p, eviction.Bounds{Objects: 20}); n != 20 {
		t.Errorf("got %d of 400 evicted, want 20", n)
	}
	if p.Alive(all[:20]...) != 0 || p.Alive(all[20:]...) != 380 {
		t.Error("got others evicted than the 20 oldest")
	}
	// Read in another order, and the order of reading counts.
	for i := 399; i >= 20; i-- {
		p.Get(all[i])
		p.Idle(time.Millisecond)
	}
	p.Scan()
	p.Pass(time.Minute)
	if n := evict(t, p, eviction.Bounds{Objects: 80}); n != 80 {
		t.Errorf("%d evicted, want 80", n)
	}
	if p.Alive(all[320:]...) != 0 || p.Alive(all[20:320]...) != 300 {
		t.Error("others than the 80 read longest ago went")
	}
}

func TestLeasedObjectsStay(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	all := lonetest.Keys("k", 50)
	for _, key := range all {
		p.Put(nil, key)
		p.Get(key)
	}
	p.Pass(time.Second)
	if n := evict(t, p, eviction.Bounds{Objects: 50}); n != 0 {
		t.Errorf("got %d leased objects evicted, want none (L)", n)
	}
	p.Scan()
	p.Pass(params.HoldTime() - time.Second - time.Millisecond)
	if n := evict(t, p, eviction.Bounds{Objects: 50}); n != 0 {
		t.Errorf("got %d leased objects evicted in the last millisecond, want none (L)", n)
	}
	p.Pass(2 * time.Millisecond)
	if n := evict(t, p, eviction.Bounds{Objects: 50}); n != 50 {
		t.Errorf("%d evicted after their leases, want 50", n)
	}
}

func TestPins(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	hard, soft, plain := lonetest.Keys("h", 10), lonetest.Keys("s", 10), lonetest.Keys("p", 10)
	for i := range 10 {
		p.Put(hardPin, hard[i])
		p.Put(softPin, soft[i])
		p.Put(nil, plain[i])
		p.Idle(time.Millisecond)
	}
	p.Pass(time.Minute)
	if n := evict(t, p, eviction.Bounds{Objects: 6}); n != 6 || p.Alive(plain...) != 4 {
		t.Errorf("got %d evicted and %d of the unpinned left, want 6 and 4", n, p.Alive(plain...))
	}
	if n := evict(t, p, eviction.Bounds{Objects: 30}); n != 4 || p.Alive(soft...) != 10 {
		t.Errorf("got %d evicted and %d softly pinned left, want the 4 unpinned evicted and 10 left", n, p.Alive(soft...))
	}
	if st := p.Store.Stats(); st.SoftPinned != 10 || st.Evictable != 10 {
		t.Errorf("%+v", st)
	}
	if n := evict(t, p, eviction.Bounds{Objects: 6, IncludePinned: true}); n != 6 || p.Alive(soft[:6]...) != 0 {
		t.Errorf("softly pinned objects may go: got %d evicted, want the 6 oldest", n)
	}
	p.Commit(p.Remove(soft[9], false)) // a pin keeps nobody from removing the object
	p.Get(soft[6])                     // does not pin again
	p.Scan()
	p.Pass(30 * time.Minute)
	if n := evict(t, p, eviction.Bounds{Objects: 30}); n != 3 || p.Alive(soft...) != 0 {
		t.Errorf("got %d evicted after the pins lapsed, want 3", n)
	}
	if n := evict(t, p, eviction.Bounds{Objects: 30, IncludePinned: true}); n != 0 || p.Alive(hard...) != 10 {
		t.Errorf("got %d objects evicted that are pinned hard, want none", n)
	}
	p.Commit(p.Remove(hard[0], false))
}

func TestIncludePinnedMarksUnpinnedToo(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(softPin, "soft")
	p.Idle(time.Millisecond)
	p.Put(nil, "plain")
	p.Pass(time.Minute)
	pass := eviction.Select(p.Store, eviction.Bounds{Objects: 5, IncludePinned: true})
	if pass.Victims != 2 {
		t.Fatalf("%d victims marked", pass.Victims)
	}
	if _, wait, _ := p.Leases.GetReplicaList("default", "plain", p.Now()); wait == nil {
		t.Error("a victim grants a lease")
	}
	p.Commit(pass.Cutoff)
	if p.Alive("soft", "plain") != 0 {
		t.Error("a victim survived")
	}
}

func TestExpiredOnlyBelow(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(nil, "old")
	p.Idle(time.Second)
	bound := p.Now()
	p.Put(nil, "new")
	p.Pass(time.Second)
	if n := evict(t, p, eviction.Bounds{Objects: 5, Below: bound}); n != 1 || p.Alive("new") != 1 {
		t.Errorf("%d evicted below the bound", n)
	}
}

// A cutoff lies strictly below the time of the last commit applied when the
// pass begins [model]: an object that completes in the same millisecond, after
// the pass began, must not fall under it.
func TestModelCutoffLiesBelowTheLastCommit(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(nil, "old")
	p.Commit(p.PutStart(nil, "late"))
	pass := eviction.Select(p.Store, eviction.Bounds{Objects: 9})
	if pass != nil {
		t.Fatalf("a pass was chosen at the time of the last commit: cutoff %d, now %d", pass.Cutoff.Deadline, p.Now())
	}
	p.Pass(time.Millisecond)
	pass = eviction.Select(p.Store, eviction.Bounds{Objects: 9})
	// The end of the put overtakes the cutoff on its way to the journal.
	p.Commit(p.PutEnd("late"))
	p.Commit(pass.Cutoff)
	if p.Alive("late") != 1 || p.Alive("old") != 0 {
		t.Error("the object that completed after the pass began fell under its cutoff")
	}
}

// If anything other than PutEnd ends a reservation, it must stamp the object as well.
func TestModelDiscardStampsTheObject(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(func(p *metadata.Put) { p.DiskPath = "/f" }, "k") // the disk replica is in progress
	p.Put(nil, "other")
	p.Pass(time.Minute)
	pass := eviction.Select(p.Store, eviction.Bounds{Objects: 9})
	if pass.Victims != 1 {
		t.Fatalf("%d victims; a put in progress must not be one", pass.Victims)
	}
	ref := p.Ref("k")
	ref.Selector = metadata.SelectDisk
	revoked, _, err := p.Store.PreparePutRevoke(ref)
	if err != nil {
		t.Fatal(err)
	}
	p.Commit(revoked.Partial)
	p.Commit(pass.Cutoff)
	if p.Alive("k") != 1 {
		t.Error("an object that was no candidate was evicted without being marked: a reader may hold a lease")
	}
}

// Near misses are journaled before their cutoff [model]: otherwise a follower
// would evict what the primary just leased.
func TestModelNearMisses(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(nil, "hot")
	p.Idle(time.Millisecond)
	p.Put(nil, "cold")
	p.Pass(time.Minute)
	p.Get("hot") // renewed in memory only
	pass := eviction.Select(p.Store, eviction.Bounds{Objects: 1})
	if pass.Victims != 1 || len(pass.NearMisses) != 1 {
		t.Fatalf("%d victims, %d near misses", pass.Victims, len(pass.NearMisses))
	}
	// A near miss may be read while the pass is under way; a victim may not.
	p.Get("hot")
	_, wait, _ := p.Leases.GetReplicaList("default", "cold", p.Now())
	if wait == nil {
		t.Fatal("a victim grants a lease")
	}
	if !p.Leases.Exists("default", "cold", p.Now()) {
		t.Error("a victim that is not evicted yet does not exist")
	}
	if o, _ := p.Store.Inspect("default", "cold"); o.LeaseEnds > p.Now() {
		t.Error("Exists granted a lease on a victim")
	}
	p.Commit(leasesync.Pack(pass.NearMisses)...)
	p.Commit(pass.Cutoff)
	select {
	case <-wait:
	default:
		t.Error("readers of the victim still wait")
	}
	if p.Alive("hot") != 1 || p.Alive("cold") != 0 {
		t.Errorf("hot %d, cold %d", p.Alive("hot"), p.Alive("cold"))
	}
}

// A pass that cannot be journaled changes nothing: conformance line 71.
func TestAbortedPassLeavesVictims(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(nil, "k")
	p.Pass(time.Minute)
	pass := eviction.Select(p.Store, eviction.Bounds{Objects: 1})
	_, wait, _ := p.Leases.GetReplicaList("default", "k", p.Now())
	pass.Cutoff.Abort(p.Store)
	select {
	case <-wait:
	default:
		t.Error("readers still wait")
	}
	p.Get("k")
}

// A removal waits in the queue while a pass evicts its object: eligibility is
// read from journaled state only, pending or not [model], so the removal finds
// the object gone, and so does every node.
func TestModelPendingObjectsAreEvicted(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(nil, "k")
	p.Pass(time.Minute)
	removal := p.Remove("k", false)
	pass := eviction.Select(p.Store, eviction.Bounds{Objects: 1})
	if pass.Victims != 1 {
		t.Fatal("a pending object is not evictable")
	}
	p.Commit(pass.Cutoff)
	answers, err := p.Queue.Submit(t.Context(), removal)
	if err != nil || !errors.Is(answers[0], errs.ObjectNotFound) {
		t.Errorf("removal of what was evicted meanwhile: got %v, %v, want ObjectNotFound", answers, err)
	}
	p.Put(nil, "k") // the key is free again
}

func TestBoundedPass(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<24)
	const n = 20000
	one := func(p *metadata.Put) { p.Size = 1 }
	all := lonetest.Keys("", n)
	for part := range slices.Chunk(all, 1000) {
		var starts, ends []metadata.Change
		for _, key := range part {
			starts = append(starts, p.PutStart(one, key))
		}
		p.Commit(starts...)
		for _, key := range part {
			ends = append(ends, p.PutEnd(key))
		}
		p.Commit(ends...) // all with one stamp
	}
	p.Pass(time.Second)
	p.Get(all...) // all are near misses now
	p.Pass(time.Minute)
	pass := eviction.Select(p.Store, eviction.Bounds{Objects: 10})
	if pass.Victims != 0 || len(pass.NearMisses) == 0 || len(pass.NearMisses) > 3000 {
		t.Fatalf("%d victims, %d near misses, want none and at most 3,000 under one lock", pass.Victims, len(pass.NearMisses))
	}
	pass.Cutoff.Abort(p.Store)
	for range 20 { // each pass must get further
		evict(t, p, eviction.Bounds{Objects: 3000})
	}
	if left := p.Store.Stats().Objects; left > 0 {
		t.Errorf("%d objects left after 20 passes of 3000", left)
	}
}

// Cutoffs are counted when they are applied, so both nodes count the same.
func TestCutoffCounts(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(nil, lonetest.Keys("k", 12)...)
	p.Pass(time.Minute)
	for _, n := range []int{1, 2, 3, 4} {
		if got := evict(t, p, eviction.Bounds{Objects: n}); got != n {
			t.Fatalf("got %d evicted, want %d", got, n)
		}
	}
	want := metadata.CutoffCounts{Cutoffs: 4, Objects: 10, Classes: [metadata.CutoffClasses]uint64{1, 1, 2}}
	for node, store := range map[string]*metadata.Store{"primary": p.Store, "follower": p.Follower} {
		if got := store.CutoffCounts(); got != want {
			t.Errorf("%s: got %+v, want %+v", node, got, want)
		}
	}
}
