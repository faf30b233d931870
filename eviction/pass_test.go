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
		t.Errorf("got %d of the 20 oldest objects and %d of the others left, want 0 and 380",
			p.Alive(all[:20]...), p.Alive(all[20:]...))
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
		t.Errorf("got %d of the 80 that were read longest ago and %d of the others left, want 0 and 300",
			p.Alive(all[320:]...), p.Alive(all[20:320]...))
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
		t.Errorf("got %d soft-pinned and %d evictable objects in %+v, want 10 of each", st.SoftPinned, st.Evictable, st)
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
		t.Fatalf("a pass that may take soft pins: got %d victims, want 2, the unpinned one too", pass.Victims)
	}
	if _, wait, _ := p.Leases.GetReplicaList("default", "plain", p.Now()); wait == nil {
		t.Error("reading a victim: got a lease, want to wait for the end of the pass")
	}
	p.Commit(pass.Cutoff)
	if p.Alive("soft", "plain") != 0 {
		t.Errorf("got %d of two victims left after the cutoff, want none", p.Alive("soft", "plain"))
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
		t.Errorf("got %d evicted and %d left of the object beyond the bound, want 1 and 1", n, p.Alive("new"))
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
		t.Fatalf("right after the last commit got a pass with the cutoff %d at %d, want none: a cutoff lies below that commit",
			pass.Cutoff.Deadline, p.Now())
	}
	p.Pass(time.Millisecond)
	pass = eviction.Select(p.Store, eviction.Bounds{Objects: 9})
	// The end of the put overtakes the cutoff on its way to the journal.
	p.Commit(p.PutEnd("late"))
	p.Commit(pass.Cutoff)
	if p.Alive("late") != 1 || p.Alive("old") != 0 {
		t.Errorf("got %d left of the object that completed after the pass began and %d of the old one, want 1 and 0",
			p.Alive("late"), p.Alive("old"))
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
		t.Fatalf("got %d victims, want 1: a put in progress must not be one", pass.Victims)
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
		t.Error("an object that was no candidate is gone, want it left: it was not marked, so a reader may hold a lease")
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
		t.Fatalf("got %d victims and %d near misses, want 1 and 1", pass.Victims, len(pass.NearMisses))
	}
	// A near miss may be read while the pass is under way; a victim may not.
	p.Get("hot")
	_, wait, _ := p.Leases.GetReplicaList("default", "cold", p.Now())
	if wait == nil {
		t.Fatal("reading a victim: got a lease, want to wait for the end of the pass")
	}
	if !p.Leases.Exists("default", "cold", p.Now()) {
		t.Error("a victim before its eviction: got that it does not exist, want that it does")
	}
	if o, _ := p.Store.Inspect("default", "cold"); o.LeaseEnds > p.Now() {
		t.Errorf("Exists granted a lease on a victim: got its end at %d, want %d at most", o.LeaseEnds, p.Now())
	}
	p.Commit(leasesync.Pack(pass.NearMisses)...)
	p.Commit(pass.Cutoff)
	select {
	case <-wait:
	default:
		t.Error("readers of the victim wait after the cutoff, want them to go on")
	}
	if p.Alive("hot") != 1 || p.Alive("cold") != 0 {
		t.Errorf("got %d left of the leased object and %d of the victim, want 1 and 0", p.Alive("hot"), p.Alive("cold"))
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
		t.Error("readers of a victim wait after the pass was aborted, want them to go on")
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
		t.Fatalf("got %d victims, want 1: an object with a pending removal is evictable", pass.Victims)
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
		t.Errorf("got %d of 20,000 objects left after 20 passes of 3,000, want none", left)
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
