package promote_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/promote"
)

// lateRegistrations returns a client with which a node registers too late: the node's lease in
// etcd ends before each write of the node's key for which ends returns true, given the number
// of the try.
func lateRegistrations(t *testing.T, etcd *etcdtest.Cluster, id string, ends func(try int64) bool) *clientv3.Client {
	t.Helper()
	var tries atomic.Int64
	late := func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if txn, ok := req.(*etcdserverpb.TxnRequest); ok && len(txn.Success) > 0 {
			put := txn.Success[0].GetRequestPut()
			if string(put.GetKey()) == layout.Node(id) && ends(tries.Add(1)) {
				if _, err := etcdserverpb.NewLeaseClient(conn).LeaseRevoke(ctx, &etcdserverpb.LeaseRevokeRequest{ID: put.GetLease()}); err != nil {
					return err
				}
			}
		}
		return call(ctx, method, req, reply, conn, options...)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: etcd.Endpoints(), Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(late)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A node whose session ended before it wrote its key, as on a machine that stalls, registers
// with a new session.
func TestASessionThatEndsBeforeTheRegistration(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a", func(c *promote.Config) {
		c.Sessions = lateRegistrations(t, etcd, "a", func(try int64) bool { return try <= 2 })
	})
	w.serving(a)
	if nodes, err := a.Nodes(t.Context()); err != nil || len(nodes) != 1 || nodes[0].ID != "a" {
		t.Errorf("the nodes are %v, %v; want a", nodes, err)
	}
}

// A node whose sessions always end before it writes its key gives up at some point.
func TestSessionsThatAlwaysEndBeforeTheRegistration(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	var later atomic.Int64
	boot := clock.Boot()
	a := w.start("a", func(c *promote.Config) {
		c.Clock = func() time.Duration { return boot() + time.Duration(later.Load()) }
		c.Sessions = lateRegistrations(t, etcd, "a", func(try int64) bool {
			if try == 3 {
				later.Store(int64(2 * time.Minute))
			}
			return true
		})
	})
	select {
	case err := <-a.done:
		a.done <- err
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.Errorf("the node ends with %v, want that etcd knew its lease no more", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the node runs after two minutes of failed registrations, want it to give up")
	}
}

// A primary loses only its registration. Then the answer to its new registration is lost, and
// so is the revocation of that lease. The key that the primary finds is its own, not that of an
// earlier process, and so is the leader key.
func TestARegistrationLeavesItsOwnTermAlone(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	var armed atomic.Bool
	var lost atomic.Int64 // the lease of the registration whose answer was lost
	loses := func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if armed.Load() {
			if _, ok := req.(*etcdserverpb.LeaseRevokeRequest); ok {
				return rpctypes.ErrGRPCTimeout
			}
			put := &etcdserverpb.PutRequest{}
			if r, ok := req.(*etcdserverpb.TxnRequest); ok && len(r.Success) == 1 {
				put = r.Success[0].GetRequestPut()
			}
			if string(put.GetKey()) == layout.Node("a") && lost.CompareAndSwap(0, put.GetLease()) {
				_ = invoke(ctx, method, req, reply, conn, options...)
				return rpctypes.ErrGRPCTimeout
			}
		}
		return invoke(ctx, method, req, reply, conn, options...)
	}
	a := w.start("a", steady, stateIn(t.TempDir(), time.Hour), func(c *promote.Config) { c.Sessions = etcd.Client(t, grpc.WithChainUnaryInterceptor(loses)) })
	w.serving(a).mount()
	a.put("k")
	c := etcd.Client(t)
	leader, err := c.Get(t.Context(), layout.Leader())
	if err != nil {
		t.Fatal(err)
	}
	self, err := c.Get(t.Context(), layout.Node("a"))
	if err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	if _, err := c.Revoke(t.Context(), clientv3.LeaseID(self.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a new registration", func() bool {
		now, err := c.Get(t.Context(), layout.Node("a"))
		return err == nil && lost.Load() != 0 && len(now.Kvs) == 1 && now.Kvs[0].Lease != self.Kvs[0].Lease && now.Kvs[0].Lease != lost.Load()
	})
	after, err := c.Get(t.Context(), layout.Leader())
	if err != nil || len(after.Kvs) != 1 || after.Kvs[0].CreateRevision != leader.Kvs[0].CreateRevision {
		t.Errorf("after the new registration got the leader key %v, %v; want it untouched: %v", after.Kvs, err, leader.Kvs)
	}
}

// A value that somebody wrote to a node's key by hand has no lease, so it would stay for ever.
// The node replaces it after the time in which another node with its id would have written the
// key again.
func TestRegistrationsThatSomebodyWrote(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	if _, err := etcd.Client(t).Put(t.Context(), layout.Node("a"), "nonsense"); err != nil {
		t.Fatal(err)
	}
	w := newCluster(t, etcd)
	a := w.start("a")
	w.serving(a)
	if nodes, err := a.Nodes(t.Context()); err != nil || len(nodes) != 1 || nodes[0].ID != "a" {
		t.Errorf("the nodes are %v, %v; want a", nodes, err)
	}
}

// Two nodes that advertise one address are taken for one another. The later one does not
// register; it does once the other's key has gone.
func TestNodesShareNoAddress(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a")
	w.serving(a)
	at := func(c *promote.Config) { c.RPC = "a" }
	b := w.start("b", at)
	select {
	case err := <-b.done:
		if b.done <- err; err == nil || !strings.Contains(err.Error(), `node "a" advertises the address of this node, a: give each node an --advertise-address`) {
			t.Errorf("the end of a node with another one's address: got %v, want an error that says what to do", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a node with another one's address runs, want it to end")
	}
	a.vanish()
	c := w.start("c", at)
	waitFor(t, "the registration of a node whose address was another one's", func() bool {
		nodes, err := c.Nodes(t.Context())
		return err == nil && len(nodes) == 1 && nodes[0].ID == "c"
	})
}

// registered writes a node's key as a node would, on a lease.
func registered(t *testing.T, etcd *etcdtest.Cluster, id, value string) {
	t.Helper()
	lease, err := etcd.Client(t).Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	do(t, etcd, clientv3.OpPut(layout.Node(id), value, clientv3.WithLease(lease.ID)))
}

// A node's key without a lease is no registration, whatever stands in it: the node may be away,
// and is waited for.
func TestKeysOfNodesWithoutALease(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a")
	w.serving(a).mount()
	a.put("k")
	b := w.start("b")
	w.promotable(b)
	w.listedComplete("a", "b")
	b.wire.cut()
	w.unregistered("b")
	do(t, etcd, clientv3.OpPut(layout.Node("b"), `{"node_id":"b","role":"standby","rpc_address":"b","formats":[1,99]}`))
	a.vanish()
	a = w.start("a", func(c *promote.Config) { c.OwnsEtcd, c.Alone, c.WaitForState = true, false, time.Hour })
	waitFor(t, "a to wait for b", func() bool {
		o := a.Status().Obstacle
		return o != nil && strings.Contains(o.Reason+o.Help, "b") && o.Cause == promote.AwaitsComplete
	})
	if s := a.Status(); s.Empty || a.serves() {
		t.Errorf("a node without a state serves: %v, from an empty state: %v; want it to wait for b, which holds all", a.serves(), s.Empty)
	}
}

// A copy of a machine has its node id and its state directory, with the id in it. It must not
// take the keys of the original, which serves on.
func TestACopyOfANodeTakesNoKeys(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	dir := t.TempDir()
	a := w.start("a", steady, stateIn(dir, 100*time.Millisecond))
	w.serving(a).mount()
	a.put("k")
	w.saved(a)
	revisions := func() (list []int64) {
		for _, key := range []string{layout.Leader(), layout.Node("a")} {
			resp, err := etcd.Client(t).Get(t.Context(), key)
			if err != nil || len(resp.Kvs) != 1 {
				t.Fatalf("key %s: got %v, %v, want one value", key, resp, err)
			}
			list = append(list, resp.Kvs[0].CreateRevision)
		}
		return list
	}
	before := revisions()
	double := w.start("a", stateIn(copied(t, dir), time.Hour), func(c *promote.Config) { c.RPC = "elsewhere" })
	select {
	case err := <-double.done:
		if double.done <- err; err == nil || !strings.Contains(err.Error(), `another node with the id "a" is running`) {
			t.Errorf("the end of a copy of a node: got %v, want an error that says what to do", err)
		}
	case <-time.After(time.Minute):
		t.Error("a copy of a node runs, want it to end")
	}
	if after := revisions(); !slices.Equal(after, before) || !a.serves() {
		t.Errorf("a copy came: got keys created at %v and a serving: %v, want the keys of %v, and a serving",
			after, a.serves(), before)
	}
}
