package promote_test

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

// The last primary took no part when the journal was founded anew. All memory that is free
// at the fork stays in quarantine, and the status says so. Memory that is mounted or freed
// later stays there for as long: that primary may have reserved it for writers that still
// write.
func TestFoundedWithoutThePrimary(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a, b := w.pair(5)
	used := a.Store().Stats().Busy
	a.ended.Store(true) // it answers nobody
	a.wire.cut()
	do(t, etcd, clientv3.OpDelete(layout.Root, clientv3.WithPrefix()))
	w.serving(b)
	if said := b.Status().Founded; !strings.Contains(said, "a is not here") {
		t.Errorf("it says %q, want it to name a, which is not here", said)
	}
	if s := b.Store().Stats(); s.Quarantined+used != s.Capacity {
		t.Errorf("A: got %d bytes in quarantine and %d used before, of %d; want all that is free in quarantine", s.Quarantined, used, s.Capacity)
	}
	b.has(keys("k", 5)...)
	m, err := b.primary()
	if err != nil {
		t.Fatal(err)
	}
	late := segment.Spec{ID: segment.ID{2}, Name: "b", Base: 2 << 32, Size: 1 << 30, Endpoint: "b:1", Client: segment.ClientID{1}}
	if err := m.MountSegment(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if s := b.Store().Stats(); s.Quarantined+used != s.Capacity {
		t.Errorf("A: got %d bytes in quarantine and %d used before, of %d; want all that is mounted later in quarantine", s.Quarantined, used, s.Capacity)
	}
	if held := b.Status().MountsHeldFor; held < params.ReleaseTimeout-10*time.Second {
		t.Errorf("A: what is mounted or freed is held for %v, want about %v", held, params.ReleaseTimeout)
	}
}

// A standby is away, and this node has read every commit until the journal was lost. So the
// standby was not elected in that time, and no memory is held back for it.
func TestFoundedBesideAnAbsentStandby(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a, b, c := w.trio(5)
	c.vanish()
	w.unregistered("c")
	do(t, etcd, clientv3.OpDelete(layout.Root, clientv3.WithPrefix()))
	now := w.founder(a, b)
	if said := now.Status().Founded; strings.Contains(said, "is not here") {
		t.Errorf("it says %q, want nobody missed", said)
	}
	if free := quarantined(now); free != 0 {
		t.Errorf("got %d bytes in quarantine, want none: the last primary took part", free)
	}
	now.has(keys("k", 5)...)
}

// foundedWithout checks that a node that founded the journal anew names an absent node, and
// that all memory beyond the used bytes is in quarantine.
func (n *node) foundedWithout(id string, used uint64) {
	n.net.t.Helper()
	if said := n.Status().Founded; !strings.Contains(said, id+" is not here") {
		n.net.t.Errorf("%s says %q, want it to name %s, which is not here", n.id, said, id)
	}
	if s := n.Store().Stats(); s.Quarantined+used != s.Capacity {
		n.net.t.Errorf("A: %s has %d bytes in quarantine and %d used before, of %d; want all that is free in quarantine", n.id, s.Quarantined, used, s.Capacity)
	}
}

// wipe deletes all keys of the cluster from etcd, and their history.
func (w *cluster) wipe() {
	w.t.Helper()
	gone, err := w.etcd.Client(w.t).Delete(w.t.Context(), layout.Root, clientv3.WithPrefix())
	if err != nil {
		w.t.Fatal(err)
	}
	w.etcd.Compact(w.t, gone.Header.Revision)
}

// A primary was cut off from etcd, another node was elected, and both that node and etcd's
// data are lost. The former primary knows of no later term, but it may have been deposed. So
// free memory stays in quarantine, and the status says so.
func TestFoundedByAPrimaryThatWasDeposed(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a, b := w.pair(5)
	used := a.Store().Stats().Busy
	a.wire.cut()
	waitFor(t, "b to serve", b.serves)
	b.reserve("reserved")
	b.ended.Store(true) // it answers nobody
	b.wire.cut()
	w.wipe()
	a.wire.heal()
	now := w.founder(a)
	now.foundedWithout("b", used)
	now.has(keys("k", 5)...)
}

// The primary and a standby were cut off from etcd for a moment. In that time a third node was
// elected, and then lost together with etcd's data. The standby was not away for long enough
// to doubt its state. But the primary may have been deposed without its knowledge, and it
// reports that.
func TestFoundedBesideAPrimaryThatWasDeposed(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	m := w.start("m")
	w.serving(m).mount()
	m.put(keys("k", 5)...)
	a, z := w.start("a"), w.start("z")
	w.promotable(a)
	w.promotable(z)
	w.know(m, a, z)
	w.equal(m, a)
	w.equal(m, z)
	used := m.Store().Stats().Busy
	m.wire.cut()
	a.wire.cut()
	waitFor(t, "z to serve", z.serves)
	z.reserve("reserved")
	z.ended.Store(true) // it answers nobody
	z.wire.cut()
	w.wipe()
	m.wire.heal()
	a.wire.heal()
	now := w.founder(m, a)
	now.foundedWithout("z", used)
	now.has(keys("k", 5)...)
}

// A standby was elected, and etcd's data were lost before it had read the last commits of the
// previous primary. It never served, so that primary counts as absent, and free memory stays
// in quarantine.
func TestFoundedByAnElectedNodeThatLagged(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a, b := w.pair(5)
	used := b.Store().Stats().Busy
	b.wire.lost.Store(true)
	waitFor(t, "b to read nothing", func() bool {
		before := b.Store().Position().Seq
		a.put("last")
		return a.Store().Position().Seq > b.Store().Position().Seq && b.Store().Position().Seq == before
	})
	a.reserve("reserved")
	a.vanish()
	waitFor(t, "b to be elected", func() bool { return b.Status().Self.Role == promote.Promoting })
	w.wipe()
	b.wire.cut()
	b.wire.lost.Store(false)
	b.wire.heal()
	now := w.founder(b)
	now.foundedWithout("a", used)
	now.has(keys("k", 5)...)
}

// The lost primary had a longer lease TTL than the node that founds the journal anew. Free
// memory stays in quarantine for the leases that it may have granted.
func TestAForkWaitsForTheLeasesOfTheLostPrimary(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	of := func(ttl time.Duration) func(*promote.Config) {
		return func(c *promote.Config) {
			c.Params = metadata.Params{LeaseTTL: ttl, DiscardTimeout: time.Second, ReleaseTimeout: 2 * time.Second}
		}
	}
	a := w.start("a", of(time.Minute))
	w.serving(a).mount()
	a.put("k")
	b := w.start("b", of(time.Second))
	w.promotable(b)
	w.know(a, b)
	used := a.Store().Stats().Busy
	a.ended.Store(true) // it answers nobody
	a.wire.cut()
	do(t, etcd, clientv3.OpDelete(layout.Head()))
	now := w.founder(b).Store()
	begun := now.Time()
	waitFor(t, "the end of b's own times", func() bool { return now.Time() > begun.Add(4*time.Second) })
	if s := now.Stats(); s.Quarantined+used != s.Capacity {
		t.Errorf("A: got %d bytes in quarantine and %d used before, of %d; want all that is free in quarantine for a minute", s.Quarantined, used, s.Capacity)
	}
}
