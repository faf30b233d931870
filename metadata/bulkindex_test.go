package metadata_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/metadata"
)

// putMany puts n objects with one commit for their starts, and one for their ends.
func (c *cluster) putMany(prefix string, n int, options ...func(*metadata.Put)) {
	c.t.Helper()
	var starts, ends []metadata.Change
	for _, key := range keys(prefix, n) {
		e, err := c.preparePut(key, options...)
		if err != nil {
			c.t.Fatalf("preparing a put of %s: got %v, want no error", key, err)
		}
		starts = append(starts, e)
	}
	c.must(c.commit(starts...))
	p := metadata.Put{Tenant: metadata.DefaultTenant}
	for _, change := range options {
		change(&p)
	}
	for _, key := range keys(prefix, n) {
		ref := c.putRef(key)
		ref.Tenant = p.Tenant
		e, _, err := c.primary.PreparePutEnd(ref, nil)
		if err != nil {
			c.t.Fatalf("preparing the end of the put of %s: got %v, want no error", key, err)
		}
		ends = append(ends, e)
	}
	c.must(c.commit(ends...))
}

// The indexes of a loaded store are as if its objects had been put one by one: where many have
// one time, or one span of the index, and far from the time of the snapshot.
func TestIndexesOfALoadedStore(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<30)
	small := func(p *metadata.Put) { p.Size = 64 }
	other := func(p *metadata.Put) { p.Size, p.Tenant = 64, "other" }
	c.putMany("old", 10, small)
	c.pass(60 * 24 * time.Hour)
	c.putMany("at once", 5000, small)
	c.putMany("at once, too", 1500, other)
	for i := range 30 {
		c.pass(time.Millisecond)
		c.putMany(fmt.Sprint("dense", i, "-"), 300, small)
		c.putMany(fmt.Sprint("not dense", i, "-"), 50, other)
	}
	c.putMany("pinned", 3000, small, softPin)
	for _, key := range keys("open", 10) {
		c.must([]error{c.putStart(key, small)})
	}
	s := reload(t, c.primary) // looks at the indexes
	c.follower = s
	c.pass(time.Minute)
	c.commit()
	for c.evict(eviction.Bounds{Objects: 4000, IncludePinned: true}) > 0 {
		c.pass(time.Second)
	}
	if got, want := s.Stats().Evictable, c.primary.Stats().Evictable; got != want || want != 10 {
		t.Errorf("%d objects are left, %d on the primary, want the 10 that are being put", got, want)
	}
}

// A cutoff behind the parts of a snapshot evicts what they brought.
func TestCutoffBehindTheShards(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.putMany("k", 100)
	c.pass(time.Minute)
	c.commit()
	var parts [][]byte
	for i := range metadata.SnapshotParts {
		if i == metadata.SnapshotParts-1 {
			if n := c.evict(eviction.Bounds{Objects: 50}); n != 50 {
				t.Errorf("got %d objects evicted before the last part, want 50", n)
			}
		}
		part, _ := c.primary.AppendSnapshotPart(nil, i)
		parts = append(parts, part)
	}
	s, err := c.load(parts)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Position(), c.primary.Position(); got != want || s.Stats().Evictable != 50 {
		t.Errorf("loaded %+v with %d objects, want %+v with 50", got, s.Stats().Evictable, want)
	}
}

// Long lists are sorted, however their numbers are spread.
func TestSortSpread(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, number := range map[string]func(i int) uint64{
		"even":      func(int) uint64 { return random.Uint64() },
		"narrow":    func(int) uint64 { return 1<<63 + random.Uint64N(3000) },
		"one":       func(int) uint64 { return 7 },
		"in order":  func(i int) uint64 { return uint64(i) << 31 },
		"backwards": func(i int) uint64 { return math.MaxUint64 - uint64(i) },
		"lopsided":  func(i int) uint64 { return uint64(1) << 63 >> (i % 64) },
	} {
		list := make([]uint64, 50_000)
		for i := range list {
			list[i] = number(i)
		}
		want := slices.Sorted(slices.Values(list))
		if metadata.SortSpread(list); !slices.Equal(list, want) {
			t.Errorf("%s: got the numbers in no order, or others; want them sorted", name)
		}
	}
}
