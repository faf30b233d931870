package promote_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// History is kept back to the oldest of the nodes' newest files. For a node that was absent for
// an hour it is not kept any more, and the node's position is deleted.
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
		registered(t, etcd, id, string(value))
	}
	keeps("no file", math.MaxInt64)
	do(t, etcd, clientv3.OpPut(layout.SavedBy("a"), `{"sequence":5,"revision":50}`))
	do(t, etcd, clientv3.OpPut(layout.SavedBy("b"), `{"sequence":2,"revision":20}`))
	do(t, etcd, clientv3.OpPut(layout.SavedBy("c"), `garbage`))
	register("a")
	register("b")
	keeps("both are here", 20)
	registered(t, etcd, "d", `{"node_id":"d","needs":[{"sequence":1,"revision":10},{}]}`)
	keeps("d loads a snapshot", 10)
	registered(t, etcd, "d", `{"node_id":"d"}`)
	keeps("d has loaded it", 20)
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

// The bound of the journal takes precedence over what an absent node's file needs: history is
// deleted beyond that file. The primary saves its own state in time. The absent node comes back
// by a snapshot.
func TestTheJournalsBoundOutweighsAnAbsentNode(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	bounded := func(c *promote.Config) { c.MaxJournalBytes, c.EventsTTL = 256<<10, time.Hour }
	a := w.start("a", stateIn(t.TempDir(), time.Hour), bounded)
	w.serving(a).mount()
	dir := t.TempDir()
	b := w.start("b", stateIn(dir, 100*time.Millisecond), bounded)
	w.promotable(b)
	w.saved(b)
	b.end()
	client, n := etcd.Client(t), 0
	behind, err := client.Get(t.Context(), layout.Head())
	if err != nil {
		t.Fatal(err)
	}
	seq := a.Status().Position.Seq
	waitFor(t, "the cut", func() bool {
		a.put(keys(fmt.Sprint(strings.Repeat("k", 2000), n, "/"), 10)...)
		n++
		_, err := client.Get(t.Context(), layout.Head(), clientv3.WithRev(behind.Header.Revision))
		first, err2 := client.Get(t.Context(), layout.Records(metadata.ObjectEvents), clientv3.WithPrefix(), clientv3.WithLimit(1))
		return errors.Is(err, rpctypes.ErrCompacted) && err2 == nil && (len(first.Kvs) == 0 || string(first.Kvs[0].Key) > layout.Record(metadata.ObjectEvents, seq+10))
	})
	waitFor(t, "a file of the primary that the journal continues", func() bool {
		s := a.Status().Saving
		return s.Restorable && s.Seq > seq
	})
	b = w.start("b", stateIn(dir, time.Hour), bounded)
	w.promotable(b)
	w.equal(a, b)
	if loads := b.Status().Loads; len(loads) == 0 {
		t.Error("got no snapshot loaded by b, want one: the journal does not go on from its file")
	}
}

// While no state can be saved, the journal is cut behind the newest file all the same: status
// says that the node could not be restored from it. With space again it can.
func TestAFileThatTheJournalLeavesBehind(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	dir := filepath.Join(t.TempDir(), "state")
	a := w.start("a", stateIn(dir, 100*time.Millisecond), func(c *promote.Config) { c.MaxJournalBytes, c.EventsTTL = 256<<10, time.Hour })
	w.serving(a).mount()
	w.saved(a)
	waitFor(t, "a file that the journal continues", func() bool { return a.Status().Saving.Restorable })
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	n := 0
	waitFor(t, "that the file is of no use any more", func() bool {
		a.put(keys(fmt.Sprint(strings.Repeat("k", 2000), n, "/"), 10)...)
		n++
		s := a.Status().Saving
		return s.Fault != nil && !s.Restorable
	})
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "another file that the journal continues", func() bool {
		s := a.Status().Saving
		return s.Fault == nil && s.Restorable
	})
}
