package metadata_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

func TestDemotionDropsWhatIsNotState(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("k")
	c.read("k")
	if err := c.putStart("open"); err != nil {
		t.Fatal(err)
	}
	queued, err := c.preparePut("queued")
	if err != nil {
		t.Fatal(err)
	}
	busy := c.primary.Stats().Busy
	queued.Abort(c.primary)
	c.primary.DropOverlay()
	if o, _ := c.primary.Inspect("default", "k"); o.LeaseEnds != c.now {
		t.Errorf("a lease that was not journaled, after a demotion: got its end at %d, want it at %d, now", o.LeaseEnds, c.now)
	}
	if n := c.primary.LeaseCounts().Marked; n != 0 {
		t.Errorf("after a demotion: got %d marks, want none", n)
	}
	if got := c.primary.Stats().Busy; got != busy-104 {
		t.Errorf("%d bytes busy, want %d: the ranges of a queued put stay taken", got, busy-104)
	}
	_, err = c.preparePut("late")
	wantKind(t, "a put on a demoted node", err, errs.Unavailable)
}

func TestTermRunsOutOfIDs(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	a, err := c.preparePut("a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.preparePut("b")
	if err != nil || b.ID <= a.ID || a.ID.Term() != 1 {
		t.Errorf("got the ids %v and %v, %v; want the second one larger, both of term 1", a.ID, b.ID, err)
	}
	a.Abort(c.primary)
	b.Abort(c.primary)
}

// A mutation waits for the one before it; whoever waits is told the outcome.
func TestOneMutationOfAKeyAtATime(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	first, err := c.preparePut("k")
	if err != nil {
		t.Fatal(err)
	}
	put := &metadata.Put{Tenant: "default", Key: "k", Client: client(2), Size: 1, Replicas: 1}
	_, _, wait, err := c.primary.PreparePutStart(put, c.now)
	if wait == nil || err != nil {
		t.Fatalf("a second put of a key whose first is queued: got %v at once, want to wait for the outcome", err)
	}
	if _, w, _ := deleteevents.Prepare(c.primary, deleteevents.Request{Tenant: "default", Key: "k"}, c.now); w == nil {
		t.Error("a removal of a key whose put is queued: got its outcome at once, want to wait for that of the put")
	}
	_, err = c.get("k") // committed state: no such object
	wantKind(t, "get of a key whose first put is queued", err, errs.ObjectNotFound)
	select {
	case <-wait:
		t.Fatal("before the first put has an outcome: got that the waiter goes on, want it to wait")
	default:
	}
	c.must(c.commit(first))
	select {
	case <-wait:
	default:
		t.Error("the first put has an outcome: got a waiter that still waits, want it to go on")
	}
	end, _, err := c.primary.PreparePutEnd(c.putRef("k"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, wait, _ := leases(c.primary).GetReplicaList("default", "k", c.now); wait == nil {
		t.Error("V: a read while the end of the put is queued: got its outcome at once, want to wait")
	}
	end.Abort(c.primary)
	_, err = c.get("k")
	wantKind(t, "after the end was taken back", err, errs.ReplicaNotReady)
}

func TestQuarantineThatLeavesSoon(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("leased")
	c.read("leased")
	c.must([]error{c.remove("leased", true), c.putStart("open"), c.revokeAs(c.putRef("open"))})
	st := c.primary.Stats()
	if st.Quarantined != 208 || st.LeavingSoon != 104 {
		t.Errorf("quarantined %d, of them %d leave within the lease TTL; want 208 and 104", st.Quarantined, st.LeavingSoon)
	}
	c.pass(params.ReleaseTimeout - 5*time.Second)
	c.commit()
	if st := c.primary.Stats(); st.Quarantined != 104 || st.LeavingSoon != 104 {
		t.Errorf("5s before the release time: got %d bytes in quarantine and %d leaving soon, want 104 and 104",
			st.Quarantined, st.LeavingSoon)
	}
	c.pass(6 * time.Second)
	c.commit()
	if st := c.primary.Stats(); st.Quarantined+st.LeavingSoon+st.Busy != 0 {
		t.Errorf("after the release time: got %+v, want nothing in quarantine or busy", st)
	}
}

// The old primary may have granted leases in its last second that are not in the journal. So
// memory that is freed in a term's first lease TTL goes into quarantine [model].
func TestModelFirstTTLOfATerm(t *testing.T) {
	for name, tc := range map[string]struct {
		guard time.Duration
		want  errs.Kind
	}{
		"after a failure":  {params.HoldTime(), errs.NoAvailableHandle},
		"after a handover": {0, errs.OK},
	} {
		c := newCluster(t)
		c.mount(1, "a", 104)
		c.put("k")
		c.read("k") // not journaled
		c.takeOver(tc.guard)
		if err := c.remove("k", false); err != nil {
			t.Fatal(err)
		}
		wantKind(t, name, c.putStart("next"), tc.want)
		c.pass(params.HoldTime())
		c.commit()
		if tc.want != errs.OK {
			wantKind(t, name+", one lease later", c.putStart("next"), errs.OK)
		}
	}
}

func TestTermThatStartsEmpty(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<10)
	old := c.primary.Position()
	for name, s := range map[string]*metadata.Store{"primary": c.primary} {
		empty := &metadata.TermStart{Term: 2, Params: params, Empty: true}
		if _, err := s.Apply(&metadata.Commit{Seq: old.Seq + 1, Term: 2, Time: c.now, Changes: []metadata.Change{empty}}, nil); err == nil {
			t.Errorf("%s: a term that starts empty, on a store with state: got no error, want it refused", name)
		}
	}
	c.primary, c.follower = metadata.New(metadata.Options{}), metadata.New(metadata.Options{})
	for _, s := range []*metadata.Store{c.primary, c.follower} {
		if err := s.StartAt(old.Seq, old.Time); err != nil || s.Time() != old.Time {
			t.Fatalf("moving an empty store: got it at %d, %v, want it at %d", s.Time(), err, old.Time)
		}
	}
	c.term = 2
	c.primary.StartIDs(2)
	c.must(c.commit(&metadata.TermStart{Term: 2, Params: params, Guard: params.HoldTime(), Empty: true}))
	c.mount(1, "a", 1<<10)
	wantKind(t, "remounted memory may still be leased", c.putStart("k"), errs.NoAvailableHandle)
	c.pass(params.HoldTime())
	c.commit()
	if err := c.putStart("k"); err != nil {
		t.Errorf("a put into remounted memory, after one lease: got %v, want no error", err)
	}
	if err := c.primary.StartAt(5, 5); err == nil {
		t.Error("moving a store with state: got no error, want it refused")
	}
}

func TestApplyRefuses(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<10)
	c.put("k")
	at := c.primary.Position()
	put := &metadata.PutStart{Tenant: "default", Key: "new", ID: metadata.NewObjectID(1, 99), Size: 100, Placements: []metadata.Placement{
		{Segment: 1, Range: segment.Range{Offset: 0, Length: 104}},
	}}
	taken := *put
	taken.Key, taken.Placements = "k", []metadata.Placement{{Segment: 1, Range: segment.Range{Offset: 512, Length: 104}}}
	for name, commit := range map[string]metadata.Commit{
		"a gap":             {Seq: at.Seq + 2, Term: 1, Time: at.Time},
		"a repeated commit": {Seq: at.Seq, Term: 1, Time: at.Time},
		"time going back":   {Seq: at.Seq + 1, Term: 1, Time: at.Time - 1},
		"busy memory":       {Seq: at.Seq + 1, Term: 1, Time: at.Time, Changes: []metadata.Change{put}},
		"a taken key":       {Seq: at.Seq + 1, Term: 1, Time: at.Time, Changes: []metadata.Change{&taken}},
		"another term": {Seq: at.Seq + 1, Term: 1, Time: at.Time, Changes: []metadata.Change{
			&metadata.TermStart{Term: 7, Params: params},
		}},
	} {
		s := c.replay()
		if _, err := s.Apply(&commit, nil); err == nil {
			t.Errorf("%s: got it applied, want it refused", name)
		}
	}
}
