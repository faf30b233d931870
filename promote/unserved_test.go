package promote_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/promote"
)

// view is the key that clients of Mooncake read.
const view = "mooncake-store/test/master_view"

// withUsers has etcd demand users: root, and node, which may read the cluster's prefix and
// nothing else. It returns root's client.
func withUsers(t *testing.T, etcd *etcdtest.Cluster) *clientv3.Client {
	t.Helper()
	admin, ctx := etcd.Client(t), t.Context()
	for _, user := range []string{"root", "node"} {
		must(admin.UserAdd(ctx, user, "secret"))
		must(admin.RoleAdd(ctx, user))
		must(admin.UserGrantRole(ctx, user, user))
	}
	prefix := "/understudy/"
	permit(t, admin, clientv3.PermRead, prefix, clientv3.GetPrefixRangeEnd(prefix))
	must(admin.AuthEnable(ctx))
	return asUser(t, etcd, "root")
}

// permit lets node read, or read and write, the keys from one on and before another.
func permit(t *testing.T, admin *clientv3.Client, may authpb.Permission_Type, from, end string) {
	t.Helper()
	must(admin.RoleGrantPermission(t.Context(), "node", from, end, clientv3.PermissionType(may)))
}

func asUser(t *testing.T, etcd *etcdtest.Cluster, user string, options ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	client := must(clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints(), Username: user, Password: "secret", Logger: zap.NewNop(), DialOptions: options}))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// noRevoke keeps leases from being revoked, so that their keys stand until somebody deletes them.
func noRevoke(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	if method == "/etcdserverpb.Lease/LeaseRevoke" {
		return errCut
	}
	return invoke(ctx, method, req, reply, conn, options...)
}

// unusedDays returns the leases that live for longer than an hour, as those of records, and
// that no key has.
func unusedDays(t *testing.T, client *clientv3.Client) (ids []clientv3.LeaseID) {
	t.Helper()
	for _, l := range must(client.Leases(t.Context())).Leases {
		of := must(client.TimeToLive(t.Context(), l.ID, clientv3.WithAttachedKeys()))
		if of.GrantedTTL > 3600 && len(of.Keys) == 0 {
			ids = append(ids, l.ID)
		}
	}
	return ids
}

// etcd lets a node stand for election and refuses the first entry of its term, since the node's
// user may not write the key for Mooncake's clients. The node waits longer before each
// election, leaves neither leader keys nor leases behind, and says what is wrong. It serves
// when it has the permission.
func TestATermThatEtcdRefuses(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	root := withUsers(t, etcd)
	permit(t, root, clientv3.PermReadWrite, "/understudy/", "/understudy0")
	elections := root.Watch(t.Context(), layout.Leader(), clientv3.WithPrevKV())
	w := newCluster(t, etcd)
	b := w.start("b", func(c *promote.Config) {
		c.Layout.View = view
		c.Client, c.Sessions = asUser(t, etcd, "node"), asUser(t, etcd, "node", grpc.WithChainUnaryInterceptor(noRevoke))
		c.Random = func() float64 { return 0.5 } // waits are neither longer nor shorter
	})
	const bounded = 5
	var first time.Time
	for elected := 0; elected < bounded; {
		for _, e := range (<-elections).Events {
			switch {
			case e.IsCreate():
				if elected++; elected == 1 {
					first = time.Now()
				}
			case e.Type == clientv3.EventTypeDelete:
				if session := must(root.TimeToLive(t.Context(), clientv3.LeaseID(e.PrevKv.Lease))); session.TTL <= 0 {
					t.Error("the leader key went with its session, want it deleted: etcd permits that")
				}
			}
		}
	}
	if took := time.Since(first); took < 2500*time.Millisecond { // of waits of 0.2, 0.4, 0.8 and 1.6 s
		t.Fatalf("%d elections within %v, want the node to wait longer each time", bounded, took)
	}
	waitFor(t, "the reason in the status", func() bool {
		o := b.Status().Obstacle
		return o != nil && o.Cause == promote.EtcdRefuses && strings.Contains(o.Reason, "beginning term") && strings.Contains(o.Help, "mooncake-store/")
	})
	if b.serves() {
		t.Error("b serves in a term that etcd refused to begin, want it not to serve")
	}
	waitFor(t, "the end of leases that are of no use", func() bool { return len(unusedDays(t, root)) == 0 })

	permit(t, root, clientv3.PermReadWrite, "mooncake-store/", "mooncake-store0")
	w.serving(b)
	if o := b.Status().Obstacle; o != nil {
		t.Errorf("b serves: got the obstacle %+v, want none", o)
	}
}

// The time without a primary counts from the one that served before, through elections that led
// nowhere, and so does the reason.
func TestGapBeforeATermThatEtcdRefused(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	root := withUsers(t, etcd)
	permit(t, root, clientv3.PermReadWrite, "/understudy/", "/understudy0")
	w := newCluster(t, etcd)
	journal, sessions := asUser(t, etcd, "root"), asUser(t, etcd, "root")
	a := w.start("a", func(c *promote.Config) { c.Layout.View, c.Client, c.Sessions = view, journal, sessions })
	w.serving(a).mount()
	b := w.start("b", func(c *promote.Config) {
		c.Layout.View, c.Random = view, func() float64 { return 0.5 }
		c.Client, c.Sessions = asUser(t, etcd, "node"), asUser(t, etcd, "node")
	})
	w.promotable(b)
	waitFor(t, "b to know a", func() bool { return b.Status().Leader.NodeID == "a" })
	elections := root.Watch(t.Context(), layout.Leader())
	for _, c := range []*clientv3.Client{journal, sessions} { // so that it neither hands over nor resigns
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	a.vanish()
	for elected := 0; elected < 3; {
		resp, open := <-elections
		if !open {
			t.Fatal("the watch of the leader key ended, want it to go on until the third election")
		}
		for _, e := range resp.Events {
			if e.IsCreate() {
				elected++
			}
		}
	}
	permit(t, root, clientv3.PermReadWrite, "mooncake-store/", "mooncake-store0")
	w.serving(b)
	// Between the first election, of three, and the last there are two pauses: 0.6 s.
	var last promote.TermRecord
	waitFor(t, "the record of b's term", func() bool {
		list := must(b.Terms(t.Context()))
		last = list[len(list)-1]
		return last.NodeID == "b"
	})
	if last.Gap < 600 || !strings.HasPrefix(last.Why, "the leader key of a was gone") {
		t.Errorf("got a gap of %d ms, since %s; want 600 ms at least, since a's key was gone", last.Gap, last.Why)
	}
}

// etcd refuses each election: what was granted for its records does not stay.
func TestAnElectionThatEtcdRefuses(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	root := withUsers(t, etcd)
	permit(t, root, clientv3.PermReadWrite, "/understudy/", layout.Leader())
	permit(t, root, clientv3.PermReadWrite, layout.Leader()+"\x00", "/understudy0")
	b := newCluster(t, etcd).start("b", func(c *promote.Config) {
		c.Client, c.Sessions = asUser(t, etcd, "node"), asUser(t, etcd, "node")
	})
	waitFor(t, "the reason in the status", func() bool {
		o := b.Status().Obstacle
		return o != nil && o.Cause == promote.EtcdRefuses && strings.Contains(o.Reason, "running for election")
	})
	waitFor(t, "the end of leases that are of no use", func() bool { return len(unusedDays(t, root)) == 0 })
}

// After a failure that passes a node pauses for no longer than a session, also behind refusals
// of etcd, after which it pauses for up to half a minute.
func TestPausesAfterVainElections(t *testing.T) {
	n := promote.New(promote.Config{SessionTTL: 10 * time.Second, Random: func() float64 { return 0.999 }, Clock: func() time.Duration { return time.Minute }, Log: zerolog.Nop()})
	pause := time.Duration(0)
	for range 6 {
		pause = n.Unserved(rpctypes.ErrNoSpace)
	}
	if pause != 30*time.Second {
		t.Errorf("got %v after many refusals, want 30s", pause)
	}
	for range 3 {
		if pause := n.Unserved(context.DeadlineExceeded); pause > 10*time.Second {
			t.Errorf("got %v after a failure that passes, want no more than a session", pause)
		}
	}
}
