package metadata_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

// Soft pins end while a caller begins removals of the same objects and gives them up. What it
// marks in an object stays marked, and what it takes back stays away: else a reader would get a
// lease on an object whose removal is on its way (promise L).
func TestPinsEndBesideRemovals(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	begin := func(key string) (*metadata.Removal, bool) {
		e := c.primary.Lock(metadata.DefaultTenant, key)
		defer e.Unlock()
		if e.Busy() {
			return nil, false
		}
		return e.BeginRemoval(c.now), e.Busy()
	}
	for round := 0; round < 1000 && !t.Failed(); round++ {
		keys := []string{"k0", "k1", "k2", "k3"}
		for _, key := range keys {
			c.put(key, func(p *metadata.Put) { p.SoftPin = time.Second })
		}
		c.pass(2 * time.Second)
		c.must(c.commit())
		var stop atomic.Bool
		var wg sync.WaitGroup
		going := make(chan struct{})
		begun := sync.OnceFunc(func() { close(going) })
		wg.Go(func() {
			for !stop.Load() {
				for _, key := range keys {
					r, busy := begin(key)
					begun()
					if r == nil || !busy {
						t.Errorf("a removal of %s has begun: got %v, and the object is busy: %v; want a removal, and busy until it is given up", key, r, busy)
						stop.Store(true)
						return
					}
					r.Abort()
				}
			}
		})
		<-going
		c.primary.Tidy(1 << 20)
		stop.Store(true)
		wg.Wait()
		for _, key := range keys {
			c.must([]error{c.remove(key, true)})
		}
		c.pass(time.Hour)
		c.must(c.commit())
	}
}

// A put in place takes the bytes that the object had. While it is applied nobody else gets
// them from the tenant's quota.
func TestUpsertInPlaceKeepsItsCharge(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.must([]error{c.setQuota("red", 200)})
	for _, key := range []string{"k", "l"} {
		c.must([]error{c.putStart(key, of("red"))})
		c.endOf("red", key)
	}
	var stop atomic.Bool
	var admitted, refused atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; !stop.Load(); i++ {
			put := metadata.Put{Tenant: "red", Key: fmt.Sprint("m", i%64), Client: client(2), Size: 100, Replicas: 1, Metered: true}
			e, _, _, err := c.primary.PreparePutStart(&put, 1000)
			if err != nil {
				refused.Add(1)
				continue
			}
			admitted.Add(1)
			e.Abort(c.primary)
		}
	})
	for i := 0; i < 2000 || refused.Load() < 2000 && admitted.Load() == 0; i++ {
		c.pass(time.Millisecond)
		e, err := c.preparePut("k", of("red"), func(p *metadata.Put) { p.Upsert = true })
		if err != nil || !e.InPlace {
			t.Fatalf("an upsert of the same size: got %+v, %v, want one in place", e, err)
		}
		c.must(c.commit(e))
		c.endOf("red", "k")
	}
	stop.Store(true)
	wg.Wait()
	if n := admitted.Load(); n > 0 {
		t.Errorf("of a quota of 200 bytes 200 are in use, and %d puts of 100 bytes were admitted (%d refused), want none", n, refused.Load())
	}
	c.wantCharged("red", 200)
}
