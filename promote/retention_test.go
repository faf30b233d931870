package promote_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/promote"
)

// History is kept back to the oldest of the nodes' newest files. A node that is absent
// for an hour keeps nothing back any more, and its position is deleted.
func TestRetention(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	now := time.Minute
	r := promote.NewRetention(promote.Config{Client: client, Layout: layout, Clock: func() time.Duration { return now }})
	keeps := func(what string, want int64) {
		t.Helper()
		if got, err := r.Look(t.Context()); err != nil || got != want {
			t.Errorf("%s: history is kept from %d, want %d (%v)", what, got, want, err)
		}
	}
	register := func(id string) {
		t.Helper()
		value, err := json.Marshal(promote.NodeInfo{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		do(t, etcd, clientv3.OpPut(layout.Node(id), string(value)))
	}
	keeps("no file", math.MaxInt64)
	do(t, etcd, clientv3.OpPut(layout.SavedBy("a"), `{"sequence":5,"revision":50}`))
	do(t, etcd, clientv3.OpPut(layout.SavedBy("b"), `{"sequence":2,"revision":20}`))
	do(t, etcd, clientv3.OpPut(layout.SavedBy("c"), `garbage`))
	register("a")
	register("b")
	keeps("both are here", 20)
	do(t, etcd, clientv3.OpDelete(layout.Node("b")))
	keeps("b has left", 20)
	now += 59 * time.Minute
	keeps("b is absent for 59 minutes", 20)
	register("b")
	keeps("b is back", 20)
	do(t, etcd, clientv3.OpDelete(layout.Node("b")))
	now += 59 * time.Minute
	keeps("b has left again", 20)
	now += time.Hour
	keeps("b is absent for an hour", 50)
	resp, err := client.Get(t.Context(), layout.Saved(), clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Key) != layout.SavedBy("a") {
		t.Errorf("the positions are %v (%v), want a's alone", resp.Kvs, err)
	}
}
