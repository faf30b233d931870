package service_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/segment"
)

func TestFence(t *testing.T) {
	f := newFixture(t)
	f.put(t, "k")
	f.fenced.Store(true)
	ctx := t.Context()
	_, err := f.GetReplicaList(ctx, "default", "k")
	want(t, "get", err, errs.NotLeader)
	_, err = f.ExistKey(ctx, "default", "k")
	want(t, "exist", err, errs.NotLeader)
	_, err = f.PutStart(ctx, start(1), service.PutItem{Key: "x", Size: 1})
	want(t, "put", err, errs.NotLeader)
	want(t, "remove", f.Remove(ctx, service.RemoveRequest{}, "k"), errs.NotLeader)
	_, err = f.Ping(ctx, owner(1))
	want(t, "ping", err, errs.NotLeader)
	_, err = f.RemoveAll(ctx, service.RemoveRequest{})
	want(t, "remove all", err, errs.NotLeader)

	// The fence closes while an answer is built.
	n := 0
	g := newFixture(t, func(c *service.Master) {
		c.Fence = func(context.Context) error {
			if n++; n > 1 {
				return errs.NotLeader
			}
			return nil
		}
	})
	g.p.Put(nil, "k")
	if _, err := g.GetReplicaList(ctx, "default", "k"); !errors.Is(err, errs.NotLeader) {
		t.Errorf("an answer built while the fence closed: got %v, want NotLeader", err)
	}
	n = 0
	err = g.Remove(ctx, service.RemoveRequest{Tenant: "default"}, "missing")
	want(t, "a removal that finds nothing while the fence closes", err, errs.NotLeader)
	n = 0
	spec := segment.Spec{ID: segment.ID{99}, Name: "late", Base: 1 << 40, Size: 1 << 30, Endpoint: "late:1", Client: owner(9)}
	want(t, "a mount while the fence closes", g.MountSegment(ctx, spec), errs.Unresolved)
	if _, mounted := g.Store.FindSegment(spec.ID); !mounted {
		t.Error("got no segment, want the one whose mount was answered with Unresolved")
	}
}

// A call whose caller has gone decides nothing more: what waits for its ticket,
// such as a handover, would wait for all its items.
func TestCallerGoneBetweenItems(t *testing.T) {
	ctx, gone := context.WithCancel(t.Context())
	asked := 0
	f := newFixture(t, func(c *service.Master) {
		c.Fence = func(context.Context) error {
			if asked++; asked == 2 { // at the call's begin, and for the item that is refused
				gone()
			}
			return nil
		}
	})
	items := []service.PutItem{{Key: "a", Size: 1}, {Key: "", Size: 1}, {Key: "", Size: 1}, {Key: "b", Size: 1}}
	_, failed, err := f.BatchPutStart(ctx, start(1), items)
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range []errs.Kind{errs.Unavailable, errs.InvalidParams, errs.Unavailable, errs.Unavailable} {
		want(t, fmt.Sprint("item ", i), failed[i], kind)
	}
	if !errors.Is(failed[3], context.Canceled) || f.Store.Stats().Objects != 0 {
		t.Errorf("%v, and %d objects; want Canceled and none", failed[3], f.Store.Stats().Objects)
	}
	if err := f.p.Queue.Idle(t.Context()); err != nil {
		t.Error(err)
	}
}

// A reader of an object whose removal is being written waits for the outcome;
// its deadline ends the waiting.
func TestReadersWaitForMutations(t *testing.T) {
	f := newFixture(t)
	f.put(t, "k")
	e, _, err := deleteevents.Prepare(f.Store, deleteevents.Request{Tenant: "default", Key: "k"}, f.p.Now())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = f.GetReplicaList(ctx, "default", "k")
	want(t, "a reader with a short deadline", err, errs.Unavailable)
	want(t, "a remover with a short deadline", f.Remove(ctx, service.RemoveRequest{Tenant: "default"}, "k"), errs.Unavailable)
	got := make(chan error, 1)
	go func() {
		_, err := f.GetReplicaList(t.Context(), "default", "k")
		got <- err
	}()
	f.p.Commit(e)
	want(t, "a patient reader", <-got, errs.ObjectNotFound)
}

// Many callers put, read and remove few keys at once: each gets an answer that
// fits some order, and nothing is left over.
func TestContention(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	var wg sync.WaitGroup
	var puts, removes atomic.Int64
	for w := range byte(16) {
		wg.Go(func() {
			for i := range 100 {
				key := fmt.Sprint(i % 5)
				switch r, err := f.PutStart(ctx, start(w), service.PutItem{Key: key, Size: 10}); errs.KindOf(err) {
				case errs.OK:
					puts.Add(1)
					if err := f.PutEnd(ctx, update(w), service.UpdateItem{Key: key, ID: r.ID}); err != nil {
						t.Errorf("the end of my own put: got %v, want no error", err)
					}
				case errs.ObjectExists:
				default:
					t.Errorf("put: %v; want what the others have done", err)
				}
				if _, err := f.GetReplicaList(ctx, "default", key); err != nil && !errors.Is(err, errs.ObjectNotFound) && !errors.Is(err, errs.ReplicaNotReady) {
					t.Errorf("get: %v; want the object, or that it is gone or not ready", err)
				}
				switch err := f.Remove(ctx, service.RemoveRequest{Tenant: "default", Force: true}, key); errs.KindOf(err) {
				case errs.OK:
					removes.Add(1)
				case errs.ObjectNotFound, errs.ReplicaNotReady:
				default:
					t.Errorf("remove: %v; want what the others have done", err)
				}
			}
		})
	}
	wg.Wait()
	if left := f.Store.Stats().Objects; puts.Load()-removes.Load() != left {
		t.Errorf("%d puts, %d removals, %d objects left; want the difference (promise D: durable)", puts.Load(), removes.Load(), left)
	}
	if puts.Load() < 10 {
		t.Errorf("only %d puts went through, want at least 10", puts.Load())
	}
}
