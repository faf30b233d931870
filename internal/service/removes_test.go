package service_test

import (
	"fmt"
	"testing"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// A removal of many that fails half-way must not look like one that changed
// nothing: repeated, it would hit what was put in between.
func TestRemovalThatFailsHalfWay(t *testing.T) {
	const objects = deleteevents.MaxRemovals + 500
	var f *fixture
	f = newFixture(t, func(c *service.Config) {
		c.Now = func() metadata.Time {
			if f.p.Store.Stats().Objects == objects-deleteevents.MaxRemovals {
				f.p.Queue.Close(errs.Unavailable) // the first event is committed; no other will be
			}
			return f.p.Now()
		}
	})
	items, refs := make([]service.PutItem, objects), make([]service.PutRef, objects)
	for i := range items {
		key := fmt.Sprint("k", i)
		items[i], refs[i] = service.PutItem{Key: key, Size: 100}, service.PutRef{Key: key}
	}
	if _, _, err := f.BatchPutStart(t.Context(), start(1), items); err != nil {
		t.Fatal(err)
	}
	if _, err := f.BatchPutEnd(t.Context(), update(1), refs); err != nil {
		t.Fatal(err)
	}
	n, err := f.RemoveAll(t.Context(), service.Removal{Tenant: metadata.DefaultTenant})
	want(t, "a removal of which the second event failed", err, errs.Unresolved)
	if left := f.p.Store.Stats().Objects; n != deleteevents.MaxRemovals || left != int64(objects-n) {
		t.Errorf("%d were removed, %d are left", n, left)
	}
	_, err = f.RemoveAll(t.Context(), service.Removal{Tenant: metadata.DefaultTenant})
	want(t, "a removal of which no event was written", err, errs.Unavailable)
}
