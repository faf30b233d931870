package promote_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// A renewal is a lease that an answered read gave.
type renewal struct {
	at  time.Duration // when the answer came
	key string
	end metadata.Time
}

// read reads keys from a primary until stop is called, which returns the answered renewals.
func (n *node) read(list []string) (stop func() []renewal) {
	m, store, boot := n.master.Load(), n.Store(), clock.Boot()
	ctx, cancel := context.WithCancel(n.net.t.Context())
	var all []renewal
	var reading sync.WaitGroup
	reading.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			key := list[i%len(list)]
			if _, err := m.GetReplicaList(ctx, "default", key); err == nil {
				all = append(all, renewal{boot(), key, leaseEnd(store, key)})
			}
			_ = clock.Sleep(ctx, time.Millisecond)
		}
	})
	n.net.t.Cleanup(func() { cancel(); reading.Wait() })
	return func() []renewal { cancel(); reading.Wait(); return all }
}

func leaseEnd(store *metadata.Store, key string) metadata.Time {
	e := store.Lock("default", key)
	defer e.Unlock()
	return e.LeaseEnd()
}

// etcd stalls for almost a session TTL while clients read. The primary stops answering when its
// serve window has passed, so renewals that only it knows do not pile up. The node that serves
// next knows all renewals but those of the last moment.
func TestRenewalsWhileEtcdStalls(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"the primary lives": false, "the primary dies in it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.Start(t)
			w := newCluster(t, etcd)
			patient := func(c *promote.Config) { c.SessionTTL = 5 * time.Second }
			a := w.start("a", patient)
			w.serving(a).mount()
			list := keys("k", 20)
			a.put(list...)
			b := w.start("b", patient)
			w.promotable(b)
			w.know(a, b)
			stop, boot := a.read(list), clock.Boot()
			before := leaseEnd(a.Store(), list[0])
			waitFor(t, "b to know of a renewal", func() bool { return leaseEnd(b.Store(), list[0]) > before })

			window := a.Status().Window
			etcd.Pause(0)
			paused := boot()
			_ = clock.Sleep(t.Context(), 4100*time.Millisecond)
			if dies {
				a.wire.cut()
			}
			all := stop()
			etcd.Resume(0)
			if len(all) == 0 {
				t.Fatal("got no read answered, want some before the stall and for the window after it")
			}
			silent := all[len(all)-1].at
			if after := silent - paused; after > window+1500*time.Millisecond {
				t.Errorf("F: the last read was answered %v after etcd stalled, want at most the window of %v, and 1.5s",
					after, window)
			}
			if dies {
				defer a.wire.heal() // so that it ends quickly
			}
			now, lost := w.serving(a, b), 0
			if dies {
				now = w.serving(b)
			}
			for _, r := range all {
				if r.at < silent-2*time.Second && leaseEnd(now.Store(), r.key) < r.end {
					lost++
				}
			}
			if lost > 0 {
				t.Errorf("L: %s lacks %d of %d renewals, want all that were answered more than 2s before the silence",
					now.id, lost, len(all))
			}
		})
	}
}
