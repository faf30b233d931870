package service_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// A removal of many that fails half-way must not look like one that changed
// nothing: repeated, it would hit what was put in between.
func TestRemovalThatFailsHalfWay(t *testing.T) {
	const objects = deleteevents.MaxRemovals + 500
	var f *fixture
	f = newFixture(t, func(c *service.Master) {
		c.Now = func() metadata.Time {
			if f.p.Store.Stats().Objects == objects-deleteevents.MaxRemovals {
				f.p.Queue.Close(errs.Unavailable) // the first event is committed; no other will be
			}
			return f.p.Now()
		}
	})
	items, refs := make([]service.PutItem, objects), make([]service.UpdateItem, objects)
	for i := range items {
		key := fmt.Sprint("k", i)
		items[i], refs[i] = service.PutItem{Key: key, Size: 100}, service.UpdateItem{Key: key}
	}
	if _, _, err := f.BatchPutStart(t.Context(), start(1), items); err != nil {
		t.Fatal(err)
	}
	if _, err := f.BatchPutEnd(t.Context(), update(1), refs); err != nil {
		t.Fatal(err)
	}
	n, err := f.RemoveAll(t.Context(), service.RemoveRequest{Tenant: metadata.DefaultTenant})
	want(t, "a removal of which the second event failed", err, errs.Unresolved)
	if left := f.p.Store.Stats().Objects; n.Removed != deleteevents.MaxRemovals || left != int64(objects-n.Removed) {
		t.Errorf("%d were removed, %d are left; want %d of %d removed", n.Removed, left, deleteevents.MaxRemovals, objects)
	}
	_, err = f.RemoveAll(t.Context(), service.RemoveRequest{Tenant: metadata.DefaultTenant})
	want(t, "a removal of which no event was written", err, errs.Unavailable)
}

// A clearing of which a part is still being written is open, also if the rest was
// not tried any more.
func TestClearingThatIsLeftHalfWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects = 5000 // more than are submitted at once
		m := newMounting(t)
		items, refs, keys := make([]service.PutItem, objects), make([]service.UpdateItem, objects), make([]string, objects)
		for i := range items {
			keys[i] = fmt.Sprint("k", i)
			items[i], refs[i] = service.PutItem{Key: keys[i], Size: 100}, service.UpdateItem{Key: keys[i]}
		}
		m.begin(t, func(ctx context.Context) error {
			if _, _, err := m.BatchPutStart(ctx, start(1), items); err != nil {
				return err
			}
			_, err := m.BatchPutEnd(ctx, update(1), refs)
			return err
		})
		<-m.log.begun
		want(t, "the puts", m.finish(1), errs.OK)
		m.leave(t, func(ctx context.Context) error {
			_, err := m.BatchReplicaClear(ctx, metadata.DefaultTenant, keys, owner(1), "")
			return err
		})
		want(t, "what was left", m.finish(0), errs.OK)
	})
}

// While a pattern is matched nothing is held up, and the end of the caller ends
// it.
func TestMatchingHoldsNothingUp(t *testing.T) {
	f := newFixture(t)
	f.put(t, "a", "b", "c", "d")
	ctx, leave := context.WithCancel(t.Context())
	looked := 0
	_, err := f.RemoveMatching(ctx, func(key string) bool {
		if looked++; looked == 1 {
			want(t, "a removal of the key that was matched just now", f.Remove(t.Context(), service.RemoveRequest{Tenant: "default"}, key), errs.OK)
		} else if looked == 3 {
			leave()
		}
		return true
	})
	want(t, "a removal whose caller went", err, errs.Unavailable)
	if n := f.Store.Stats().Objects; looked != 3 || n != 3 {
		t.Errorf("%d keys were looked at, want 3; %d objects are left, want 3", looked, n)
	}
}

// What a put brings counts towards what is submitted at once.
func TestBatchesWithLongGroups(t *testing.T) {
	f := newFixture(t)
	items := make([]service.PutItem, 1000)
	for i := range items {
		items[i] = service.PutItem{Key: fmt.Sprint("k", i), Size: 1, Group: strings.Repeat("g", 1000)}
	}
	_, failed, err := f.BatchPutStart(t.Context(), start(1), items)
	want(t, "the batch", err, errs.OK)
	for i, err := range failed {
		if err != nil {
			t.Fatalf("item %d: got %v, want no error", i, err)
		}
	}
}

// RemoveAll beside an eviction and beside a change of an object waits for both,
// and leaves nothing: what the eviction spares has a copy on an SSD.
func TestRemoveAllLooksAgainAtWhatIsBusy(t *testing.T) {
	synctest.Test(t, removeAllBesideOthers)
}

func removeAllBesideOthers(t *testing.T) {
	f := newFixture(t)
	f.put(t, "x", "y", "busy")
	f.p.Commit(f.p.Store.PrepareMountLocalDisk(owner(1), true))
	disk, _ := f.p.Store.FindLocalDisk(owner(1))
	for _, key := range []string{"x", "y"} {
		o, _ := f.p.Store.Inspect("default", key)
		e, _, err := f.p.Store.PrepareOffloaded(metadata.Offloaded{
			Tenant: "default", Key: key, ID: o.ID, Client: owner(1), Number: disk.Number, Size: 100, Endpoint: "ssd:1",
		})
		if err != nil {
			t.Fatal(err)
		}
		f.p.Commit(e)
	}
	f.p.Pass(time.Minute)
	pass := eviction.Select(f.p.Store, eviction.Bounds{Objects: 2})
	if pass == nil || pass.Victims != 2 {
		t.Fatalf("the pass is %+v, want 2 victims", pass)
	}
	clear, _ := f.p.Store.PrepareClear("default", "busy", owner(1), "", f.p.Now())
	removed := make(chan int, 1)
	go func() {
		n, err := f.RemoveAll(t.Context(), service.RemoveRequest{Force: true})
		if err != nil {
			t.Error(err)
		}
		removed <- n.Removed
	}()
	synctest.Wait() // RemoveAll can do no more
	f.p.Commit(pass.Cutoff)
	clear.Removal.Abort()
	if n := <-removed; n != 3 || f.p.Alive("x", "y", "busy") != 0 {
		t.Errorf("%d removed, %d left; want 3 and none", n, f.p.Alive("x", "y", "busy"))
	}
}
