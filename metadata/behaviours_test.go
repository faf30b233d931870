package metadata_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/metadata"
)

func TestPutAndGet(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	if err := c.putStart("k"); err != nil {
		t.Fatal(err)
	}
	_, err := c.get("k")
	wantKind(t, "get of a put in progress", err, errs.ReplicaNotReady)
	if c.exists("k") {
		t.Error("a put in progress: got that it exists, want not")
	}
	if err := c.putEnd("k"); err != nil {
		t.Fatal(err)
	}
	list, err := c.get("k")
	if err != nil || len(list.Replicas) != 1 || list.LeaseTTL != params.LeaseTTL {
		t.Fatalf("the get of a complete object: got %+v, %v; want it", list, err)
	}
	r := list.Replicas[0]
	if r.Kind != metadata.Memory || r.Status != metadata.Complete || r.Endpoint != "a:1" || r.Protocol != "tcp" ||
		r.Size != 100 || r.Address < 1<<32 || r.Address >= 1<<32+1<<20 || r.Segment != "a" {
		t.Errorf("the get of a complete object: got the descriptor %+v, want that of the put", r)
	}
	if !c.exists("k") {
		t.Error("a complete object: got that it does not exist, want that it does")
	}
	_, err = c.get("nothing")
	wantKind(t, "get of a missing key", err, errs.ObjectNotFound)
	if c.exists("nothing") {
		t.Error("a missing key: got that it exists, want not")
	}
	wantKind(t, "put over a complete object", c.putStart("k"), errs.ObjectExists)
	c.pass(time.Hour)
	wantKind(t, "put over an old complete object", c.putStart("k"), errs.ObjectExists)
}

func TestAbandonedPut(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<10)
	size := func(p *metadata.Put) { p.Size = 400 }
	other := func(p *metadata.Put) { p.Size, p.Client = 400, client(2) }
	if err := c.putStart("k", size); err != nil {
		t.Fatal(err)
	}
	c.pass(30*time.Second - time.Millisecond)
	wantKind(t, "a put that is younger than the discard timeout", c.putStart("k", other), errs.ObjectExists)
	c.pass(time.Millisecond)
	if err := c.putStart("k", other); err != nil {
		t.Fatalf("replacing an abandoned put: got %v, want no error", err)
	}
	wantKind(t, "the first writer comes late", c.putEnd("k"), errs.IllegalClient)
	wantKind(t, "a put while the old buffers are occupied", c.putStart("third", size), errs.NoAvailableHandle)
	if st := c.primary.Stats(); st.Busy != 832 || st.Quarantined != 416 {
		t.Errorf("an abandoned put was replaced: got %d bytes busy and %d in quarantine, want 832 and 416", st.Busy, st.Quarantined)
	}
	c.pass(600*time.Second - 30*time.Second - time.Millisecond)
	c.commit()
	wantKind(t, "a put just before the release time", c.putStart("third", size), errs.NoAvailableHandle)
	c.pass(time.Millisecond)
	c.commit()
	if err := c.putStart("third", size); err != nil {
		t.Fatalf("a put after the release time: got %v, want no error", err)
	}
}

func TestReaperDiscardsAtTheReleaseTime(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<10)
	if err := c.putStart("k"); err != nil {
		t.Fatal(err)
	}
	c.put("done")
	c.pass(599 * time.Second)
	if got := c.primary.PrepareDiscards(c.now, 10); len(got) != 0 {
		t.Fatalf("a second before the release time: got %d puts discarded, want none", len(got))
	}
	c.pass(2 * time.Second)
	discards := c.primary.PrepareDiscards(c.now, 10)
	if len(discards) != 1 {
		t.Fatalf("%d puts to discard, want 1", len(discards))
	}
	if again := c.primary.PrepareDiscards(c.now, 10); len(again) != 0 {
		t.Errorf("a discard is under way: got %d prepared for the put once more, want none", len(again))
	}
	c.must(c.commit(discards[0]))
	if st := c.primary.Stats(); st.Objects != 1 || st.Quarantined != 0 || st.Busy != 104 {
		t.Errorf("after a discard: got %d objects, %d bytes in quarantine and %d busy, want 1, 0 and 104", st.Objects, st.Quarantined, st.Busy)
	}
	wantKind(t, "late end", c.putEnd("k"), errs.ObjectNotFound)
}

func TestOnlyTheWriterEndsOrRevokes(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	if err := c.putStart("k"); err != nil {
		t.Fatal(err)
	}
	stranger := c.putRef("k")
	stranger.Client = client(9)
	wantKind(t, "end by a stranger", c.putEndAs(stranger), errs.IllegalClient)
	wantKind(t, "revoke by a stranger", c.revokeAs(stranger), errs.IllegalClient)
	wantKind(t, "end of nothing", c.putEnd("x"), errs.ObjectNotFound)
	wantKind(t, "revoke of nothing", c.revokeAs(c.putRef("x")), errs.ObjectNotFound)
	disk := c.putRef("k")
	disk.Selector = metadata.SelectDisk
	wantKind(t, "end of a kind it does not have", c.putEndAs(disk), errs.InvalidWrite)
	if err := c.putEnd("k"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "end of a complete put, again", c.putEnd("k"), errs.OK)
	wantKind(t, "revoke of a complete put", c.revokeAs(c.putRef("k")), errs.InvalidWrite)
	later := c.putRef("k")
	later.ID = 4711
	wantKind(t, "end of another put of the key", c.putEndAs(later), errs.ObjectNotFound)
}

func TestRevoke(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<10)
	if err := c.putStart("k"); err != nil {
		t.Fatal(err)
	}
	ref := c.putRef("k")
	ref.Request = 77
	if err := c.revokeAs(ref); err != nil {
		t.Fatal(err)
	}
	_, err := c.get("k")
	wantKind(t, "get after a revoke", err, errs.ObjectNotFound)
	wantKind(t, "the same revoke again", c.revokeAs(ref), errs.OK)
	if err := c.putStart("k"); err != nil {
		t.Errorf("put after a revoke: got %v, want no error", err)
	}
	if st := c.primary.Stats(); st.Quarantined != 104 {
		t.Errorf("A: the writer of a revoked put may be late: got %d bytes in quarantine, want 104", st.Quarantined)
	}
}

func TestReplication(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	two := func(p *metadata.Put) { p.Replicas = 2 }
	c.put("one", two) // as many replicas as there are segments
	if list, _ := c.get("one"); len(list.Replicas) != 1 {
		t.Errorf("two replicas on one segment: got %d, want 1", len(list.Replicas))
	}
	c.mount(2, "b", 1<<20)
	third := c.mount(3, "c", 1<<20)
	c.put("three", func(p *metadata.Put) { p.Replicas = 3 })
	list, _ := c.get("three")
	names := map[string]bool{}
	for _, r := range list.Replicas {
		names[r.Segment] = true
	}
	if len(names) != 3 {
		t.Errorf("three replicas: got the segments %v, want three different ones", names)
	}
	c.unmount(third)
	if list, err := c.get("three"); err != nil || len(list.Replicas) != 2 {
		t.Errorf("one segment of three unmounted: got %d replicas, %v; want 2 and no error", len(list.Replicas), err)
	}
}

func TestUnmountTakesObjectsAway(t *testing.T) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<20)
	for i := range 100 {
		c.put(fmt.Sprint(i))
	}
	if err := c.putStart("open"); err != nil {
		t.Fatal(err)
	}
	c.unmount(id)
	_, err := c.get("7")
	wantKind(t, "get of an object on an unmounted segment", err, errs.ObjectNotFound)
	if c.exists("7") {
		t.Error("an object on an unmounted segment still exists, want it gone")
	}
	wantKind(t, "end of an open put", c.putEnd("open"), errs.ObjectNotFound)
	digest := c.primary.Position().Digest
	for c.primary.Sweep(7) {
	}
	if st := c.primary.Stats(); st.Objects != 0 || st.MemoryReplicas != 0 || st.Evictable != 0 {
		t.Errorf("after the sweep: got %+v, want nothing left of the segment", st)
	}
	if got := c.primary.Position().Digest; got != digest {
		t.Errorf("the sweep changed the digest: got %v, want %v as before", got, digest)
	}
	c.mount(2, "b", 1<<20)
	c.put("7") // while the follower has not swept
	if _, err := c.get("7"); err != nil {
		t.Error(err)
	}
}

func TestMounting(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.mount(1, "a", 1<<20)
	if st := c.primary.Stats(); st.Segments != 1 || st.Capacity != 1<<20 {
		t.Errorf("mounted twice: got %+v, want one segment", st)
	}
	c.put("k")
	spec := c.primary.Segments()[0].Spec
	moved := spec
	moved.Base = 5 << 40
	_, err := c.primary.PrepareMount(moved)
	wantKind(t, "an id at two places", err, errs.SegmentExists)
	bad := spec
	bad.Size = 0
	_, err = c.primary.PrepareMount(bad)
	wantKind(t, "a segment without bytes", err, errs.InvalidParams)

	over := spec
	over.ID[0], over.Base = 9, spec.Base+512
	e, err := c.primary.PrepareMount(over)
	if err != nil || len(e.Replaces) != 1 {
		t.Fatalf("a mount over another segment: got %+v, %v, want it to replace that one", e, err)
	}
	c.must(c.commit(e))
	if st := c.primary.Stats(); st.Segments != 1 || c.exists("k") {
		t.Errorf("the owner of a segment restarted: got %+v, and its old object exists: %v; want one segment, and no object",
			st, c.exists("k"))
	}
}

func TestRemove(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("k")
	if err := c.remove("k", false); err != nil {
		t.Fatalf("removing an object: got %v, want no error", err)
	}
	_, err := c.get("k")
	wantKind(t, "get after remove", err, errs.ObjectNotFound)
	wantKind(t, "remove of nothing", c.remove("k", true), errs.ObjectNotFound)
	c.put("k")
	if _, err := c.get("k"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "remove of a leased object", c.remove("k", false), errs.ObjectHasLease)
	if err := c.remove("k", true); err != nil {
		t.Errorf("forced removal of a leased object: got %v, want no error", err)
	}
	if err := c.putStart("k"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "forced remove of a put in progress", c.remove("k", true), errs.ReplicaNotReady)
}

// For removals a lease ends when the reader's time is over. The margin for clock rates applies
// only to the memory, which stays in quarantine for that long.
func TestLeaseEndsWithTheReadersTime(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 104)
	c.put("k")
	c.read("k")
	c.pass(params.LeaseTTL - time.Millisecond)
	wantKind(t, "remove before the end", c.remove("k", false), errs.ObjectHasLease)
	c.pass(time.Millisecond)
	if err := c.remove("k", false); err != nil {
		t.Fatalf("remove at the end of the TTL: got %v, want no error", err)
	}
	wantKind(t, "a put within the margin", c.putStart("next"), errs.NoAvailableHandle)
	c.pass(params.HoldTime() - params.LeaseTTL)
	c.commit()
	if err := c.putStart("next"); err != nil {
		t.Errorf("a put after the margin: got %v, want no error", err)
	}
}

func TestForcedRemovalKeepsTheReadersBytes(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 104)
	c.put("k")
	c.read("k")
	if err := c.remove("k", true); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "the reader's lease holds the bytes", c.putStart("next"), errs.NoAvailableHandle)
	c.pass(params.LeaseTTL)
	c.commit()
	wantKind(t, "at the end of the TTL the margin holds", c.putStart("next"), errs.NoAvailableHandle)
	c.pass(params.HoldTime() - params.LeaseTTL)
	c.commit()
	if err := c.putStart("next"); err != nil {
		t.Errorf("a put after the reader's lease: got %v, want no error", err)
	}
}

func TestRepeatedRequests(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	put := &metadata.Put{Tenant: "default", Key: "k", Client: client(1), Size: 10, Replicas: 1, Request: 5}
	e, _, _, err := c.primary.PreparePutStart(put, c.now)
	if err != nil {
		t.Fatal(err)
	}
	c.must(c.commit(e))
	c.takeOver(0)
	_, same, _, err := c.primary.PreparePutStart(put, c.now)
	if err != nil || same == nil || same.ID != e.ID || len(same.Replicas) != 1 {
		t.Fatalf("D: the same put request after a takeover: got %+v, %v, want the first reservation, %v", same, err, e.ID)
	}
	if err := c.putEnd("k"); err != nil {
		t.Fatal(err)
	}
	remove := deleteevents.Request{Tenant: "default", Key: "k", ID: 6}
	r, _, err := deleteevents.Prepare(c.primary, remove, c.now)
	if err != nil {
		t.Fatal(err)
	}
	c.must(c.commit(r))
	c.takeOver(0)
	c.put("k")
	if r, _, err := deleteevents.Prepare(c.primary, remove, c.now); r != nil || err != nil {
		t.Errorf("X: a removal was repeated, and a later object has its key: got %+v, %v, want nothing to remove", r, err)
	}
}

func TestTenants(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("k")
	red := func(p *metadata.Put) { p.Tenant = "red" }
	if err := c.putStart("k", red); err != nil {
		t.Fatal(err)
	}
	if err := c.remove("k", false); err != nil {
		t.Fatal(err)
	}
	if o, err := c.primary.Inspect("red", "k"); err != nil || o.Tenant != "red" {
		t.Errorf("the other tenant's object: got %+v, %v; want it untouched", o, err)
	}
	if _, err := c.primary.Inspect("blue", "k"); err == nil {
		t.Error("an unknown tenant: got an object of the key, want none")
	}
}

func TestDiskReplicas(t *testing.T) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<20)
	disk := func(p *metadata.Put) { p.DiskPath = "/files/" + p.Key }
	c.put("k", disk) // memory only so far
	wantKind(t, "the disk replica is in progress", c.remove("k", true), errs.ReplicaNotReady)
	ref := c.putRef("k")
	ref.Selector = metadata.SelectDisk
	if err := c.putEndAs(ref); err != nil {
		t.Fatal(err)
	}
	if list, _ := c.get("k"); len(list.Replicas) != 2 || list.Replicas[1].Path != "/files/k."+list.ID.String() {
		t.Errorf("an object in memory and on disk: got the replicas %+v, want both, and the path with the object's id",
			list.Replicas)
	}
	c.scan()
	c.pass(time.Minute)
	c.commit()
	if n := c.evict(eviction.Bounds{Objects: 10}); n != 1 {
		t.Errorf("got %d objects evicted from memory, want 1", n)
	}
	if list, err := c.get("k"); err != nil || len(list.Replicas) != 1 || list.Replicas[0].Kind != metadata.Disk {
		t.Errorf("an object on disk was evicted from memory: got %+v, %v, want its disk replica", list, err)
	}
	c.put("l", disk)
	ref.Key = "l"
	if err := c.revokeAs(ref); err != nil {
		t.Errorf("revoking only the disk replica of a put: got %v, want no error", err)
	}
	if list, _ := c.get("l"); len(list.Replicas) != 1 {
		t.Errorf("the disk replica was revoked: got %+v, want the one in memory", list.Replicas)
	}
	c.unmount(id)
	if !c.exists("k") || c.exists("l") {
		t.Errorf("the segment was unmounted: got that the object on disk exists: %v, and the other: %v; want only the one on disk",
			c.exists("k"), c.exists("l"))
	}
}

func TestClear(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.mount(2, "b", 1<<20)
	c.put("k", func(p *metadata.Put) { p.Replicas = 2 })
	clear := func(key string, owner byte, name string) bool {
		cl, wait := c.primary.PrepareClear("default", key, client(owner), name, c.now)
		switch {
		case wait != nil:
			t.Fatalf("clearing %s: got that the key is busy, want not", key)
		case cl.Partial != nil:
			c.must(c.commit(cl.Partial))
		case cl.Removal != nil:
			c.must(c.commit(deleteevents.Of(deleteevents.Remove, cl.Removal)))
		}
		return cl != (metadata.Drop{})
	}
	if clear("k", 2, "a") || clear("none", 1, "a") || clear("k", 1, "nowhere") {
		t.Error("got replicas cleared of others than the objects named, want them kept")
	}
	if !clear("k", 1, "a") {
		t.Error("got the replica on the named segment kept, want it cleared")
	}
	if list, _ := c.get("k"); len(list.Replicas) != 1 || list.Replicas[0].Segment != "b" {
		t.Errorf("the replica on a was cleared: got %+v, want the one on b", list.Replicas)
	}
	if clear("k", 1, "b") {
		t.Error("got a leased object cleared, want it kept (L)")
	}
	c.pass(time.Minute)
	if !clear("k", 1, "b") || c.exists("k") {
		t.Errorf("clearing the last replica: got that the object exists: %v, want it removed", c.exists("k"))
	}
	c.put("m")
	if !clear("m", 1, "") || c.exists("m") {
		t.Errorf("clearing all replicas: got that the object exists: %v, want it removed", c.exists("m"))
	}
}

// A writer whose put was given up and its successor write different files.
func TestDiskReplicasOfTwoPuts(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	files := map[string]bool{}
	for range 2 {
		c.must([]error{c.putStart("k", func(p *metadata.Put) { p.DiskPath = "/files/k" })})
		o, err := c.primary.Inspect(metadata.DefaultTenant, "k")
		if err != nil {
			t.Fatal(err)
		}
		files[o.Replicas[1].Path] = true
		c.pass(params.DiscardTimeout + time.Second)
	}
	if len(files) != 2 {
		t.Errorf("two puts of a key: got the files %v, want one file for each put", files)
	}
}
