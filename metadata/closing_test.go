package metadata_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// everywhere returns the stores that must agree: the primary, the standby, and one that has
// loaded a snapshot.
func (c *cluster) everywhere() map[string]*metadata.Store {
	c.t.Helper()
	loaded, err := c.load(c.snapshot())
	if err != nil {
		c.t.Fatalf("loading a snapshot: got %v, want no error", err)
	}
	return map[string]*metadata.Store{"the primary": c.primary, "a standby": c.follower, "a snapshot": loaded}
}

// A closed segment takes no new objects and keeps the old ones until its grace period ends,
// whichever node is the primary.
func TestClosedSegments(t *testing.T) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<20)
	c.put("old")
	end := c.now.Add(time.Minute)
	e, err := c.primary.PrepareClose(client(1), id, end)
	if err != nil {
		t.Fatal(err)
	}
	c.must(c.commit(e))
	if again, err := c.primary.PrepareClose(client(1), id, end); again != nil || err != nil {
		t.Errorf("closing it again: got %+v, %v; want nothing to do", again, err)
	}
	for what, s := range c.everywhere() {
		if list := s.Segments(); len(list) != 1 || list[0].Status() != metadata.SegmentClosed {
			t.Errorf("%s: got segments %+v, want one that is closed", what, list)
		}
		if st := s.Stats(); st.Capacity != 0 || st.Busy != 0 || st.Closed != 1<<20 {
			t.Errorf("%s: got %d of %d bytes taken, and %d closed; want 0, 0 and 1 MiB", what, st.Busy, st.Capacity, st.Closed)
		}
		put := &metadata.Put{Tenant: "default", Key: "new", Client: client(1), Size: 10, Replicas: 1}
		s.StartIDs(9)
		_, _, _, err := s.PreparePutStart(put, c.now)
		wantKind(t, what+": a put into a closed segment", err, errs.NoAvailableHandle)
		if early, due := s.SegmentsToUnmount(end-1), s.SegmentsToUnmount(end); len(early) != 0 || len(due) != 1 {
			t.Errorf("%s: got %v to unmount before the end, %v at it; want none and one", what, early, due)
		}
	}
	if !c.exists("old") {
		t.Error("an object in a closed segment is gone, want it readable")
	}
	_, err = c.primary.PrepareClose(client(2), id, end)
	wantKind(t, "a client without segments", err, errs.SegmentNotFound)
	c.mount(2, "b", 1<<20)
	_, err = c.primary.PrepareClose(client(2), id, end)
	wantKind(t, "another client's segment", err, errs.InvalidParams)
	c.put("new")
	c.unmount(id)
	wantKind(t, "closing what is gone", c.commit(&metadata.CloseSegment{Number: 1, Until: 1})[0], errs.SegmentNotFound)
}

// The owner of an SSD is asked once to delete its files; then its copies are gone.
func TestWipedDisks(t *testing.T) {
	c := newCluster(t)
	if e := c.primary.PrepareWipe(""); e != nil {
		t.Errorf("without an SSD: got %+v, want nothing to do", e)
	}
	c.mount(1, "a", 1<<20)
	c.mountDisk(1, true)
	c.put("k")
	if err := c.copyTo(1, "k"); err != nil {
		t.Fatal(err)
	}
	if e := c.primary.PrepareWipe("other"); e != nil {
		t.Errorf("beside objects of another tenant: got %+v, want nothing to do", e)
	}
	c.must(c.commit(c.primary.PrepareWipe("default")))
	var number segment.Number
	for what, s := range c.everywhere() {
		disk, ok := s.FindLocalDisk(client(1))
		if number = disk.Number; !ok || !disk.Wipe || !disk.Offloading {
			t.Errorf("%s: got %+v, want an SSD to wipe that takes objects", what, disk)
		}
	}
	c.must(c.commit(&metadata.WipeDisks{Number: number}))
	for what, s := range c.everywhere() {
		disk, ok := s.FindLocalDisk(client(1))
		if !ok || disk.Wipe || disk.Number == number || !disk.Offloading {
			t.Errorf("%s: got %+v, want the SSD mounted anew", what, disk)
		}
	}
	if list := c.replicas("k"); len(list) != 1 {
		t.Errorf("got replicas %v, want the one in memory", list)
	}
	wantKind(t, "wiping it twice", c.commit(&metadata.WipeDisks{Number: number})[0], errs.SegmentNotFound)
}

// Closed segments and marks on SSDs need their rules, since older nodes do not know them.
func TestClosingNeedsItsRules(t *testing.T) {
	c := &cluster{t: t, primary: metadata.New(metadata.Options{}), follower: metadata.New(metadata.Options{}), now: 1000, term: 1}
	c.must(c.commit(&metadata.TermStart{Term: 1, Params: params}, &metadata.UseRules{Version: 3}))
	id := c.mount(1, "a", 1<<20)
	c.mountDisk(1, true)
	_, err := c.primary.PrepareClose(client(1), id, 1)
	wantKind(t, "closing a segment", err, errs.Unavailable)
	if e := c.primary.PrepareWipe(""); e != nil {
		t.Errorf("got %+v, want nothing to do", e)
	}
}

// A clear within the margin for clock rates frees the memory when the margin has passed.
func TestClearWithinTheMargin(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 104)
	c.mount(2, "b", 104)
	c.put("k", func(p *metadata.Put) { p.Replicas = 2 })
	c.read("k")
	c.pass(params.LeaseTTL)
	drop, _ := c.primary.PrepareClear("default", "k", client(1), "a", c.now)
	if drop.Partial == nil {
		t.Fatalf("got %+v, want a partial clear", drop)
	}
	c.must(c.commit(drop.Partial))
	wantKind(t, "a put within the margin", c.putStart("next"), errs.NoAvailableHandle)
	c.pass(params.HoldTime() - params.LeaseTTL)
	c.commit()
	if err := c.putStart("next"); err != nil {
		t.Errorf("a put after the margin: got %v, want no error", err)
	}
}
