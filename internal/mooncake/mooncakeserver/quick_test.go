package mooncakeserver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/metadata"
)

// A batch waits no longer for changes of its keys, one after the other, than any other call.
func TestBatchThatWaitsForChanges(t *testing.T) {
	n := primary(t)
	n.front.SetDeadline(20 * time.Millisecond)
	c := n.dial(t, "head")
	g := c.Generation
	keys := []string{"a", "b"}
	put(t, c, 7, keys...)
	for _, key := range keys {
		e, _, err := deleteevents.Prepare(n.primary.Store, deleteevents.Request{Tenant: metadata.DefaultTenant, Key: key, Force: true}, n.primary.Now())
		if err != nil {
			t.Fatal(err)
		}
		defer e.Abort(n.primary.Store)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var lists []mooncake.Result[metadata.ReplicaList]
	if _, err := mooncakeclient.Do(ctx, c, g.BatchGetReplicaList, &mooncake.Args{Keys: keys}, &lists); err != nil {
		t.Fatalf("BatchGetReplicaList: got %v, want an answer", err)
	}
	for i := range keys {
		expect(t, "BatchGetReplicaList", lists[i], errs.Unavailable)
	}
}

// Calls that wait for another change of their key hold up no other connections, and
// are answered when it is there.
func TestCallsThatWaitForAChange(t *testing.T) {
	n := primary(t)
	live := n.dial(t, "head")
	g := live.Generation
	put(t, live, 7, "a", "b")
	e, _, err := deleteevents.Prepare(n.primary.Store, deleteevents.Request{Tenant: metadata.DefaultTenant, Key: "a", Force: true}, n.primary.Now())
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 3)
	wait := func(do func(c *mooncakeclient.Conn) (int32, error)) {
		c := n.dial(t, "head")
		go func() {
			failure, err := do(c)
			if err == nil && failure != 0 {
				t.Errorf("got failure %d, want none", failure)
			}
			answered <- err
		}()
	}
	wait(func(c *mooncakeclient.Conn) (int32, error) {
		var r mooncake.Result[metadata.ReplicaList]
		_, err := mooncakeclient.Do(t.Context(), c, g.GetReplicaList, &mooncake.Args{Key: "a"}, &r)
		return r.Failure, err
	})
	wait(func(c *mooncakeclient.Conn) (int32, error) {
		var r []mooncake.Result[metadata.ReplicaList]
		_, err := mooncakeclient.Do(t.Context(), c, g.BatchGetReplicaList, &mooncake.Args{Keys: []string{"b", "a"}}, &r)
		if err != nil {
			return 0, err
		}
		return r[1].Failure, nil
	})
	for i := range 100 {
		if r := ask(t, live, g.GetReplicaList, mooncake.Args{Key: "b"}); len(r.Value.Replicas) != 1 {
			t.Fatalf("a read beside it: got %+v, want a replica", r)
		}
		key := fmt.Sprint("k", i)
		put(t, live, 7, key)
		expect(t, "Remove", ask(t, live, g.Remove, mooncake.Args{Key: key, Force: true}), errs.OK)
	}
	select {
	case err := <-answered:
		t.Fatalf("a call of a key that is being changed: got an answer (error %v), want it to wait", err)
	default:
	}
	e.Abort(n.primary.Store)
	for range 2 {
		if err := <-answered; err != nil {
			t.Errorf("after it: got %v, want no error", err)
		}
	}
}
