package etcdtest_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/etcdtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func put(t *testing.T, c *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := c.Put(deadline(t, 20*time.Second), key, value); err != nil {
		t.Fatalf("put %s: got %v, want no error", key, err)
	}
}

func wantValue(t *testing.T, c *clientv3.Client, key, want string) {
	t.Helper()
	r, err := c.Get(deadline(t, 20*time.Second), key)
	if err != nil {
		t.Fatalf("get %s: got %v, want no error", key, err)
	}
	if len(r.Kvs) != 1 || string(r.Kvs[0].Value) != want {
		t.Errorf("get %s: %v, want %q", key, r.Kvs, want)
	}
}

// wantSilence checks that a member answers nothing, although its connection
// is there.
func wantSilence(t *testing.T, c *clientv3.Client) {
	t.Helper()
	_, err := c.Get(deadline(t, 300*time.Millisecond), "k")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused member: got %v, want no answer at all", err)
	}
}

func TestOneNode(t *testing.T) {
	began := time.Now()
	etcd := etcdtest.Start(t)
	t.Logf("one member was ready after %v", time.Since(began))
	c := etcd.Client(t)
	put(t, c, "k", "v")
	wantValue(t, c, "k", "v")
	if got := etcd.Leader(); got != 0 {
		t.Errorf("the leader of a cluster of one: got member %d, want 0", got)
	}
}

func TestShortLeaseExpires(t *testing.T) {
	c := etcdtest.Start(t).Client(t)
	watch := c.Watch(t.Context(), "k")
	lease, err := c.Grant(t.Context(), int64(etcdtest.MinLeaseTTL.Seconds()))
	if err != nil {
		t.Fatal(err)
	}
	granted := time.Now()
	if _, err := c.Put(t.Context(), "k", "v", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	timeout := time.After(10 * time.Second)
	for {
		select {
		case r := <-watch:
			for _, e := range r.Events {
				if e.Type != mvccpb.Event_DELETE {
					continue
				}
				took := time.Since(granted)
				t.Logf("the key went after %v", took)
				if took < etcdtest.MinLeaseTTL-50*time.Millisecond {
					t.Errorf("the lease ended early: got %v, want at least its TTL of %v", took, etcdtest.MinLeaseTTL)
				}
				return
			}
		case <-timeout:
			t.Fatal("the key is still there 10s after its lease was granted, want it deleted when the lease expires")
		}
	}
}

func TestRestartKeepsData(t *testing.T) {
	for name, nodes := range map[string]int{"one node": 1, "three nodes": 3} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t, etcdtest.WithNodes(nodes))
			c := etcd.Client(t) // keeps working: the endpoints stay
			put(t, c, "k", "v")
			etcd.StopAll()
			if etcd.Leader() != -1 {
				t.Errorf("a stopped cluster: got member %d as its leader, want none", etcd.Leader())
			}
			if conn, err := net.Dial("tcp", etcd.Endpoint(0)); err == nil {
				_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
				if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("reading from a stopped member: got %v, want the connection closed", err)
				}
				_ = conn.Close()
			}
			etcd.StartAll()
			wantValue(t, c, "k", "v")
		})
	}
}

func TestThreeNodesSurviveTheirLeader(t *testing.T) {
	began := time.Now()
	etcd := etcdtest.Start(t, etcdtest.WithNodes(3))
	t.Logf("three members were ready after %v", time.Since(began))
	c := etcd.Client(t)
	put(t, c, "k", "1")

	old := etcd.WaitLeader(t)
	etcd.Stop(old)
	if now := etcd.WaitLeader(t); now == old {
		t.Fatalf("member %d is stopped: got it as the leader, want another one", old)
	}
	put(t, c, "k", "2")

	etcd.Start(old)
	wantValue(t, etcd.ClientOf(t, old), "k", "2")
}

func TestPauseOneNode(t *testing.T) {
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	put(t, c, "k", "before")

	etcd.Pause(0)
	wantSilence(t, c)
	answered := make(chan error, 1)
	ctx := deadline(t, 20*time.Second)
	go func() {
		_, err := c.Put(ctx, "k", "during")
		answered <- err
	}()
	wantSilence(t, etcd.Client(t)) // a new connection hears nothing either
	select {
	case err := <-answered:
		t.Fatalf("a paused member answered a put with %v, want no answer until it resumes", err)
	default:
	}
	etcd.Resume(0)
	if err := <-answered; err != nil {
		t.Fatalf("a put that waited for the end of the pause: got %v, want no error", err)
	}
	wantValue(t, c, "k", "during")
}

func TestPauseLeaderOfThree(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithNodes(3))
	old := etcd.WaitLeader(t)
	cut := etcd.ClientOf(t, old)
	put(t, cut, "k", "before")

	etcd.Pause(old)
	now := etcd.WaitLeader(t)
	if now == old {
		t.Fatalf("member %d is paused: got it from WaitLeader, want another one", old)
	}
	put(t, etcd.ClientOf(t, now), "k", "during")
	wantSilence(t, cut)

	etcd.Resume(old)
	wantValue(t, cut, "k", "during") // linearizable: it has rejoined
}

func TestPausedFollowerHearsAndSaysNothing(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithNodes(3))
	leader := etcd.WaitLeader(t)
	paused, other := (leader+1)%3, (leader+2)%3
	c := etcd.ClientOf(t, leader)
	put(t, c, "k", "1")
	waitRevision(t, etcd, paused, etcd.Revision(leader))

	etcd.Pause(paused)
	before := etcd.Revision(paused)
	for range 20 {
		put(t, c, "k", "2") // two of three are a majority
	}
	waitRevision(t, etcd, other, etcd.Revision(leader))
	if after := etcd.Revision(paused); after != before {
		t.Errorf("a paused member applied writes: got revision %d, want %d as before them", after, before)
	}
	etcd.Stop(other)
	if _, err := c.Put(deadline(t, time.Second), "k", "3"); err == nil {
		t.Error("a put with one member stopped and one paused: got no error, want one, as the leader is no majority")
	}

	etcd.Resume(paused)
	put(t, c, "k", "4")
	waitRevision(t, etcd, paused, etcd.Revision(leader))
}

// waitRevision waits until a member has applied a revision.
func waitRevision(t *testing.T, etcd *etcdtest.Cluster, i int, rev int64) {
	t.Helper()
	ctx := deadline(t, 20*time.Second)
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for etcd.Revision(i) < rev {
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("member %d stays at revision %d, want %d", i, etcd.Revision(i), rev)
		}
	}
}

func TestCutClients(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithNodes(3))
	leader := etcd.WaitLeader(t)
	c := etcd.ClientOf(t, leader)
	first, err := c.Put(t.Context(), "k", "1")
	if err != nil {
		t.Fatal(err)
	}
	// With its revision: without, clientv3 resumes a watch that has seen no
	// event yet at the revision before it.
	watch := c.Watch(t.Context(), "k", clientv3.WithRev(first.Header.Revision+1), clientv3.WithCreatedNotify())
	if r := <-watch; !r.Created {
		t.Fatalf("the first answer of a watch: got %+v, want that it is created", r)
	}

	etcd.CutClients(leader)
	if _, err := c.Put(deadline(t, 300*time.Millisecond), "k", "lost"); err == nil {
		t.Error("a put by a client that is cut off: got no error, want none of its calls to reach the member")
	}
	put(t, etcd.ClientOf(t, (leader+1)%3), "k", "2")
	if now := etcd.WaitLeader(t); now != leader {
		t.Errorf("cutting clients moved the leader: got member %d, want %d still", now, leader)
	}

	etcd.HealClients(leader)
	wantValue(t, c, "k", "2")
	select {
	case r := <-watch: // clientv3 resumes it
		if got := string(r.Events[0].Kv.Value); got != "2" {
			t.Errorf("the watch that resumed after the cut: got %q, want \"2\"", got)
		}
	case <-time.After(20 * time.Second):
		t.Error("the watch shows nothing 20s after the link was healed, want it resumed")
	}
}

func TestQuota(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithQuota(4<<20))
	c := etcd.Client(t)
	rev := etcd.FillQuota(t)
	if _, err := c.Put(deadline(t, 20*time.Second), "k", "v"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("put into a full etcd: %v, want NOSPACE", err)
	}
	alarms, err := c.AlarmList(t.Context())
	if err != nil || len(alarms.Alarms) != 1 || alarms.Alarms[0].Alarm != etcdserverpb.AlarmType_NOSPACE {
		t.Fatalf("alarms: %v, %v; want NOSPACE", alarms, err)
	}

	etcd.Compact(t, rev)
	etcd.Defrag(t)
	if _, err := c.AlarmDisarm(t.Context(), (*clientv3.AlarmMember)(alarms.Alarms[0])); err != nil {
		t.Fatal(err)
	}
	put(t, c, "k", "v")
}
