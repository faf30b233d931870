package metadata_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

func softPin(p *metadata.Put) { p.SoftPin = 30 * time.Minute }
func hardPin(p *metadata.Put) { p.HardPin = true }

func (c *cluster) alive(keys ...string) (n int) {
	for _, key := range keys {
		if o, err := c.primary.Inspect("default", key); err == nil && len(o.Replicas) > 0 {
			n++
		}
	}
	return n
}

func keys(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint(prefix, i))
	}
	return list
}

func TestTheOldestGoFirst(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	all := keys("k", 400)
	for _, key := range all {
		c.put(key)
		c.pass(time.Duration(rand.IntN(3)) * time.Millisecond) // ties are broken by id
	}
	c.pass(time.Minute)
	c.commit()
	if n := c.evict(metadata.Quota{Objects: 20}); n != 20 {
		t.Errorf("45: %d of 400 evicted, want 20", n)
	}
	if c.alive(all[:20]...) != 0 || c.alive(all[20:]...) != 380 {
		t.Error("45: others than the 20 oldest went")
	}
	// Read in another order, and the order of reading counts.
	for i := 399; i >= 20; i-- {
		c.read(all[i])
		c.pass(time.Millisecond)
	}
	c.scan()
	c.pass(time.Minute)
	c.commit()
	if n := c.evict(metadata.Quota{Objects: 80}); n != 80 {
		t.Errorf("%d evicted, want 80", n)
	}
	if c.alive(all[320:]...) != 0 || c.alive(all[20:320]...) != 300 {
		t.Error("others than the 80 read longest ago went")
	}
}

func TestLeasedObjectsStay(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	all := keys("k", 50)
	for _, key := range all {
		c.put(key)
		c.read(key)
	}
	c.pass(time.Second)
	c.commit()
	if n := c.evict(metadata.Quota{Objects: 50}); n != 0 {
		t.Errorf("44: %d leased objects evicted", n)
	}
	c.scan()
	c.pass(params.HoldTime() - time.Second - time.Millisecond)
	c.commit()
	if n := c.evict(metadata.Quota{Objects: 50}); n != 0 {
		t.Errorf("44: %d leased objects evicted in the last millisecond", n)
	}
	c.pass(2 * time.Millisecond)
	c.commit()
	if n := c.evict(metadata.Quota{Objects: 50}); n != 50 {
		t.Errorf("%d evicted after their leases, want 50", n)
	}
}

func TestPins(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	hard, soft, plain := keys("h", 10), keys("s", 10), keys("p", 10)
	for i := range 10 {
		c.put(hard[i], hardPin)
		c.put(soft[i], softPin)
		c.put(plain[i])
		c.pass(time.Millisecond)
	}
	c.pass(time.Minute)
	c.commit()
	if n := c.evict(metadata.Quota{Objects: 6}); n != 6 || c.alive(plain...) != 4 {
		t.Errorf("47: %d evicted, %d of the unpinned left", n, c.alive(plain...))
	}
	if n := c.evict(metadata.Quota{Objects: 30}); n != 4 || c.alive(soft...) != 10 {
		t.Errorf("49: %d evicted, %d softly pinned left", n, c.alive(soft...))
	}
	if st := c.primary.Stats(); st.SoftPinned != 10 || st.Evictable != 10 {
		t.Errorf("%+v", st)
	}
	if n := c.evict(metadata.Quota{Objects: 6, IncludePinned: true}); n != 6 || c.alive(soft[:6]...) != 0 {
		t.Errorf("48: %d evicted", n)
	}
	if err := c.remove(soft[9], false); err != nil {
		t.Errorf("53: removing a softly pinned object: %v", err)
	}
	c.read(soft[6]) // 50: does not pin again
	c.scan()
	c.pass(30 * time.Minute)
	c.commit()
	if n := c.evict(metadata.Quota{Objects: 30}); n != 3 || c.alive(soft...) != 0 {
		t.Errorf("50: %d evicted after the pins lapsed", n)
	}
	if n := c.evict(metadata.Quota{Objects: 30, IncludePinned: true}); n != 0 || c.alive(hard...) != 10 {
		t.Errorf("52: %d pinned hard were evicted", n)
	}
	if err := c.remove(hard[0], false); err != nil {
		t.Errorf("52: removing a hard-pinned object: %v", err)
	}
}

func TestIncludePinnedMarksUnpinnedToo(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("soft", softPin)
	c.pass(time.Millisecond)
	c.put("plain")
	c.pass(time.Minute)
	c.commit()
	pass := c.primary.SelectVictims(metadata.Quota{Objects: 5, IncludePinned: true})
	if pass.Victims != 2 {
		t.Fatalf("%d victims marked", pass.Victims)
	}
	if _, wait, _ := c.primary.GetReplicaList("default", "plain", c.now); wait == nil {
		t.Error("a victim grants a lease")
	}
	c.must(c.commit(pass.Cutoff))
	if c.alive("soft", "plain") != 0 {
		t.Error("a victim survived")
	}
}

func TestExpiredOnlyBelow(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("old")
	c.pass(time.Second)
	bound := c.now
	c.put("new")
	c.pass(time.Second)
	c.commit()
	if n := c.evict(metadata.Quota{Objects: 5, Below: bound}); n != 1 || c.alive("new") != 1 {
		t.Errorf("%d evicted below the bound", n)
	}
}

// A cutoff lies strictly below the time of the last commit applied when the
// pass begins [model]: an object that completes in the same millisecond, after
// the pass began, must not fall under it.
func TestModelCutoffLiesBelowTheLastCommit(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("old")
	if err := c.putStart("late"); err != nil {
		t.Fatal(err)
	}
	pass := c.primary.SelectVictims(metadata.Quota{Objects: 9})
	if pass != nil {
		t.Fatalf("a pass was chosen at the time of the last commit: cutoff %d, now %d", pass.Cutoff.Deadline, c.now)
	}
	c.pass(time.Millisecond)
	c.commit()
	pass = c.primary.SelectVictims(metadata.Quota{Objects: 9})
	// The end of the put overtakes the cutoff on its way to the journal.
	if err := c.putEnd("late"); err != nil {
		t.Fatal(err)
	}
	c.must(c.commit(pass.Cutoff))
	if c.alive("late") != 1 || c.alive("old") != 0 {
		t.Error("the object that completed after the pass began fell under its cutoff")
	}
}

// What ends a reservation otherwise than by PutEnd must stamp the object too.
func TestModelDiscardStampsTheObject(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("k", func(p *metadata.Put) { p.DiskPath = "/f" }) // the disk replica is in progress
	c.put("other")
	c.pass(time.Minute)
	c.commit()
	pass := c.primary.SelectVictims(metadata.Quota{Objects: 9})
	if pass.Victims != 1 {
		t.Fatalf("%d victims; a put in progress must not be one", pass.Victims)
	}
	ref := c.putRef("k")
	ref.Selector = metadata.SelectDisk
	if err := c.revokeAs(ref); err != nil {
		t.Fatal(err)
	}
	c.must(c.commit(pass.Cutoff))
	if c.alive("k") != 1 {
		t.Error("an object that was no candidate was evicted without being marked: a reader may hold a lease")
	}
}

// Near misses are journaled before their cutoff [model]: otherwise a follower
// would evict what the primary just leased.
func TestModelNearMisses(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("hot")
	c.pass(time.Millisecond)
	c.put("cold")
	c.pass(time.Minute)
	c.commit()
	c.read("hot") // renewed in memory only
	pass := c.primary.SelectVictims(metadata.Quota{Objects: 1})
	if pass.Victims != 1 || len(pass.NearMisses) != 1 {
		t.Fatalf("%d victims, %d near misses", pass.Victims, len(pass.NearMisses))
	}
	// A near miss may be read while the pass is under way; a victim may not.
	if _, err := c.get("hot"); err != nil {
		t.Error(err)
	}
	_, wait, _ := c.primary.GetReplicaList("default", "cold", c.now)
	if wait == nil {
		t.Fatal("a victim grants a lease")
	}
	if !c.primary.Exists("default", "cold", c.now) {
		t.Error("a victim that is not evicted yet does not exist")
	}
	if o, _ := c.primary.Inspect("default", "cold"); o.LeaseEnds > c.now {
		t.Error("Exists granted a lease on a victim")
	}
	c.must(c.commit(renewals(pass.NearMisses)...))
	c.must(c.commit(pass.Cutoff))
	select {
	case <-wait:
	default:
		t.Error("readers of the victim still wait")
	}
	if c.alive("hot") != 1 || c.alive("cold") != 0 {
		t.Errorf("hot %d, cold %d", c.alive("hot"), c.alive("cold"))
	}
}

func TestAbortedPassLeavesVictims(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("k")
	c.pass(time.Minute)
	c.commit()
	pass := c.primary.SelectVictims(metadata.Quota{Objects: 1})
	_, wait, _ := c.primary.GetReplicaList("default", "k", c.now)
	pass.Cutoff.Abort(c.primary)
	select {
	case <-wait:
	default:
		t.Error("readers still wait")
	}
	if _, err := c.get("k"); err != nil {
		t.Error(err)
	}
}

// A removal waits in the queue while a pass evicts its object: eligibility is
// read from journaled state only, pending or not [model], so the removal finds
// the object gone, and so does every node.
func TestModelPendingObjectsAreEvicted(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("k")
	c.pass(time.Minute)
	c.commit()
	r, _, err := c.primary.PrepareRemove(metadata.Remove{Tenant: "default", Key: "k"}, c.now)
	if err != nil {
		t.Fatal(err)
	}
	pass := c.primary.SelectVictims(metadata.Quota{Objects: 1})
	if pass.Victims != 1 {
		t.Fatal("a pending object is not evictable")
	}
	c.must(c.commit(pass.Cutoff))
	wantKind(t, "removal of what was evicted meanwhile", c.commit(deletion(r))[0], errs.ObjectNotFound)
	c.put("k") // the key is free again
}

func TestBoundedPass(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<24)
	const n = 20000
	changes := make([]metadata.Change, 0, n)
	for i := range n {
		e, err := c.preparePut(fmt.Sprint(i), func(p *metadata.Put) { p.Size = 1 })
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, e)
	}
	c.must(c.commit(changes...))
	for i, ch := range changes {
		ref := c.putRef(fmt.Sprint(i))
		e, _, err := c.primary.PreparePutEnd(ref, nil)
		if err != nil {
			t.Fatal(err)
		}
		changes[i], _ = metadata.Change(e), ch
	}
	c.must(c.commit(changes...)) // all with one stamp
	c.pass(time.Second)
	c.commit()
	for i := range n {
		c.read(fmt.Sprint(i)) // all are near misses now
	}
	c.pass(time.Minute)
	c.commit()
	pass := c.primary.SelectVictims(metadata.Quota{Objects: 10})
	if pass.Victims != 0 || len(pass.NearMisses) == 0 {
		t.Fatalf("%d victims, %d near misses", pass.Victims, len(pass.NearMisses))
	}
	pass.Cutoff.Abort(c.primary)
	for range 10 { // each pass must get further
		c.evict(metadata.Quota{Objects: 3000})
	}
	if left := c.primary.Stats().Objects; left > 0 {
		t.Errorf("%d objects left after ten passes of 3000", left)
	}
}
