package metadata_test

import (
	"slices"
	"testing"

	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// Primary and follower keep the names of segments that are gone, for readers of events. The
// oldest names are dropped to make room.
func TestNamesOfSegmentsThatAreGone(t *testing.T) {
	const most = 4096
	c := newCluster(t)
	id := c.mount(1, "a", 1<<10)
	number, _ := c.primary.FindSegment(id)
	want := []metadata.SegmentName{{Number: number, ID: id, Name: "a"}}
	named := func(when string, want []metadata.SegmentName) {
		t.Helper()
		for name, s := range map[string]*metadata.Store{"primary": c.primary, "follower": c.follower} {
			if got := s.SegmentNames([]segment.Number{number, 1 << 31}); !slices.Equal(got, want) {
				t.Errorf("%s, %s: got %v, want %v", when, name, got, want)
			}
		}
	}
	named("while it is mounted", want)
	c.unmount(id)
	named("when it is gone", want)
	for range most - 1 {
		c.unmount(c.mount(2, "b", 1<<10))
	}
	named("as the oldest one", want)
	c.unmount(c.mount(2, "b", 1<<10))
	named("when it is forgotten", nil)
}
