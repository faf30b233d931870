package promote_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/promote"
)

func owner(c *promote.Config) { c.OwnsEtcd = true }

// A node whose own etcd is full makes space before it can register, and serves.
func TestStartOnAFullEtcd(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
	etcd.FillQuota(t)
	w := newCluster(t, etcd)
	a := w.start("a", owner)
	w.serving(a).mount()
	a.put("k")
}

// A primary dies while etcd is full: a standby makes space and takes over, with
// everything.
func TestTakeoverOnAFullEtcd(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
	w := newCluster(t, etcd)
	// a must not make space itself.
	a := w.start("a", func(c *promote.Config) { c.Compact = false })
	w.serving(a).mount()
	a.put(keys("k", 20)...)
	b, c := w.start("b", owner), w.start("c", owner) // one of them takes over
	w.promotable(b)
	w.promotable(c)
	w.equal(a, b)
	w.equal(a, c)
	etcd.FillQuota(t)
	a.wire.cut()
	primary := w.serving(b, c)
	primary.has(keys("k", 20)...)
	primary.put("after")
	a.wire.heal()
}

// The owner of the etcd compacts it while another node is the primary, which may not.
func TestOwnerCompactsForAnotherPrimary(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a", owner, func(c *promote.Config) { c.EventsTTL = time.Second })
	w.serving(a).mount()
	b := w.start("b", func(c *promote.Config) { c.EventsTTL, c.Compact = time.Second, false })
	w.promotable(b)
	w.listed(a, "b")
	a.handsOverTo(b)
	w.serving(b).put("k")
	w.promotable(a)
	client := etcd.Client(t)
	resp, err := client.Get(t.Context(), layout.Head())
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, 30*time.Second, "a compaction", func() bool { // a control demands the failure within a minute
		_, err := client.Get(t.Context(), layout.Head(), clientv3.WithRev(resp.Header.Revision))
		return errors.Is(err, rpctypes.ErrCompacted)
	})
}

// Nobody makes space in an etcd that is not ours: the node says so and ends.
func TestStartOnAFullExternalEtcd(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
	etcd.FillQuota(t)
	w := newCluster(t, etcd)
	a := w.start("a", func(c *promote.Config) { c.EventsTTL = 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case err := <-a.done:
		a.done <- err
		if err == nil || !strings.Contains(err.Error(), "disarm") {
			t.Errorf("a node on a full external etcd ended with %v, want an error that says how to disarm the alarm", err)
		}
	case <-ctx.Done():
		t.Error("a node on a full external etcd still runs after 20s, want it to say so and end")
	}
}

// A node whose own etcd is full makes space also while another node leads, which
// may not: after a handover to it, and when its own process starts again.
func TestFullEtcdOfAnotherNodeThanThePrimary(t *testing.T) {
	t.Parallel()
	t.Run("after a handover", func(t *testing.T) {
		etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
		w := newCluster(t, etcd)
		a := w.start("a", owner)
		w.serving(a).mount()
		a.put("k")
		b := w.start("b")
		w.promotable(b)
		waitFor(t, "the handover", func() bool { _, _, err := a.Handover(t.Context(), 0, "b"); return err == nil })
		w.serving(b)
		w.promotable(a)
		etcd.FillQuota(t)
		w.putsAgain(a, b)
	})
	t.Run("at its start", func(t *testing.T) {
		etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
		w := newCluster(t, etcd)
		b := w.start("b")
		w.serving(b).mount()
		etcd.FillQuota(t)
		w.putsAgain(w.start("a", owner), b)
	})
}

// putsAgain waits until one of the nodes takes a put, as a client would that tries
// again: making space may take so long that the primary changes.
func (w *cluster) putsAgain(nodes ...*node) {
	w.t.Helper()
	waitFor(w.t, "a put that succeeds", func() bool {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		return slices.ContainsFunc(nodes, func(n *node) bool { return n.putStart(ctx, "after", 0) == nil })
	})
}

// The node whose own etcd is full cannot lead itself, since it has no complete
// state, though it loads one: it makes space for the one that can.
func TestTakeoverOnAFullEtcdByAnotherNodeThanItsOwner(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
	w := newCluster(t, etcd)
	a := w.start("a", func(c *promote.Config) { c.Compact = false })
	w.serving(a).mount()
	a.put(keys("k", 20)...)
	b := w.start("b")
	w.promotable(b)
	c := w.start("c", owner, func(c *promote.Config) { c.Peers = lazyPeers{w, time.Hour, new(atomic.Int64)} })
	waitFor(t, "c to say what it needs", func() bool { return c.Needs(t) })
	w.equal(a, b)
	etcd.FillQuota(t)
	a.wire.cut()
	w.serving(b).put("after")
	b.has(keys("k", 20)...)
	a.wire.heal()
}

// noSnapshots are peers of which none is to be had.
type noSnapshots struct{ promote.Peers }

func (noSnapshots) Fetch(context.Context, string, func([]byte) error) (journal.Cursor, error) {
	return journal.Cursor{}, errors.New("test: no snapshot is to be had")
}

// The etcd of a lone master is full, and its state cannot be saved: the history that a
// restart needs stays, changes and reads stop, and the status says why. Killed and started
// again on the full etcd, it follows the journal from its file, saves what it has, makes
// space, and serves everything.
func TestFullEtcdKeepsWhatNoNodeHasSaved(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
	w := newCluster(t, etcd)
	dir := filepath.Join(t.TempDir(), "state")
	a := w.start("a", owner, stateIn(dir, time.Hour))
	w.serving(a).mount()
	a.put(keys("k", 20)...) // behind the file
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	var o *promote.Obstacle
	waittest.Until(t, 30*time.Second, "the reason why no node serves", func() bool { // a control demands the failure within a minute
		if !a.Status().Space.Alarm { // at first, and whenever a defragmentation has made room
			etcd.FillQuota(t)
		}
		o = a.Status().Obstacle
		return o != nil && o.Cause == promote.EtcdFull && a.Status().Space.Fault != nil
	})
	if !strings.Contains(o.Reason+o.Help, "state") || !strings.Contains(o.Help, "--etcd-quota-bytes") {
		t.Errorf("the status says %q, and to %q; want that the state cannot be saved", o.Reason, o.Help)
	}
	a.wire.cut()
	a.end()
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	a = w.start("a", owner, stateIn(dir, time.Hour))
	w.serving(a).has(keys("k", 20)...)
	w.putsAgain(a)
}

// Nine tenths of the quota of an embedded etcd are used by what nobody can free. Changes
// are refused, by a primary on the same node and on another one. Reads, beats, the
// registration of nodes and handovers go on, and changes too when there is space.
func TestChangesStopBeforeEtcdIsFull(t *testing.T) {
	t.Parallel()
	for name, elsewhere := range map[string]bool{"on the primary": false, "on another node": true} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t, etcdtest.WithQuota(32<<20))
			w := newCluster(t, etcd)
			a := w.start("a", func(c *promote.Config) { c.OwnsEtcd = !elsewhere })
			w.serving(a).mount()
			a.put("k")
			if elsewhere {
				w.promotable(w.start("b", owner))
			}
			etcd.FillTo(t, 31e6)
			var err error
			waitFor(t, "a put that is refused", func() bool { err = a.putStart(t.Context(), fmt.Sprint("k", time.Now()), 0); return err != nil })
			if errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "90 %") {
				t.Errorf("a put: %v, want Unavailable for an etcd that is nearly full", err)
			}
			before, _ := readHead(t, etcd)
			waitFor(t, "beats", func() bool { head, _ := readHead(t, etcd); return head.Seq > before.Seq+20 })
			waitFor(t, "an answer", a.serves)
			c := w.start("c")
			w.promotable(c)
			w.listed(a, "c")
			a.has("k") // which renews its lease: the handover journals that
			waitFor(t, "a handover while changes are refused", func() bool {
				_, _, err := a.Handover(t.Context(), 0, "c")
				return err == nil || c.serves()
			})
			now := w.serving(c, a)
			now.has("k")
			do(t, etcd, clientv3.OpDelete("tenant/", clientv3.WithPrefix()))
			w.putsAgain(now)
		})
	}
}
