package promote_test

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/promote"
)

// A standby was cut off while etcd went back to a backup. The backup has the leader key, and a
// later head than the standby had seen. Those commits were made before the backup, so they do
// not show that the primary lives.
func TestARollbackToALaterHead(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a, b := w.pair(5)
	w.equal(a, b)
	b.wire.noTxn.Store(true) // it follows the journal again before it looks who leads
	b.wire.cut()
	since := time.Now()
	a.put(keys("m", 5)...)
	waitFor(t, "b to be cut off for some time", func() bool { return time.Since(since) > 3*time.Second })
	restore := etcd.Backup()
	a.put(keys("l", 50)...)
	a.wire.cut()
	restore()
	client := etcd.Client(t)
	leader, err := client.Get(t.Context(), layout.Leader())
	if err != nil || len(leader.Kvs) != 1 {
		t.Fatalf("the backup has %d leader keys, %v; want one", len(leader.Kvs), err)
	}
	lease := clientv3.LeaseID(leader.Kvs[0].Lease)
	kept := func() bool {
		_, err := client.KeepAliveOnce(t.Context(), lease)
		return err == nil
	}
	read := b.Store().Position().Seq
	b.wire.heal()
	waitFor(t, "b to follow the journal again", func() bool { return kept() && b.Store().Position().Seq > read })
	b.wire.noTxn.Store(false)
	a.misses.Store(1) // and is asked again
	since = time.Now()
	waitFor(t, "b to see the leader key for some time", func() bool { return kept() && time.Since(since) > time.Second })
	if _, err := client.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "b to leave the election to a", func() bool {
		if b.serves() {
			t.Fatal("D: b serves without what a holds, want it to leave the election to a")
		}
		o := b.Status().Obstacle
		return o != nil && o.Cause == promote.AwaitsOthers && strings.Contains(o.Reason, "a holds more")
	})
	a.wire.heal()
	now := w.founder(a, b)
	if now != a {
		t.Errorf("D: %s founded the journal anew, want a, which holds more", now.id)
	}
	now.has(append(append(keys("k", 5), keys("m", 5)...), keys("l", 50)...)...)
	w.follows(now, b)
}
