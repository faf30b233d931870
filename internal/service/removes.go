package service

import (
	"context"
	"fmt"
	"slices"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// PutRevoke gives a reservation up. Errors: ObjectNotFound, IllegalClient,
// InvalidWrite for replicas that are not in progress.
func (m *Master) PutRevoke(ctx context.Context, u PutUpdate, r PutRef) error {
	if err := m.Fence(); err != nil {
		return err
	}
	return m.Counters.done(OpPutRevoke, m.putRevokes(ctx, "PutRevoke", u, []PutRef{r})[0])
}

// BatchPutRevoke is PutRevoke for many objects, each with an error of its own.
func (m *Master) BatchPutRevoke(ctx context.Context, u PutUpdate, refs []PutRef) ([]error, error) {
	if err := m.begin("BatchPutRevoke", len(refs)); err != nil {
		return nil, m.Counters.failed(OpBatchPutRevoke, err)
	}
	failed := m.putRevokes(ctx, "BatchPutRevoke", u, refs)
	return failed, m.Counters.doneBatch(OpBatchPutRevoke, failed, nil)
}

func (m *Master) putRevokes(ctx context.Context, op string, u PutUpdate, refs []PutRef) []error {
	failed := make([]error, len(refs))
	m.mutate(ctx, len(refs), func(i int) item {
		return item{
			bytes: 48,
			prepare: func(metadata.Time) (metadata.Change, <-chan struct{}, error) {
				if err := checkKey(op, u.Tenant, refs[i].Key); err != nil {
					return nil, nil, err
				}
				r, wait, err := m.Store.PreparePutRevoke(u.ref(refs[i], i))
				switch {
				case r.Removal != nil:
					return deletion(deleteevents.PutRevoke, r.Removal), nil, nil
				case r.Partial != nil:
					return r.Partial, nil, nil
				}
				return nil, wait, err
			},
			done: func(_ metadata.Change, err error) { failed[i] = err },
		}
	})
	return failed
}

func deletion(t deleteevents.Type, r *metadata.Removal) *deleteevents.Event {
	return &deleteevents.Event{Type: t, Removals: []*metadata.Removal{r}}
}

// A Removal asks for the removal of objects.
type Removal struct {
	Tenant  string
	Force   bool   // override leases, and nothing else
	Request uint64 // as in PutStart
}

// Remove removes one object. Errors: ObjectNotFound, ObjectHasLease unless
// forced, ReplicaNotReady while a put is in progress.
func (m *Master) Remove(ctx context.Context, r Removal, key string) error {
	if err := m.Fence(); err != nil {
		return err
	}
	return m.Counters.done(OpRemove, m.removes(ctx, "Remove", r, []string{key})[0])
}

// BatchRemove is Remove for many keys, each with an error of its own.
func (m *Master) BatchRemove(ctx context.Context, r Removal, keys []string) ([]error, error) {
	if err := m.begin("BatchRemove", len(keys)); err != nil {
		return nil, m.Counters.failed(OpBatchRemove, err)
	}
	failed := m.removes(ctx, "BatchRemove", r, keys)
	return failed, m.Counters.doneBatch(OpBatchRemove, failed, nil)
}

func (m *Master) removes(ctx context.Context, op string, r Removal, keys []string) []error {
	failed := make([]error, len(keys))
	m.mutate(ctx, len(keys), func(i int) item {
		return item{
			bytes: 48,
			prepare: func(now metadata.Time) (metadata.Change, <-chan struct{}, error) {
				if err := checkKey(op, r.Tenant, keys[i]); err != nil {
					return nil, nil, err
				}
				removal, wait, err := m.Store.PrepareRemove(metadata.Remove{
					Tenant: r.Tenant, Key: keys[i], Force: r.Force, Request: itemRequest(r.Request, i),
				}, now)
				if removal == nil {
					return nil, wait, err
				}
				return deletion(deleteevents.Remove, removal), nil, nil
			},
			done: func(_ metadata.Change, err error) { failed[i] = err },
		}
	})
	return failed
}

// RemoveByRegex removes the tenant's objects whose keys the pattern is found
// in. It skips objects that are leased (unless forced), in progress, or being
// changed, and returns how many it removed. What was removed before an error
// stays removed; it is in the count.
func (m *Master) RemoveByRegex(ctx context.Context, r Removal, pattern string) (int, error) {
	if err := m.Fence(); err != nil {
		return 0, err
	}
	match, err := compile("RemoveByRegex", pattern)
	if err != nil {
		return 0, m.Counters.failed(OpRemoveByRegex, err)
	}
	n, err := m.removeMatching(ctx, deleteevents.RemoveByRegex, pattern, match, r)
	return n, m.Counters.done(OpRemoveByRegex, err)
}

// RemoveAll is RemoveByRegex for every key of a tenant, or of all tenants if
// the tenant is empty.
func (m *Master) RemoveAll(ctx context.Context, r Removal) (int, error) {
	if err := m.Fence(); err != nil {
		return 0, err
	}
	n, err := m.removeMatching(ctx, deleteevents.RemoveAll, "", nil, r)
	return n, m.Counters.done(OpRemoveAll, err)
}

// removeMatching expands a removal into lists of exact objects, each an event
// that is final when committed. While keys are matched nothing is held up: no
// object, and no place in the queue.
func (m *Master) removeMatching(ctx context.Context, t deleteevents.Type, pattern string, match func(string) bool, r Removal) (total int, err error) {
	var found []metadata.Candidate
	var chosen []metadata.Ref
	for shard := range metadata.ShardCount {
		found = m.Store.Candidates(found[:0], shard, r.Tenant, r.Force, m.Now())
		for _, c := range found {
			if ctx.Err() != nil {
				return total, partly(total, errs.Wrap(errs.Unavailable, t.String(), ctx.Err()))
			}
			if match != nil && !match(c.Key) {
				continue
			}
			if chosen = append(chosen, c.Ref); len(chosen) < deleteevents.MaxRemovals {
				continue
			}
			n, err := m.removeChosen(ctx, t, pattern, chosen, r)
			if total, chosen = total+n, chosen[:0]; err != nil {
				return total, partly(total, err)
			}
		}
		if err := m.Fence(); err != nil {
			return total, partly(total, err)
		}
	}
	n, err := m.removeChosen(ctx, t, pattern, chosen, r)
	return total + n, partly(total+n, err)
}

// removeChosen removes what is left of some objects, as one event.
func (m *Master) removeChosen(ctx context.Context, t deleteevents.Type, pattern string, chosen []metadata.Ref, r Removal) (int, error) {
	if len(chosen) == 0 {
		return 0, nil
	}
	ticket, err := m.Queue.Admit(ctx, len(chosen)*16)
	if err != nil {
		return 0, err
	}
	defer ticket.Release()
	list := m.Store.PrepareRemovals(chosen, r.Force, m.Now())
	if len(list) == 0 {
		return 0, nil
	}
	e := &deleteevents.Event{Type: t, Pattern: pattern, Removals: list}
	if _, err := ticket.Submit(ctx, e); err != nil {
		return 0, err
	}
	m.Counters.committed(e)
	return e.Removed, nil
}

// partly is the error of a call that changed something before it failed: what
// says that nothing was changed, and is true of the rest of the call, becomes
// Unresolved, or the caller would repeat it and hit what was put since.
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
	if err := m.begin("BatchReplicaClear", len(keys)); err != nil {
		return nil, m.Counters.failed(OpBatchReplicaClear, err)
	}
	cleared := make([]bool, len(keys))
	var failure error
	m.mutate(ctx, len(keys), func(i int) item {
		return item{
			bytes: 64,
			prepare: func(now metadata.Time) (metadata.Change, <-chan struct{}, error) {
				if keys[i] == "" {
					return nil, nil, nil
				}
				c, wait, _ := m.Store.PrepareClear(tenant, keys[i], client, name, now)
				switch {
				case c.Removal != nil:
					return deletion(deleteevents.Remove, c.Removal), nil, nil
				case c.Partial != nil:
					return c.Partial, nil, nil
				}
				return nil, wait, nil
			},
			done: func(c metadata.Change, err error) {
				cleared[i] = c != nil && err == nil
				// It is the journal's, so of all that were under way. That the outcome
				// of some is open is not hidden by what came of later ones.
				if c == nil && err != nil && errs.KindOf(failure) != errs.Unresolved {
					failure = err
				}
			},
		}
	})
	var list []int
	for i, ok := range cleared {
		if ok {
			list = append(list, i)
		}
	}
	return slices.Clip(list), m.Counters.doneSome(OpBatchReplicaClear, len(keys), len(keys)-len(list), partly(len(list), failure))
}
