package sim

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// waitDeleted returns when a key is deleted, and at which revision.
func waitDeleted(t *testing.T, c *clientv3.Client, key string, from int64) (time.Time, int64) {
	t.Helper()
	for resp := range c.Watch(t.Context(), key, clientv3.WithRev(from)) {
		for _, event := range resp.Events {
			if event.Type == clientv3.EventTypeDelete {
				return time.Now(), event.Kv.ModRevision
			}
		}
	}
	t.Fatalf("got no deletion of %s, want one", key)
	return time.Time{}, 0
}

func grant(t *testing.T, c *clientv3.Client, seconds int64) clientv3.LeaseID {
	t.Helper()
	lease, err := c.Grant(t.Context(), seconds)
	if err != nil {
		t.Fatal(err)
	}
	return lease.ID
}

func write(t *testing.T, c *clientv3.Client, key, value string, opts ...clientv3.OpOption) int64 {
	t.Helper()
	resp, err := c.Put(t.Context(), key, value, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// value returns a key's value, and which cluster said so.
func value(t *testing.T, c *clientv3.Client, key string) (value string, cluster uint64) {
	t.Helper()
	resp, err := c.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) > 0 {
		value = string(resp.Kvs[0].Value)
	}
	return value, resp.Header.ClusterId
}

// Leases that run out at one tick are revoked in the order of their ids.
func TestLeasesRunOut(t *testing.T) {
	in(t, etcdOptions{}, func(t *testing.T, _ *Server, _ *Link, c *clientv3.Client) {
		const ttl = 2 * time.Second
		granted := time.Now()
		var keys []string
		var from int64
		for range 16 {
			key := string(rune('a' + len(keys)))
			keys = append(keys, key)
			from = write(t, c, key, "", clientv3.WithLease(grant(t, c, int64(ttl/time.Second))))
		}
		for i, key := range keys {
			at, revision := waitDeleted(t, c, key, from+1)
			if after := at.Sub(granted); i == 0 && (after < ttl-ahead || after > ttl+expiryTick) {
				t.Errorf("%s was deleted after %v, want from %v to %v", key, after, ttl-ahead, ttl+expiryTick)
			}
			if want := from + 1 + int64(i); revision != want {
				t.Errorf("%s was deleted at revision %d, want %d", key, revision, want)
			}
		}
	})
}

// No lease runs out while the etcd is down, and then each has its full TTL again.
func TestLeasesWhileDown(t *testing.T) {
	in(t, etcdOptions{}, func(t *testing.T, s *Server, _ *Link, c *clientv3.Client) {
		const ttl = 3 * time.Second
		from := write(t, c, "k", "", clientv3.WithLease(grant(t, c, int64(ttl/time.Second))))
		time.Sleep(ttl / 2)
		s.Down()
		time.Sleep(time.Minute)
		s.Up()
		up := time.Now()
		at, _ := waitDeleted(t, c, "k", from)
		if after := at.Sub(up); after < ttl-ahead || after > ttl+expiryTick {
			t.Errorf("the key was deleted %v after the etcd came up, want from %v to %v", after, ttl-ahead, ttl+expiryTick)
		}
	})
}

func TestDownAndUp(t *testing.T) {
	in(t, etcdOptions{}, func(t *testing.T, s *Server, _ *Link, c *clientv3.Client) {
		before := write(t, c, "k", "kept")
		watch := c.Watch(t.Context(), "k", clientv3.WithRev(before+1))
		s.Down()
		if _, err := put(c, time.Second); err == nil {
			t.Error("a put while the etcd is down: got no error, want one")
		}
		s.Up()
		time.Sleep(lastRetry)
		if got, _ := value(t, c, "k"); got != "kept" {
			t.Errorf("after the outage: got %q, want %q", got, "kept")
		}
		write(t, c, "k", "new")
		if resp := <-watch; len(resp.Events) != 1 || string(resp.Events[0].Kv.Value) != "new" {
			t.Errorf("a watch from before the outage got %+v, want the put of %q", resp, "new")
		}
	})
}

func TestWipe(t *testing.T) {
	in(t, etcdOptions{}, func(t *testing.T, s *Server, _ *Link, c *clientv3.Client) {
		write(t, c, "k", "v")
		_, before := value(t, c, "k")
		s.Down()
		s.Wipe()
		s.Up()
		time.Sleep(lastRetry)
		got, cluster := value(t, c, "k")
		if got != "" || cluster == before || s.Revision() != 1 {
			t.Errorf("got value %q in cluster %x at revision %d, want none in another cluster than %x at 1", got, cluster, s.Revision(), before)
		}
	})
}

// A restored etcd is another cluster, at the revision of its backup, with the
// leases that there were.
func TestRestore(t *testing.T) {
	in(t, etcdOptions{}, func(t *testing.T, s *Server, _ *Link, c *clientv3.Client) {
		leased := write(t, c, "leased", "", clientv3.WithLease(grant(t, c, 2)))
		saved := write(t, c, "k", "saved")
		_, before := value(t, c, "k")
		backup := s.Backup()
		for range 10 {
			write(t, c, "k", "lost")
		}
		s.Down()
		s.Restore(backup)
		s.Up()
		time.Sleep(lastRetry)
		got, cluster := value(t, c, "k")
		if got != "saved" || cluster == before || s.Revision() != saved {
			t.Errorf("got value %q in cluster %x at revision %d, want %q in another cluster than %x at %d",
				got, cluster, s.Revision(), "saved", before, saved)
		}
		if _, revision := waitDeleted(t, c, "leased", leased); revision != saved+1 {
			t.Errorf("the lease of the backup ran out at revision %d, want %d", revision, saved+1)
		}
	})
}

func TestCompact(t *testing.T) {
	in(t, etcdOptions{}, func(t *testing.T, s *Server, l *Link, c *clientv3.Client) {
		watch := c.Watch(t.Context(), "k", clientv3.WithCreatedNotify())
		<-watch
		l.Cut()
		other := connect(t, s.Link("other"))
		write(t, other, "k", "1")
		last := write(t, other, "k", "2")
		if err := s.Compact(); err != nil {
			t.Fatal(err)
		}
		l.Heal()
		if resp := <-watch; resp.CompactRevision != last || !resp.Canceled {
			t.Errorf("a watch below the compaction got %+v, want it canceled, compacted at %d", resp, last)
		}
	})
}

func TestNoSpace(t *testing.T) {
	in(t, etcdOptions{QuotaBytes: 8 << 20}, func(t *testing.T, s *Server, _ *Link, c *clientv3.Client) {
		large := strings.Repeat("x", 512<<10)
		var err error
		for err == nil {
			_, err = c.Put(t.Context(), "k", large)
			time.Sleep(time.Second) // etcd measures its database when it commits, every 100 ms
		}
		if !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Fatalf("filling the etcd: got error %v, want %v", err, rpctypes.ErrNoSpace)
		}
		if err := s.Compact(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the compaction deletes in the background
		if _, err := c.Defragment(t.Context(), c.Endpoints()[0]); err != nil {
			t.Fatal(err)
		}
		if _, err := put(c, time.Second); !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Errorf("a put while the alarm is raised: got error %v, want %v", err, rpctypes.ErrNoSpace)
		}
		if _, err := c.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
			t.Fatal(err)
		}
		write(t, c, "k", "")
	})
}

// Bubbles do not see each other, although etcd has state of the whole program.
func TestTwoServers(t *testing.T) {
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := connect(t, newEtcd(t, etcdOptions{}).Link("client"))
				for i := range int64(100) {
					if got, want := write(t, c, "k", name), i+2; got != want {
						t.Fatalf("got revision %d, want %d", got, want)
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}
