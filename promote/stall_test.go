package promote_test

import (
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/promote"
)

const silentWatch = "its watch of etcd brings nothing"

// stallSoon has a node take its watch for silent within a test.
func stallSoon(c *promote.Config) { c.Follower.StallAfter = 5 * time.Second }

// silence swallows what the watches of a node bring, and returns when that node is behind.
func (n *node) silence(primary *node) {
	n.net.t.Helper()
	n.wire.lost.Store(true)
	key := "last" // of the first put; a watch may still bring that
	waitFor(n.net.t, n.id+" to read nothing", func() bool {
		before := n.Store().Position().Seq
		primary.put(key)
		key += "-again"
		return primary.Store().Position().Seq > n.Store().Position().Seq && n.Store().Position().Seq == before
	})
}

// unsilence lets watches through again.
func (n *node) unsilence() {
	n.wire.cut() // with the watches from which something is missing
	n.wire.lost.Store(false)
	n.wire.heal()
}

// A node is elected whose watches bring nothing, though its other calls of etcd succeed. It
// gives up for a standby that is complete, and can take over again when its watches are back.
func TestAnElectedNodeWithASilentWatch(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a", stallSoon)
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	b, c := w.start("b", stallSoon), w.start("c", stallSoon)
	w.promotable(b)
	w.promotable(c)
	w.know(a, b, c)
	c.wire.noTxn.Store(true) // it does not stand for election
	b.silence(a)
	a.wire.cut()
	waitFor(t, "b to be elected", func() bool { return b.Status().Self.Role == promote.Promoting })
	c.wire.noTxn.Store(false)
	waittest.Until(t, 30*time.Second, "b to give up", func() bool { return b.Status().Self.Role != promote.Promoting })
	w.serving(c).has(append(keys("k", 5), "last")...)

	c.put("after")
	waitFor(t, "b to say that it cannot take over", func() bool {
		s := b.Status().Self
		return !s.Promotable && s.Stalled && strings.Contains(s.Why, silentWatch)
	})
	b.unsilence()
	w.promotable(b)
	w.equal(c, b)
}

// The only node that holds the state has a silent watch. Nobody serves, it says why, and
// nobody starts empty: not that node, though it owns etcd, nor another one. When the watch is
// back, the node serves.
func TestTheOnlyCompleteNodeHasASilentWatch(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	owner := func(c *promote.Config) { c.OwnsEtcd, c.WaitForState = true, time.Millisecond }
	a, b := w.pair(5, stallSoon, owner)
	b.silence(a)
	a.vanish()
	waitFor(t, "b to say why nobody serves", func() bool {
		o := b.Status().Obstacle
		return o != nil && o.Cause == promote.NoneCan && strings.Contains(o.Reason, silentWatch) && strings.Contains(o.Help, "proxy")
	})
	reader := &journal.Reader{Client: w.etcd.Client(t), Layout: layout, Codec: codec}
	before, err := reader.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := w.start("d", owner)
	since := time.Now()
	waitFor(t, "d to have looked at elections for longer than a session", func() bool {
		if b.serves() || d.serves() {
			t.Fatalf("D: got b serving: %v, and d: %v; want no node to serve without the whole state", b.serves(), d.serves())
		}
		o := d.Status().Obstacle
		return time.Since(since) > 5*time.Second && o != nil && o.Cause == promote.NoneCan && strings.Contains(o.Reason, "b: "+silentWatch)
	})
	if err := d.AllowEmpty(t.Context(), 0, false); errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), silentWatch) {
		t.Errorf("an order to start empty beside b: got %v, want it refused, with what is wrong with b", err)
	}
	if head, err := reader.Head(t.Context()); err != nil || head != before {
		t.Errorf("got the head at %+v, %v, want it still at %+v: b must not be elected before it has applied all",
			head.Head, err, before.Head)
	}
	b.unsilence()
	w.serving(b, d).has(append(keys("k", 5), "last")...)
}
