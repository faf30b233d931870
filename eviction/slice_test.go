package eviction_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
)

// A counted journal notes how many objects each cutoff evicted. Its commits take a time.
type counted struct {
	leasesync.Journal
	p    *lonetest.Primary
	took time.Duration
	each []int64
}

func (c *counted) Submit(ctx context.Context, changes ...metadata.Change) ([]error, error) {
	before := c.p.Store.Stats().Evicted
	answers, err := c.Journal.Submit(ctx, changes...)
	c.p.Idle(c.took)
	c.each = append(c.each, c.p.Store.Stats().Evicted-before)
	return answers, err
}

// A cutoff takes few objects, as all wait for it. While commits are slow it takes more, so that
// evictions keep their pace, but no more than make it slow itself.
func TestACutoffTakesFewObjects(t *testing.T) {
	for _, tc := range []struct {
		commit  time.Duration
		largest int64
	}{{0, 512}, {time.Millisecond, 512}, {6 * time.Millisecond, 1200}, {time.Second, 2048}} {
		p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
		p.Put(nil, lonetest.Keys("k", 6000)...)
		p.Pass(time.Minute)
		l := loop(p, eviction.Expiry{})
		c := &counted{Journal: p.Queue, p: p, took: tc.commit}
		l.Journal = c
		if n := round(t, l); n != 6000 {
			t.Fatalf("commits of %v: got %d evicted, want 6,000", tc.commit, n)
		}
		if first, largest := c.each[0], slices.Max(c.each); first != 512 || largest != tc.largest {
			t.Errorf("commits of %v: cutoffs took %d objects, want 512 at first and %d at most", tc.commit, c.each, tc.largest)
		}
	}
}

// A fixed policy plans the same each time.
type fixed eviction.Plan

func (f fixed) Plan(metadata.Stats, bool) eviction.Plan { return eviction.Plan(f) }

// Soft-pinned objects stay while there are others to evict, however many objects that were read
// again stand before those.
func TestManyNearMissesKeepSoftPins(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<24)
	put := func(with func(*metadata.Put), name string, n int) []string {
		keys := lonetest.Keys(name, n)
		for part := range slices.Chunk(keys, 500) {
			p.Put(with, part...)
		}
		p.Idle(time.Millisecond)
		return keys
	}
	soft := put(softPin, "s", 1000)
	again := put(nil, "r", 6000)
	idle := put(nil, "i", 4000)
	p.Pass(time.Second)
	p.Get(again...)
	p.Pass(time.Minute)
	p.Get(again...) // and not journaled yet
	if n := round(t, loop(p, fixed{Target: 800, Least: 500})); n != 800 {
		t.Errorf("got %d evicted, want 800", n)
	}
	if s, r, i := p.Alive(soft...), p.Alive(again...), p.Alive(idle...); s != 1000 || r != 6000 || i != 3200 {
		t.Errorf("left: got %d soft-pinned, %d read again and %d idle, want 1,000, 6,000 and 3,200", s, r, i)
	}
}
