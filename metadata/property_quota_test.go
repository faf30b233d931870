package metadata_test

import (
	"pgregory.net/rapid"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/metadata"
)

// tenant returns the default tenant most of the time, and else the other one, which sometimes has
// a quota.
func (w *world) tenant(t *rapid.T) string {
	if w.pick(t, "tenant", 4) == 0 {
		return "red"
	}
	return metadata.DefaultTenant
}

// quotaAction sets the other tenant's quota, so that some puts break it, or removes
// it.
func (w *world) quotaAction(t *rapid.T) {
	if e, err := w.primary.PrepareSetQuota("red", uint64(100*w.pick(t, "quota", 4))); err == nil {
		e.More = w.pick(t, "more", 4) == 0
		w.submit(nil, e)
	}
}

// evictTenantAction evicts objects of one tenant.
func (w *world) evictTenantAction(t *rapid.T) {
	counted := func(err error) {
		if errs.KindOf(err) == errs.OK {
			w.evictedFor++
		}
	}
	search := eviction.TenantSearch{Store: w.primary, Tenant: w.tenant(t), SoftPins: w.pick(t, "pinned", 2) == 0}
	drops, _ := search.Next(uint64(100*w.pick(t, "bytes", 4)), 8, w.now)
	var changes []metadata.Change
	for _, d := range drops {
		if d.Removal != nil {
			changes = append(changes, deleteevents.Of(deleteevents.EvictTenant, d.Removal))
		} else {
			changes = append(changes, d.Partial)
		}
	}
	if len(changes) > 0 {
		w.submit(counted, changes...)
	}
}

// checkQuotas compares what tenants are charged with the objects of both nodes, and
// what is prepared with the queue.
func (w *world) checkQuotas(t *rapid.T) {
	for what, s := range map[string]*metadata.Store{"primary": w.primary, "follower": w.follower} {
		if faults := s.ChargeFaults(); faults != nil {
			t.Fatalf("%s: got %v, want each tenant charged what its objects take", what, faults)
		}
	}
	if n := w.primary.Prepared(); len(w.queue) == 0 && n != 0 {
		t.Fatalf("nothing is queued: got %d bytes prepared, want none", n)
	}
}
