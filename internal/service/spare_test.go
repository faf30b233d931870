package service_test

import (
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// One copy is enough for an object to survive its eviction, in whatever memories it is.
func TestOffloadOnEvictCopiesOnce(t *testing.T) {
	f := newFixture(t, offloading(3), func(c *service.Master) { c.OffloadOnEvict = true })
	want(t, "a second segment", f.MountSegment(t.Context(), lent(2, 2, 2)), errs.OK)
	f.mountDisk(t, 1, true)
	f.mountDisk(t, 2, true)
	put := start(1)
	put.Config.Replicas = 2
	if _, err := f.PutStart(t.Context(), put, service.PutItem{Key: "a", Size: 100}); err != nil {
		t.Fatal(err)
	}
	want(t, "put", f.PutEnd(t.Context(), update(1), service.UpdateItem{Key: "a"}), errs.OK)
	e := f.Store.Lock(metadata.DefaultTenant, "a")
	ref := e.Ref()
	e.Unlock()
	f.SpareForOffload([]metadata.Ref{ref})
	copies := 0
	for n := range byte(2) {
		list, err := f.OffloadHeartbeat(t.Context(), owner(n+1), true)
		if err != nil {
			t.Fatal(err)
		}
		copies += len(list)
	}
	if copies != 1 {
		t.Errorf("%d clients are to copy an object of two replicas before its eviction, want one", copies)
	}
}

// An object that only waits to be copied can be upserted; one that is copied cannot.
func TestAnUpsertOfWhatWaitsForACopy(t *testing.T) {
	f := newFixture(t, offloading(3), func(c *service.Master) { c.OffloadOnEvict = true })
	f.mountDisk(t, 1, true)
	upsert := upserts(start(1))
	for key, kind := range map[string]errs.Kind{"waits": errs.OK, "copied": errs.ObjectHasTask} {
		f.put(t, key)
		e := f.Store.Lock(metadata.DefaultTenant, key)
		ref := e.Ref()
		e.Unlock()
		f.SpareForOffload([]metadata.Ref{ref})
		if key == "copied" {
			tasks(t, f.Master)
		}
		_, err := f.PutStart(t.Context(), upsert, service.PutItem{Key: key, Size: 100})
		want(t, "an upsert of what "+key, err, kind)
	}
}
