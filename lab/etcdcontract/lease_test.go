package etcdcontract

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// revokeTick is how much later than its TTL a key may go.
const revokeTick = 500 * time.Millisecond

// waitGone waits until a key is deleted, and returns when.
func (e etcd) waitGone(t *testing.T, key string, from int64) time.Time {
	t.Helper()
	for resp := range e.Watch(within(t, step), key, clientv3.WithRev(from)) {
		if err := resp.Err(); err != nil {
			t.Fatal(err)
		}
		for _, event := range resp.Events {
			if event.Type == clientv3.EventTypeDelete {
				return time.Now()
			}
		}
	}
	t.Fatalf("%s does not go", key)
	return time.Time{}
}

func leasesExpire(t *testing.T, e etcd) {
	const ttl = 2 * time.Second
	sent := time.Now()
	lease := e.grant(t, ttl)
	granted := time.Now()
	from := e.put(t, "b", "", clientv3.WithLease(lease))
	e.put(t, "a", "", clientv3.WithLease(lease))
	last := e.put(t, "stays", "")
	gone := e.waitGone(t, "a", from)
	if after := gone.Sub(sent); after < ttl {
		t.Errorf("the key went after %v, before its TTL", after)
	}
	if after := gone.Sub(granted); after > ttl+revokeTick+e.slack {
		t.Errorf("the key went after %v", after)
	}
	r := e.get(t, "", clientv3.WithPrefix())
	wantKeys(t, r.Kvs, "stays=")
	if r.Header.Revision != last+1 {
		t.Errorf("two keys went with their lease: revision %d, want one behind %d", r.Header.Revision, last)
	}
	info, err := e.TimeToLive(within(t, step), lease)
	if err != nil || info.TTL != -1 {
		t.Errorf("a lease that has run out: %v, %v", info, err)
	}
}

func leasesKept(t *testing.T, e etcd) {
	const ttl = 2 * time.Second
	lease := e.grant(t, ttl)
	from := e.put(t, "k", "", clientv3.WithLease(lease))
	var last time.Time
	for range 4 {
		tick := time.NewTimer(ttl / 2)
		<-tick.C
		last = time.Now()
		resp, err := e.KeepAliveOnce(within(t, step), lease)
		if err != nil || resp.TTL != int64(ttl/time.Second) {
			t.Fatalf("a keepalive: %v, %v", resp, err)
		}
	}
	info, err := e.TimeToLive(within(t, step), lease, clientv3.WithAttachedKeys())
	if err != nil || info.GrantedTTL != 2 || info.TTL < 1 || len(info.Keys) != 1 {
		t.Errorf("after a keepalive: %v, %v", info, err)
	}
	if after := e.waitGone(t, "k", from).Sub(last); after < ttl || after > ttl+revokeTick+e.slack {
		t.Errorf("the key went %v after the last keepalive", after)
	}
}

// While etcd is away no lease runs out, and when it is back each has its full TTL
// again, or somewhat more: a primary's session outlasts the outage.
func leasesBehindOutage(t *testing.T, e etcd) {
	const ttl = 3 * time.Second
	lease := e.grant(t, ttl)
	from := e.put(t, "k", "", clientv3.WithLease(lease))
	<-time.NewTimer(ttl / 2).C
	e.down()
	<-time.NewTimer(ttl).C
	before := time.Now()
	e.up()
	back := time.Now()
	gone := e.waitGone(t, "k", from)
	if after := gone.Sub(before); after < ttl {
		t.Errorf("the key went %v after etcd began to come back, before its TTL", after)
	}
	if after := gone.Sub(back); after > ttl+revokeTick+e.slack {
		t.Errorf("the key went %v after etcd was back", after)
	}
}

func leasesRevoked(t *testing.T, e etcd) {
	lease := e.grant(t, time.Minute)
	e.put(t, "a", "", clientv3.WithLease(lease))
	last := e.put(t, "b", "", clientv3.WithLease(lease))
	if _, err := e.Revoke(within(t, step), lease); err != nil {
		t.Fatal(err)
	}
	r := e.get(t, "", clientv3.WithPrefix())
	wantKeys(t, r.Kvs)
	if r.Header.Revision != last+1 {
		t.Errorf("revision %d behind %d", r.Header.Revision, last)
	}
	empty := e.grant(t, time.Minute)
	if _, err := e.Revoke(within(t, step), empty); err != nil {
		t.Fatal(err)
	}
	if r := e.get(t, "a"); r.Header.Revision != last+1 {
		t.Errorf("a lease without keys moved the revision to %d", r.Header.Revision)
	}
}

func leaseChanges(t *testing.T, e etcd) {
	first, second := e.grant(t, time.Minute), e.grant(t, time.Minute)
	e.put(t, "k", "1", clientv3.WithLease(first))
	e.put(t, "k", "2", clientv3.WithLease(second))
	e.put(t, "free", "1", clientv3.WithLease(first))
	e.put(t, "free", "2")
	if _, err := e.Revoke(within(t, step), first); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, e.get(t, "", clientv3.WithPrefix()).Kvs, "free=2", "k=2")
	if _, err := e.Revoke(within(t, step), second); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, e.get(t, "", clientv3.WithPrefix()).Kvs, "free=2")
}

func shortLeases(t *testing.T, e etcd) {
	if min := int64(minLeaseTTL / time.Second); min > 1 {
		t.Fatal("nothing is shorter than the shortest")
	}
	resp, err := e.Grant(within(t, step), 0)
	if err == nil {
		if resp.TTL != int64(minLeaseTTL/time.Second) {
			t.Errorf("a TTL of 0 is raised to %d s", resp.TTL)
		}
	}
	_, err = e.Grant(within(t, step), 9_000_000_001)
	wantError(t, "a TTL of 300 years", err, rpctypes.ErrLeaseTTLTooLarge)
}

func unknownLease(t *testing.T, e etcd) {
	_, err := e.Revoke(within(t, step), 7)
	wantError(t, "revoking", err, rpctypes.ErrLeaseNotFound)
	_, err = e.KeepAliveOnce(within(t, step), 7)
	wantError(t, "keeping alive", err, rpctypes.ErrLeaseNotFound) // clientv3's word for a TTL of 0
	info, err := e.TimeToLive(within(t, step), 7)
	if err != nil || info.TTL != -1 {
		t.Errorf("asking for its time: %v, %v", info, err)
	}
}
