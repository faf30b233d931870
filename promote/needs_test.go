package promote_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote"
)

// A lazyPeers takes a while for a snapshot, as over a slow connection.
type lazyPeers struct {
	promote.Peers
	takes   time.Duration
	fetches *atomic.Int64
}

func (p lazyPeers) Fetch(ctx context.Context, address string, add func([]byte) error) (journal.Cursor, error) {
	p.fetches.Add(1)
	at, err := p.Peers.Fetch(ctx, address, add)
	return at, errors.Join(err, clock.Sleep(ctx, p.takes))
}

// The journal is kept for a node that loads a snapshot, even for longer than the events TTL.
func TestASnapshotMayTakeLongerThanEventsLive(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	brief := func(c *promote.Config) { c.EventsTTL = 2 * time.Second }
	a := w.start("a", brief)
	w.serving(a).mount()
	a.put("before")
	var fetches atomic.Int64
	b := w.start("b", brief, func(c *promote.Config) { c.Peers = lazyPeers{c.Peers, 6 * time.Second, &fetches} })
	waitFor(t, "b to say what it needs", func() bool { return fetches.Load() == 1 && b.Needs(t) })
	n := 0
	waitFor(t, "b's snapshot", func() bool {
		a.put(fmt.Sprint("meanwhile", n))
		n++
		return b.Status().Complete
	})
	if got := fetches.Load(); got != 1 {
		t.Errorf("b loaded %d snapshots until one was of use, want 1", got)
	}
	w.equal(a, b)
	waitFor(t, "b to need no more", func() bool { return !b.Needs(t) })
}

// Needs reports whether the registration of a node says that it needs the journal.
func (n *node) Needs(t *testing.T) bool {
	t.Helper()
	nodes, err := n.Nodes(t.Context())
	for _, o := range nodes {
		if o.ID == n.id {
			return err == nil && o.Needs != promote.NodeInfo{}.Needs
		}
	}
	return false
}

// A standby that owns etcd compacts its history even if it gets no state.
func TestAnOwnerThatDoesNotFollowCompacts(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	brief := func(c *promote.Config) { c.EventsTTL = time.Second }
	a := w.start("a", brief, func(c *promote.Config) { c.Compact = false })
	w.serving(a).mount()
	b := w.start("b", brief, func(c *promote.Config) { c.OwnsEtcd, c.Compact, c.Peers = true, true, noSnapshots{c.Peers} })
	a.put("before")
	client, n := etcd.Client(t), 0
	behind, err := client.Get(t.Context(), layout.Head())
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the cut", func() bool {
		a.put(fmt.Sprint("more", n))
		n++
		_, err := client.Get(t.Context(), layout.Head(), clientv3.WithRev(behind.Header.Revision))
		return errors.Is(err, rpctypes.ErrCompacted)
	})
	if b.Status().Complete {
		t.Error("b is complete, want one that does not follow the journal")
	}
}

// A save may take any time while it makes progress, and fails after a minute without progress.
func TestASaveIsBoundedByItsProgress(t *testing.T) {
	for what, tc := range map[string]struct {
		pause time.Duration
		fails bool
	}{"slow": {50 * time.Second, false}, "hangs": {70 * time.Second, true}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := promote.SaveInTime(t.Context(), func(wrote func()) error {
					for range 5 {
						time.Sleep(tc.pause)
						wrote()
					}
					return nil
				})
				if (err != nil) != tc.fails {
					t.Errorf("got %v, want an error: %v", err, tc.fails)
				}
				synctest.Wait()
				time.Sleep(10 * time.Minute) // whatever hung is over
			})
		})
	}
}
