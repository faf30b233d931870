package service

import (
	"context"
	"fmt"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// PutRevoke gives a reservation up. Errors: ObjectNotFound, IllegalClient,
// InvalidWrite for replicas that are not in progress.
func (m *Master) PutRevoke(ctx context.Context, u UpdateRequest, r UpdateItem) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	return m.Counters.done(OpPutRevoke, m.putRevokes(ctx, "PutRevoke", u, []UpdateItem{r})[0])
}

// BatchPutRevoke is PutRevoke for many objects, each with an error of its own.
func (m *Master) BatchPutRevoke(ctx context.Context, u UpdateRequest, refs []UpdateItem) ([]error, error) {
	return m.batch(ctx, OpBatchPutRevoke, "BatchPutRevoke", len(refs), func() []error { return m.putRevokes(ctx, "BatchPutRevoke", u, refs) })
}

func (m *Master) putRevokes(ctx context.Context, op string, u UpdateRequest, refs []UpdateItem) []error {
	return errorsOf(m.commit(ctx, len(refs), 48, func(i int, _ metadata.Time) (metadata.Change, <-chan struct{}, error) {
		if err := checkKey(op, u.Tenant, refs[i].Key); err != nil {
			return nil, nil, err
		}
		drop, wait, err := m.Store.PreparePutRevoke(u.ref(refs[i], i))
		if drop.Removal != nil {
			return deleteevents.Of(deleteevents.PutRevoke, drop.Removal), nil, nil
		}
		return drop.Partial, wait, err
	}))
}

// A RemoveRequest asks for the removal of objects.
type RemoveRequest struct {
	Tenant  string
	Force   bool   // override leases, and nothing else
	Request uint64 // as in PutRequest
	From    string // who asks: protocol and address, for the log of mass removals; empty if its front end logs them
}

// Remove removes one object. Errors: ObjectNotFound, ObjectHasLease unless
// forced, ReplicaNotReady while a put is in progress.
func (m *Master) Remove(ctx context.Context, r RemoveRequest, key string) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	return m.Counters.done(OpRemove, m.removes(ctx, "Remove", r, []string{key})[0])
}

// BatchRemove is Remove for many keys, each with an error of its own.
func (m *Master) BatchRemove(ctx context.Context, r RemoveRequest, keys []string) ([]error, error) {
	return m.batch(ctx, OpBatchRemove, "BatchRemove", len(keys), func() []error { return m.removes(ctx, "BatchRemove", r, keys) })
}

func (m *Master) removes(ctx context.Context, op string, r RemoveRequest, keys []string) []error {
	return errorsOf(m.commit(ctx, len(keys), 48, func(i int, now metadata.Time) (metadata.Change, <-chan struct{}, error) {
		if err := checkKey(op, r.Tenant, keys[i]); err != nil {
			return nil, nil, err
		}
		return decided(deleteevents.Prepare(m.Store, deleteevents.Request{
			Tenant: r.Tenant, Key: keys[i], Force: r.Force, ID: itemRequest(r.Request, i),
		}, now))
	}))
}

// RemoveByRegex removes the tenant's objects whose keys the pattern is found
// in. It keeps objects that are leased (unless forced) or in progress, waits for
// those that are being changed or evicted, and counts them all. What was removed
// before an error stays removed; it is in the count.
func (m *Master) RemoveByRegex(ctx context.Context, r RemoveRequest, pattern string) (deleteevents.Result, error) {
	if err := m.Fence(ctx); err != nil {
		return deleteevents.Result{}, err
	}
	match, err := compile("RemoveByRegex", pattern)
	if err != nil {
		return deleteevents.Result{}, m.Counters.done(OpRemoveByRegex, err)
	}
	result, err := m.removeSelected(ctx, r, deleteevents.Selection{
		Type: deleteevents.RemoveByRegex, Tenant: r.Tenant, Pattern: pattern, Match: match, Force: r.Force,
	})
	return result, m.Counters.done(OpRemoveByRegex, err)
}

// RemoveAll is RemoveByRegex for every key of a tenant, or of all tenants if
// the tenant is empty. Owners of SSDs learn by PollRemoveAll that they are to
// delete their files.
func (m *Master) RemoveAll(ctx context.Context, r RemoveRequest) (deleteevents.Result, error) {
	if err := m.Fence(ctx); err != nil {
		return deleteevents.Result{}, err
	}
	result, err := m.removeSelected(ctx, r, deleteevents.Selection{Type: deleteevents.RemoveAll, Tenant: r.Tenant, Force: r.Force})
	if err == nil {
		var wiped bool
		wiped, err = m.wipeDisks(ctx, r.Tenant)
		result.Changed, err = result.Changed || wiped, partly(result.Removed, err)
	}
	return result, m.Counters.done(OpRemoveAll, err)
}

func (m *Master) removeSelected(ctx context.Context, r RemoveRequest, s deleteevents.Selection) (deleteevents.Result, error) {
	end, err := m.Scans.remove(ctx, s.Type.String())
	if err != nil {
		return deleteevents.Result{}, err
	}
	defer end()
	x := deleteevents.Expander{Store: m.Store, Queue: m.Queue, Now: m.Now, Fence: m.Fence}
	result, err := x.Remove(ctx, s)
	m.Counters.Deletes[s.Type].Add(int64(result.Events))
	if m.RemovedMany != nil && r.From != "" && result.Changed {
		m.RemovedMany(r, s.Type.String(), s.Pattern, result, err)
	}
	return result, partly(result.Removed, err)
}

// partly returns the error of a call that changed something before it failed. An error
// that says that nothing was changed is true only of the rest of the call, so it becomes
// Unresolved: otherwise the caller would repeat the call and hit what was put since.
func partly(changed int, err error) error {
	kind := errs.KindOf(err)
	if changed == 0 || kind != errs.Unavailable && kind != errs.NotLeader {
		return err
	}
	return &errs.Error{Kind: errs.Unresolved, Err: err, Detail: fmt.Sprintf("%d objects were changed, then the call failed", changed)}
}

// BatchReplicaClear drops the replicas of a client's objects on the segments
// of a name, or everywhere if the name is empty. It returns the indexes of the
// keys it cleared; a key that may not be cleared is skipped, not an error.
func (m *Master) BatchReplicaClear(ctx context.Context, tenant string, keys []string, client segment.ClientID, name string) ([]int, error) {
	if err := m.begin(ctx, "BatchReplicaClear", len(keys)); err != nil {
		return nil, m.Counters.done(OpBatchReplicaClear, err)
	}
	outcomes := m.commit(ctx, len(keys), 64, func(i int, now metadata.Time) (metadata.Change, <-chan struct{}, error) {
		if keys[i] == "" {
			return nil, nil, nil
		}
		drop, wait := m.Store.PrepareClear(tenant, keys[i], client, name, now)
		if drop.Removal != nil {
			return deleteevents.Of(deleteevents.Remove, drop.Removal), nil, nil
		}
		return drop.Partial, wait, nil
	})
	var cleared []int
	var failure error
	for i, o := range outcomes {
		switch {
		case o.change != nil && o.err == nil:
			cleared = append(cleared, i)
		case o.change == nil && o.err != nil && errs.KindOf(failure) != errs.Unresolved:
			// The journal's error is that of all items under way. If the outcome of
			// some is open, errors of later items must not hide that.
			failure = o.err
		}
	}
	return cleared, m.Counters.doneSome(OpBatchReplicaClear, len(keys), len(keys)-len(cleared), partly(len(cleared), failure))
}
