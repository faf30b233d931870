package metadata_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A mounter applies commits to a single store. Segment i belongs to client i%4, has the host
// name i/2, and an address of its own.
type mounter struct {
	*metadata.Store
	tb   testing.TB
	seq  metadata.Seq
	last int // segment
}

// newMounter returns a store with n segments.
func newMounter(tb testing.TB, n int) *mounter {
	tb.Helper()
	m := &mounter{Store: metadata.New(metadata.Options{}), tb: tb}
	m.commit(&metadata.TermStart{Term: 1, Params: params}, &metadata.UseRules{Version: metadata.NewestRules})
	for m.last < n {
		changes := make([]metadata.Change, min(n-m.last, 1024))
		for i := range changes {
			changes[i] = m.next()
		}
		m.commit(changes...)
	}
	return m
}

func (m *mounter) commit(changes ...metadata.Change) {
	m.tb.Helper()
	m.seq++
	if _, err := m.Apply(&metadata.Commit{Seq: m.seq, Term: 1, Time: metadata.Time(m.seq), Changes: changes}, nil); err != nil {
		m.tb.Fatal(err)
	}
}

// next mounts the next segment.
func (m *mounter) next(replaces ...segment.Number) *metadata.Mount {
	m.last++
	return &metadata.Mount{Replaces: replaces, Spec: segment.Spec{
		ID: segment.ID{byte(m.last >> 16), byte(m.last >> 8), byte(m.last)}, Name: fmt.Sprintf("host-%06d", m.last/2), Base: 1 << 40, Size: 1 << 20,
		Endpoint: fmt.Sprintf("host-%06d:%d", m.last/2, m.last%2+1), Client: client(byte(m.last % 4)), HostID: "h",
	}}
}

// listings are what calls do that list segments, up to the first one.
func (m *mounter) listings() map[string]func(each func(metadata.SegmentStats)) {
	return map[string]func(func(metadata.SegmentStats)){
		"all": func(each func(metadata.SegmentStats)) {
			for s := range m.EachSegment() {
				each(s)
				return
			}
		},
		"of a name": func(each func(metadata.SegmentStats)) {
			for s := range m.SegmentsNamed("host-000007") {
				each(s)
				return
			}
		},
		"of a client": func(each func(metadata.SegmentStats)) {
			for s := range m.SegmentsOwnedBy(client(1)) {
				each(s)
				return
			}
		},
	}
}

// However many segments there are, a listing does not copy their figures, and does not delay
// commits while a caller iterates over it.
func TestListingsHoldUpNoCommit(t *testing.T) {
	const segments = uint64(1 << 14)
	m := newMounter(t, int(segments))
	for what, list := range m.listings() {
		seen := 0
		bytes := allocated(func() {
			list(func(metadata.SegmentStats) {
				seen++
				if !m.Idle() {
					t.Errorf("%s: got commits that wait while a caller lists, want none to wait", what)
				}
			})
		})
		if most := 8 * segments; seen != 1 || bytes > most {
			t.Errorf("%s: %d bytes for %d segments, want at most %d for one", what, bytes, seen, most)
		}
	}
	bytes := allocated(func() {
		if status, ok := m.StatusOfNamed("host-000007"); status != metadata.SegmentOK || !ok {
			t.Errorf("a name: got %v, %t; want OK", status, ok)
		}
		if status, ok := m.StatusOf(segment.ID{0, 0, 7}); status != metadata.SegmentOK || !ok {
			t.Errorf("a segment: got %v, %t; want OK", status, ok)
		}
		if !m.HasSegmentNamed("host-000007") || m.HasSegmentNamed("no host") {
			t.Errorf("HasSegmentNamed: got %t for a mounted name and %t for another, want true and false",
				m.HasSegmentNamed("host-000007"), m.HasSegmentNamed("no host"))
		}
	})
	if bytes > 16<<10 {
		t.Errorf("%d bytes for the status of two segments, want none that count", bytes)
	}
}

// While listings run all the time, a commit that mounts a segment copies little of the list.
func TestCommitsBesideListings(t *testing.T) {
	const rounds = 200
	m := newMounter(t, 1<<14)
	mounts := func(before func()) uint64 {
		return allocated(func() {
			for range rounds {
				before()
				m.commit(m.next())
			}
		}) / rounds
	}
	alone := mounts(func() {})
	beside := mounts(func() {
		for _, list := range m.listings() {
			list(func(metadata.SegmentStats) {})
		}
	})
	// Of that, listings take a copy of 4,096 pointers for a client.
	if most := alone + 8*(1<<14)/4 + 16<<10; beside > most {
		t.Errorf("a mount takes %d bytes beside listings, %d without; want at most %d", beside, alone, most)
	}
}

// A listing shows the state after one commit. A caller that iterates over it while others are
// applied misses no segment that was replaced since, and sees none twice.
func TestListingsAreOfOneCommit(t *testing.T) {
	m := newMounter(t, 100)
	var want, got []segment.Number
	for s := range m.EachSegment() {
		want = append(want, s.Number)
	}
	for s := range m.EachSegment() {
		if got = append(got, s.Number); len(got) == 1 {
			for _, number := range want {
				m.commit(m.next(number))
			}
		}
	}
	if len(want) != 100 || !slices.Equal(got, want) || !slices.IsSorted(got) {
		t.Errorf("got %v, want %v", got, want)
	}
	if list := m.Segments(); len(list) != 100 || list[0].Number <= want[99] {
		t.Errorf("after it: %d segments, the first one is %d; want 100 others", len(list), list[0].Number)
	}
}

// Listings may run beside commits, and beside each other.
func TestListingsBesideCommits(t *testing.T) {
	m := newMounter(t, 64)
	var listing sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		listing.Go(func() {
			for {
				names := make(map[string]int)
				for s := range m.EachSegment() {
					names[s.Name]++
				}
				n := 0
				for _, list := range m.listings() {
					list(func(metadata.SegmentStats) {})
				}
				for _, k := range names {
					n += k
				}
				if n != 64 {
					t.Errorf("%d segments are listed, want 64", n)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range 2000 {
		m.commit(m.next(segment.Number(i + 1)))
	}
	close(done)
	listing.Wait()
}

// Lists are in the order of mounts also on a node that has loaded a snapshot, in which segments
// have no order.
func TestOrderOfLoadedSegments(t *testing.T) {
	c := newCluster(t)
	for n := range byte(40) {
		c.mountOf(1, n+1, fmt.Sprintf("host-%d", n), 1<<20)
	}
	loaded, err := c.load(c.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	numbers := func(s *metadata.Store) (list []segment.Number) {
		for p := range s.SegmentsOwnedBy(client(1)) {
			list = append(list, p.Number)
		}
		return list
	}
	if got, want := numbers(loaded), numbers(c.primary); len(want) != 40 || !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// BenchmarkListings measures calls about segments, of which there are n.
func BenchmarkListings(b *testing.B) {
	for _, n := range []int{1 << 12, 1 << 16} {
		m := newMounter(b, n)
		b.Run(fmt.Sprintf("segments=%d/all", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Segments()
			}
		})
		b.Run(fmt.Sprintf("segments=%d/figures", n), func(b *testing.B) {
			for b.Loop() {
				m.Stats()
			}
		})
		b.Run(fmt.Sprintf("segments=%d/commit", n), func(b *testing.B) { benchmarkCommitBesideListings(b, m) })
	}
}

// benchmarkCommitBesideListings measures an empty commit while eight others list.
func benchmarkCommitBesideListings(b *testing.B, m *mounter) {
	var listing sync.WaitGroup
	done := make(chan struct{})
	defer func() { close(done); listing.Wait() }()
	for range 8 {
		listing.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					m.Segments()
				}
			}
		})
	}
	for b.Loop() {
		m.seq++
		if _, err := m.Apply(&metadata.Commit{Seq: m.seq, Term: 1, Time: metadata.Time(m.seq), Changes: []metadata.Change{&metadata.UseRules{Version: metadata.NewestRules}}}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
