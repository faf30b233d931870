package service_test

import (
	"errors"
	"testing"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal/nowait"
)

// A call that must not wait fails where another change of its key is under way, having
// changed and counted nothing, and so can be made again.
func TestCallsThatMustNotWait(t *testing.T) {
	f := newFixture(t)
	f.put(t, "a", "b")
	if !f.CommitsAtOnce() {
		t.Fatal("a change of one key: got that it waits for changes of others, want it at once")
	}
	ctx := nowait.Context(t.Context())
	calls := map[service.Op]func() error{
		service.OpGetReplicaList: func() error { _, err := f.GetReplicaList(ctx, "default", "a"); return err },
		service.OpBatchGetReplicaList: func() error {
			_, failed, err := f.BatchGetReplicaList(ctx, "default", []string{"b", "a"}, nil)
			return errors.Join(append(failed, err)...)
		},
		service.OpPutStart: func() error {
			p := start(1)
			p.Config.Upsert = true
			_, err := f.PutStart(ctx, p, service.PutItem{Key: "a", Size: 100})
			return err
		},
		service.OpRemove: func() error {
			return f.Remove(ctx, service.RemoveRequest{Tenant: "default", Force: true}, "a")
		},
	}
	e, _, err := deleteevents.Prepare(f.p.Store, deleteevents.Request{Tenant: "default", Key: "a", Force: true}, f.Now())
	if err != nil {
		t.Fatal(err)
	}
	for op, call := range calls {
		before := f.Counters.Of(op).Requests.Load()
		if err := call(); !errors.Is(err, nowait.Err) {
			t.Errorf("%s beside another change: got %v, want nowait.Err", op, err)
		}
		if n := f.Counters.Of(op).Requests.Load(); n != before {
			t.Errorf("%s that failed rather than waited: got %d calls counted, want 0", op, n-before)
		}
	}
	e.Abort(f.p.Store)
	for _, op := range []service.Op{service.OpGetReplicaList, service.OpBatchGetReplicaList, service.OpPutStart, service.OpRemove} {
		if err := calls[op](); op != service.OpRemove && err != nil {
			t.Errorf("%s after it: got %v, want no error", op, err)
		} else if op == service.OpRemove {
			want(t, "removing what is being put", err, errs.ReplicaNotReady)
		}
	}
}
