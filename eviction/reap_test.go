package eviction_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A writer that never finishes its file protects the memory replica from eviction until its put is
// given up, and no longer.
func TestAnUnfinishedFileKeepsMemoryForABoundedTime(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(func(put *metadata.Put) { put.DiskPath = "/shared/a" }, "a")
	p.Pass(params.ReleaseTimeout + time.Second)
	for _, e := range p.Store.PrepareDiscards(p.Now(), 10) {
		p.Commit(e)
	}
	p.Pass(time.Second)
	if n := evict(t, p, eviction.Bounds{Objects: 1}); n != 1 {
		t.Errorf("%d evicted after the release timeout, want the object", n)
	}
}

// Reservations whose segment was unmounted are not discarded repeatedly before they are swept.
func TestNothingIsDiscardedThatIsGone(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Commit(p.PutStart(nil, "a"))
	p.Unmount(segment.ID{1})
	p.Pass(params.ReleaseTimeout + time.Second)
	if list := p.Store.PrepareDiscards(p.Now(), 10); len(list) != 0 {
		t.Errorf("%d reservations are to be discarded, want none: their memory is gone", len(list))
		for _, e := range list {
			e.Abort(p.Store)
		}
	}
}

// A range that is freed behind a cutoff, by the same commit, is free.
func TestRangesAreFreedBehindACutoff(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(nil, "a", "b")
	p.Pass(time.Hour)
	pass := eviction.Select(p.Store, eviction.Bounds{Objects: 1}) // of a
	if pass == nil || pass.Victims != 1 {
		t.Fatalf("got the pass %+v, want one victim", pass)
	}
	p.Commit(pass.Cutoff, p.Remove("b", false))
	if busy := p.Store.Stats().Busy; busy != 0 {
		t.Errorf("got %d bytes busy, want none", busy)
	}
}
