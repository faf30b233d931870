package metadata_test

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// allRanges returns the ranges of a store that does not change meanwhile, of each segment
// in order, and where the store stands.
func allRanges(s *metadata.Store, only segment.ID) (all []metadata.SegmentRanges, at metadata.Position) {
	place := make(map[segment.ID]int)
	for _, seg := range s.Segments() {
		if only == (segment.ID{}) || only == seg.ID {
			place[seg.ID] = len(all)
			all = append(all, metadata.SegmentRanges{Spec: seg.Spec})
		}
	}
	for part, where := range s.Ranges(only) {
		at = where
		for _, list := range part {
			into := &all[place[list.ID]]
			into.Ranges = append(into.Ranges, list.Ranges...)
		}
	}
	for i := range all {
		slices.SortFunc(all[i].Ranges, func(a, b metadata.BusyRange) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	return all, at
}

// checkRanges checks that the ranges of a store are disjoint, in order and inside their segments,
// and that they are exactly what is allocated. It returns how many ranges have each state.
func checkRanges(t *testing.T, s *metadata.Store) map[metadata.RangeState]int {
	t.Helper()
	all, at := allRanges(s, segment.ID{})
	if want := s.Position(); at != want {
		t.Errorf("got the ranges at %+v, want them at the store's position, %+v", at, want)
	}
	segments, counts := s.Segments(), make(map[metadata.RangeState]int)
	if len(all) != len(segments) {
		t.Fatalf("got the ranges of %d segments, want those of all %d", len(all), len(segments))
	}
	for i, seg := range all {
		if seg.Spec != segments[i].Spec {
			t.Errorf("segment %d is %+v, want %+v", i, seg.Spec, segments[i].Spec)
		}
		end, busy, quarantined := uint64(0), uint64(0), uint64(0)
		for _, r := range seg.Ranges {
			if r.Offset < end || r.Length == 0 || r.Offset+r.Length > segments[i].Capacity {
				t.Errorf("A: segment %s of %d bytes: got the range %+v, want it inside, and at or behind %d",
					seg.Name, segments[i].Capacity, r, end)
			}
			end = r.Offset + r.Length
			busy += r.Length
			counts[r.State]++
			if r.State == metadata.RangeQuarantined {
				quarantined += r.Length
			}
			if (r.State == metadata.RangeQuarantined) != (r.Key == "" && r.Tenant == "" && r.ID == 0 && r.Until > at.Time) {
				t.Errorf("segment %s: got the range %+v, want an object's name, or, in quarantine, none and an end after %d",
					seg.Name, r, at.Time)
			}
		}
		if busy != segments[i].Busy || quarantined != segments[i].Quarantined {
			t.Errorf("segment %s: got ranges of %d bytes, %d in quarantine, want %d and %d as the segment counts",
				seg.Name, busy, quarantined, segments[i].Busy, segments[i].Quarantined)
		}
	}
	return counts
}

func TestRangesAreAllThatIsAllocated(t *testing.T) {
	c := newCluster(t)
	rich(c)
	counts := checkRanges(t, c.primary)
	if counts[metadata.RangeLive] == 0 || counts[metadata.RangeReserved] == 0 || counts[metadata.RangeQuarantined] == 0 {
		t.Errorf("got the numbers of ranges %v, want some live, reserved and in quarantine", counts)
	}
	checkRanges(t, c.follower)
	own, _ := allRanges(c.primary, segment.ID{})
	other, _ := allRanges(c.follower, segment.ID{})
	if !reflect.DeepEqual(own, other) {
		t.Errorf("S: the follower's ranges: got %+v, want the primary's, %+v", other, own)
	}

	one := own[0].ID
	if list, _ := allRanges(c.primary, one); len(list) != 1 || !reflect.DeepEqual(list[0], own[0]) {
		t.Errorf("the ranges of one segment: got %d segments, want that one", len(list))
	}
	if list, _ := allRanges(c.primary, segment.ID{99}); len(list) != 0 {
		t.Errorf("the ranges of an unknown segment: got %d segments, want none", len(list))
	}
}

// A replica is live as of its PutEnd, and its segment is gone as of the unmount, even before the
// sweep.
func TestRangesFollowTheState(t *testing.T) {
	c := newCluster(t)
	a := c.mount(1, "a", 1<<20)
	c.mount(2, "b", 1<<20)
	two := func(p *metadata.Put) { p.Replicas = 2 }
	if err := c.putStart("k", two); err != nil {
		t.Fatal(err)
	}
	expect := func(what string, live, reserved, quarantined int) {
		t.Helper()
		want := map[metadata.RangeState]int{metadata.RangeLive: live, metadata.RangeReserved: reserved, metadata.RangeQuarantined: quarantined}
		got := checkRanges(t, c.primary)
		for state, n := range want {
			if got[state] != n {
				t.Errorf("%s: %d ranges of state %d, want %d", what, got[state], state, n)
			}
		}
	}
	expect("a put in progress", 0, 2, 0)
	c.must([]error{c.putEnd("k")})
	expect("a whole object", 2, 0, 0)
	c.unmount(a)
	expect("one segment less", 1, 0, 0)
	if _, err := c.get("k"); err != nil {
		t.Fatal(err)
	}
	c.must([]error{c.remove("k", true)})
	expect("removed while leased", 0, 0, 1)
	c.pass(time.Minute)
	c.commit()
	expect("a minute later", 0, 0, 0)
}

// However many objects there are, only the ranges of a part of them are copied at a time, and no
// commit waits while a caller iterates over them.
func TestRangesHoldUpNoCommit(t *testing.T) {
	const objects = 1 << 14
	c := newCluster(t)
	c.mount(1, "a", 1<<30)
	names := make([]string, objects)
	for i := range names {
		names[i] = fmt.Sprintf("key/%06d", i)
		c.put(names[i])
	}
	parts, ranges, most := 0, 0, 0
	for part := range c.primary.Ranges(segment.ID{}) {
		parts++
		if !c.primary.Idle() {
			t.Fatal("got commits that wait while a caller goes through the ranges, want none to wait")
		}
		for _, list := range part {
			ranges += len(list.Ranges)
			most = max(most, len(list.Ranges))
		}
	}
	if ranges != objects || most > objects/16 {
		t.Errorf("%d ranges in %d parts, of %d at most; want %d, of %d at most", ranges, parts, most, objects, objects/16)
	}
}
