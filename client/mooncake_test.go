package client_test

import (
	"context"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeserver"
	"github.com/understudy-store/understudy/lab/original"
)

// A port is a port at which a node answers Mooncake's clients.
type port struct {
	*coro.Server
	address string
}

// port opens one until the test ends.
func (n *node) port(generation string, forward bool) *port {
	c, t := n.cluster, n.cluster.t
	t.Helper()
	front := mooncakeserver.New(&mooncakeserver.Front{Gate: n.gate, Version: "2.0.0", Relay: forward, View: func() int64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return int64(100 * c.term)
	}})
	s, err := front.Server(generation, coro.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return servePort(t, s)
}

// servePort has a server answer on a port of its own until the test ends.
func servePort(t testing.TB, s *coro.Server) *port {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = s.Stop(ctx)
		if err := <-served; err != nil {
			t.Errorf("serve: got %v, want no error", err)
		}
	})
	return &port{s, l.Addr().String()}
}

// overMooncake returns a client that knows some addresses.
func overMooncake(t testing.TB, change func(*client.Config), addresses ...string) *client.Client {
	t.Helper()
	config := client.Config{Transport: transport(t, "head"), Addresses: addresses}
	if change != nil {
		change(&config)
	}
	return connect(t, config)
}

func transport(t testing.TB, generation string) *mooncakeclient.Transport {
	t.Helper()
	tr, err := mooncakeclient.NewTransport(generation)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// In every generation, a client with Mooncake's protocol puts, finds and removes objects, and
// clients with gRPC see the same.
func TestMooncakesProtocol(t *testing.T) {
	for _, generation := range mooncake.Names() {
		t.Run(generation, func(t *testing.T) {
			cl := newCluster(t, 1)
			n := cl.lead(0)
			c := overMooncake(t, func(c *client.Config) { c.Transport = transport(t, generation) }, n.port(generation, false).address)
			numbered := cl.connectAll()
			segment, group := memory(1<<32), "g"
			if generation == "v0.3.11" {
				segment.HostID, group = "", "" // it cannot say these
			}
			ctx := t.Context()
			wantKind(t, "a segment", c.MountSegment(ctx, segment), errs.OK)

			r, err := c.PutStart(ctx, client.PutItem{Key: "k", Size: 100, Group: group}, client.PutConfig{
				Replicas: 2, PreferredSegments: []string{"host-a"}, SoftPin: client.PinSoftly, DataType: 7, HostID: "h",
			})
			if err != nil || r.ID == 0 || r.Size != 100 || len(r.Replicas) != 1 || r.Replicas[0].Endpoint != "10.0.0.1:7000" {
				t.Fatalf("reserved %+v, %v; want an id, 100 bytes and one replica at 10.0.0.1:7000", r, err)
			}
			_, err = c.GetReplicaList(ctx, "k")
			wantKind(t, "get before the end", err, errs.ReplicaNotReady)
			_, err = c.PutStart(ctx, client.PutItem{Key: "k", Size: 100}, client.PutConfig{})
			wantKind(t, "a second put", err, errs.ObjectExists)
			put := r.Ref()
			if generation == "head" {
				put.Checksum = proto.Uint64(42)
			}
			wantKind(t, "the end", c.PutEnd(ctx, put, client.SelectMemory), errs.OK)
			sameOverBoth(t, c, numbered, "k")
			if o, _ := cl.store.Inspect("default", "k"); o.DataType != 7 || !o.SoftPin || o.Group != group {
				t.Errorf("the store has %+v; want data type 7, a soft pin and group %q", o, group)
			}
			exists, err := c.ExistKey(ctx, "k")
			if missing, e := c.ExistKey(ctx, "missing"); !exists || missing || err != nil || e != nil {
				t.Errorf("exists %v, %v; a missing key %v, %v; want true and false, without errors", exists, err, missing, e)
			}
			wantKind(t, "remove", c.Remove(ctx, "k", client.Removal{}), errs.ObjectHasLease)
			wantKind(t, "remove by force", c.Remove(ctx, "k", client.Removal{Force: true}), errs.OK)
			wantKind(t, "revoke", c.PutRevoke(ctx, put, client.SelectAll), errs.ObjectNotFound)
			_, err = c.RemoveAllTenants(ctx, client.Removal{})
			wantKind(t, "what gRPC alone has", err, errs.NotSupported)
			mooncakeBatches(t, c, group)
		})
	}
}

// sameOverBoth reads an object over both protocols.
func sameOverBoth(t *testing.T, c, numbered *client.Client, key string) {
	t.Helper()
	a, err := c.GetReplicaList(t.Context(), key)
	b, e := numbered.GetReplicaList(t.Context(), key)
	if err != nil || e != nil || !a.Lease.Valid() || a.Lease.Remaining() > params.LeaseTTL {
		t.Fatalf("got %+v, %v, %v; want an object under a valid lease over both protocols", a, err, e)
	}
	for i := range b.Replicas {
		b.Replicas[i].Segment = "" // does not travel
	}
	a.Lease, b.Lease = client.Lease{}, client.Lease{}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("over Mooncake's protocol %+v, over gRPC %+v; want the same", a, b)
	}
}

func mooncakeBatches(t *testing.T, c *client.Client, group string) {
	ctx := t.Context()
	reserved, err := c.BatchPutStart(ctx, []client.PutItem{{Key: "a", Size: 1, Group: group}, {Key: "b", Size: 1}, {Key: "a", Size: 1}}, client.PutConfig{})
	if err != nil || reserved[0].Err != nil || reserved[1].Err != nil || reserved[0].ID == reserved[1].ID {
		t.Fatalf("BatchPutStart: got %+v, %v; want two reservations", reserved, err)
	}
	wantKind(t, "twice in a batch", reserved[2].Err, errs.ObjectExists)
	refs := []client.PutRef{reserved[0].Ref(), {Key: "missing", ID: 1}, reserved[1].Ref()}
	failed, err := c.BatchPutEnd(ctx, refs, client.SelectAll)
	wantKinds(t, "ends", failed, err, errs.OK, errs.ObjectNotFound, errs.OK)
	failed, err = c.BatchPutRevoke(ctx, refs[:2], client.SelectAll)
	wantKinds(t, "revokes", failed, err, errs.InvalidWrite, errs.ObjectNotFound)
	exist, err := c.BatchExistKey(ctx, []string{"a", "missing"})
	if err != nil || !exist[0].Exists || exist[1].Exists {
		t.Errorf("exist: %v, %v; want true, false", exist, err)
	}
	found, err := c.BatchGetReplicaList(ctx, []string{"a", "missing", "b"})
	if err != nil || found[0].ID != reserved[0].ID || found[2].ID != reserved[1].ID || !found[0].Lease.Valid() {
		t.Errorf("found %+v, %v; want the two that were reserved, under leases", found, err)
	}
	wantKind(t, "get of a missing key", found[1].Err, errs.ObjectNotFound)
	var keys []string
	for o, err := range c.GetReplicaListByRegex(ctx, "^[ab]$", 0) {
		if err != nil || o.ID == 0 || o.Size != 1 {
			t.Errorf("by regex %+v, %v; want an object of 1 byte", o, err)
		}
		keys = append(keys, o.Key)
	}
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"a", "b"}) {
		t.Errorf("by regex %v, want [a b]", keys)
	}
	cleared, err := c.BatchReplicaClear(ctx, []string{"missing", "a"}, "")
	if err != nil || !slices.Equal(cleared, []bool{false, false}) { // leased
		t.Errorf("cleared %v, %v; want none, they are leased", cleared, err)
	}
	addresses, err := c.BatchQueryIP(ctx, []uuid.UUID{c.ID(), uuid.New()})
	if err != nil || !slices.Equal(addresses[c.ID()], []string{"10.0.0.1"}) || len(addresses) != 1 {
		t.Errorf("addresses %v, %v; want [10.0.0.1], 1 entry and no error", addresses, err)
	}
	failed, err = c.BatchRemove(ctx, []string{"a", "missing"}, client.Removal{Force: true})
	wantKinds(t, "removals", failed, err, errs.OK, errs.ObjectNotFound)
	if n, err := c.RemoveByRegex(ctx, "^[ab]$", client.Removal{Force: true}); err != nil || n.Removed == 0 {
		t.Errorf("%d removed, %v; want at least one", n, err)
	}
	_, err = c.RemoveByRegex(ctx, "(", client.Removal{})
	wantKind(t, "no expression", err, errs.InvalidParams)
	if n, err := c.RemoveAll(ctx, client.Removal{}); err != nil || n.Removed != 0 {
		t.Errorf("%d removed, %v; want 0 and no error", n, err)
	}
	if dir, err := c.GetFsdir(ctx); err != nil || dir != "" {
		t.Errorf("fsdir %q, %v; want \"\" and no error", dir, err)
	}
	if s, err := c.ServiceReady(ctx); err != nil || s.Version != "Mooncake 2.0.0" {
		t.Errorf("got %+v, %v; want \"Mooncake 2.0.0\" and no error", s, err)
	}
}

func TestOffloadOverMooncake(t *testing.T) {
	cl := newCluster(t, 1)
	c := overMooncake(t, nil, cl.lead(0).port("head", false).address)
	mountMemory(t, c)
	ctx := t.Context()
	wantKind(t, "an SSD", c.MountLocalDiskSegment(ctx, true), errs.OK)
	put(t, c, "a", "b")
	tasks, err := c.OffloadObjectHeartbeat(ctx, true)
	if err != nil || len(tasks) != 2 || tasks[0] != (client.OffloadTask{Tenant: "default", Key: "a", Size: 100}) {
		t.Fatalf("tasks %+v, %v; want two, the first for a with 100 bytes", tasks, err)
	}
	done := []client.OffloadedObject{{Task: tasks[0], DataSize: 100, Endpoint: "10.0.0.1:9000"}, {Task: tasks[1], Refused: true}}
	wantKind(t, "copies", c.NotifyOffloadSuccess(ctx, done), errs.OK)
	a, err := c.GetReplicaList(ctx, "a")
	if err != nil || len(a.Replicas) != 2 || a.Replicas[1] != (client.Replica{Kind: client.LocalDisk, Client: c.ID(), Endpoint: "10.0.0.1:9000"}) {
		t.Errorf("a is on %+v, %v; want memory and the client's SSD at 10.0.0.1:9000", a.Replicas, err)
	}
	if b, err := c.GetReplicaList(ctx, "b"); err != nil || len(b.Replicas) != 1 {
		t.Errorf("b is on %+v, %v; want 1 entry and no error", b.Replicas, err)
	}
}

// The client repeats a call whose answer is lost if the call changes nothing. Otherwise the
// caller has to decide.
func TestLostAnswersOverMooncake(t *testing.T) {
	one := func(errors []error, err error) error {
		if err == nil {
			err = errors[0]
		}
		return err
	}
	for name, tc := range map[string]struct {
		call func(ctx context.Context, c *client.Client) error
		want errs.Kind
	}{
		"PutStart": {func(ctx context.Context, c *client.Client) error {
			_, err := c.PutStart(ctx, client.PutItem{Key: "new", Size: 1}, client.PutConfig{})
			return err
		}, errs.Unresolved},
		"BatchPutStart": {func(ctx context.Context, c *client.Client) error {
			_, err := c.BatchPutStart(ctx, []client.PutItem{{Key: "new", Size: 1}}, client.PutConfig{})
			return err
		}, errs.Unresolved},
		"PutEnd": {func(ctx context.Context, c *client.Client) error {
			return c.PutEnd(ctx, client.PutRef{Key: "open", ID: 1}, client.SelectAll)
		}, errs.OK},
		"BatchPutEnd": {func(ctx context.Context, c *client.Client) error {
			return one(c.BatchPutEnd(ctx, []client.PutRef{{Key: "open", ID: 1}}, client.SelectAll))
		}, errs.OK},
		"PutRevoke": {func(ctx context.Context, c *client.Client) error {
			return c.PutRevoke(ctx, client.PutRef{Key: "open", ID: 1}, client.SelectAll)
		}, errs.Unresolved},
		"BatchPutRevoke": {func(ctx context.Context, c *client.Client) error {
			return one(c.BatchPutRevoke(ctx, []client.PutRef{{Key: "open", ID: 1}}, client.SelectAll))
		}, errs.Unresolved},
		"Remove": {func(ctx context.Context, c *client.Client) error { return c.Remove(ctx, "old", client.Removal{}) }, errs.Unresolved},
		"BatchRemove": {func(ctx context.Context, c *client.Client) error {
			return one(c.BatchRemove(ctx, []string{"old"}, client.Removal{}))
		}, errs.Unresolved},
		"RemoveAll": {func(ctx context.Context, c *client.Client) error {
			_, err := c.RemoveAll(ctx, client.Removal{})
			return err
		}, errs.Unresolved},
		"MountSegment":   {func(ctx context.Context, c *client.Client) error { return c.MountSegment(ctx, memory(1<<44)) }, errs.OK},
		"ReMountSegment": {func(ctx context.Context, c *client.Client) error { return c.ReMountSegment(ctx) }, errs.OK},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t, 1)
			link := newLink(t, cl.lead(0).port("head", false).address)
			w := new(witness)
			c := overMooncake(t, func(c *client.Config) { c.Observer = w }, link.address)
			mountMemory(t, c)
			put(t, c, "old")
			if _, err := c.PutStart(t.Context(), client.PutItem{Key: "open", Size: 1}, client.PutConfig{}); err != nil {
				t.Fatal(err)
			}
			if name == "ReMountSegment" {
				cl.expire(cl.nodes[0], c.ID())
			}
			lost := false
			cl.log.refusing(func() error {
				if !lost {
					link.cut()
				}
				lost = true
				return nil
			})
			err := tc.call(soon(t, 30*time.Second), c)
			wantKind(t, "the call", err, tc.want)
			attempts := 1
			if tc.want == errs.OK {
				attempts = 2
			}
			if got := w.last(); got.attempts != attempts {
				t.Errorf("%d attempts, want %d", got.attempts, attempts)
			}
		})
	}
}

// A node that does not serve closes connections. The client goes on to the one that serves. The
// outcome of a call is open only if the call was sent to a serving node.
func TestFollowsTheLeaderOverMooncake(t *testing.T) {
	cl := newCluster(t, 2)
	ports := []*port{cl.nodes[0].port("head", false), cl.nodes[1].port("head", false)}
	w := new(witness)
	c := overMooncake(t, func(c *client.Config) { c.Observer = w }, ports[0].address, ports[1].address)
	_, err := c.PutStart(soon(t, 200*time.Millisecond), client.PutItem{Key: "k", Size: 1}, client.PutConfig{})
	wantKind(t, "a put while nobody serves", err, errs.Unavailable)
	cl.lead(1)
	mountMemory(t, c)
	put(t, c, "a")
	cl.lead(0)
	ports[1].Disconnect()
	exists, err := c.ExistKey(t.Context(), "a") // it finds out: a put would be in doubt
	if err != nil || !exists {
		t.Errorf("after the failover: got %v, %v; want true and no error", exists, err)
	}
	put(t, c, "b")
	if led := w.found(t, 2); led[0].Term != 100 || led[0].Address != ports[1].address || led[1].Term != 200 || led[1].Address != ports[0].address {
		t.Errorf("it saw %+v; want terms 100 and 200, one at each port", led)
	}
}

// A client that knows one address survives a failover if that node forwards.
func TestForwardedOverMooncake(t *testing.T) {
	cl := newCluster(t, 2)
	first, second := cl.nodes[0].port("head", false), cl.nodes[1].port("head", true)
	cl.nodes[0].hint = first.address
	cl.lead(0)
	c := overMooncake(t, nil, second.address)
	mountMemory(t, c)
	put(t, c, "a")
	cl.lead(1)
	first.Disconnect()
	put(t, c, "b")
	if exists, err := c.ExistKey(t.Context(), "a"); err != nil || !exists {
		t.Errorf("after the failover: got %v, %v; want true and no error", exists, err)
	}
}

// A client that finds another primary behind the address that it knows keeps
// its connections: calls are in progress there.
func TestAnotherPrimaryBehindOneAddress(t *testing.T) {
	cl := newCluster(t, 2)
	first, second := cl.nodes[0].port("head", false), cl.nodes[1].port("head", true)
	cl.nodes[0].hint = first.address
	cl.lead(0)
	w := new(witness)
	c := overMooncake(t, func(c *client.Config) { c.Observer = w }, second.address)
	mountMemory(t, c)
	cl.rest()
	first.Disconnect()
	waiting := make(chan error, 1)
	go func() {
		_, err := c.ExistKey(t.Context(), "k") // so long that the client asks who leads
		waiting <- err
	}()
	held := time.NewTimer(1500 * time.Millisecond)
	<-held.C
	cl.lead(1)
	w.found(t, 2)
	cl.log.refusing(func() error { // a commit that takes long
		held.Reset(500 * time.Millisecond)
		<-held.C
		return nil
	})
	put(t, c, "k")
	wantKind(t, "the call that waited", <-waiting, errs.OK)
}

// Mooncake's clients look for their master in etcd, where the value is an address. One that
// behaves as the original looks again after three failed Pings.
func TestViewInEtcd(t *testing.T) {
	server := etcdtest.Start(t)
	etcd := server.Client(t)
	announce := func(p *port) {
		if _, err := etcd.Put(soon(t, 30*time.Second), "mooncake-store/"+clusterID+"/master_view", p.address); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		asOriginal  bool
		least, most time.Duration
	}{
		"watching":        {false, 0, 2 * time.Second},
		"as the original": {true, 2 * time.Second, 6 * time.Second}, // three Pings fail, a second after each other
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t, 2)
			ports := []*port{cl.nodes[0].port("head", false), cl.nodes[1].port("head", false)}
			cl.lead(0)
			announce(ports[0])
			c := overMooncake(t, func(c *client.Config) {
				if c.EtcdEndpoints = server.Endpoints(); tc.asOriginal {
					*c = original.Client(transport(t, "head"), *c)
				}
			})
			mountMemory(t, c)
			put(t, c, "a")
			again := func(what string, least, most time.Duration, begin func(try int)) {
				t.Helper()
				now := clock.Boot()
				for try := 1; ; try++ { // a busy machine may take too long, but not each time
					began := now()
					begin(try)
					exists, err := c.ExistKey(t.Context(), "a")
					took := now() - began
					if late := took > most; err != nil || !exists || took < least || late && try == 5 {
						t.Errorf("%s: %v, %v after %v; want true after %v to %v", what, exists, err, took, least, most)
					} else if late {
						continue
					}
					return
				}
			}
			again("over a new connection", 0, time.Second, func(int) {
				ports[0].Disconnect() // it serves, so there is nothing to look for
			})
			again("after a failover", tc.least, tc.most, func(try int) {
				cl.lead(try % 2)
				announce(ports[try%2])
				ports[1-try%2].Disconnect()
			})
		})
	}
}

// A node of another generation, or one that speaks gRPC alone, is no master of
// this client's.
func TestWrongProtocol(t *testing.T) {
	cl := newCluster(t, 1)
	n := cl.lead(0)
	c := overMooncake(t, func(c *client.Config) { c.Transport = transport(t, "v0.3.11") }, n.port("head", false).address)
	_, err := c.PutStart(soon(t, 30*time.Second), client.PutItem{Key: "k", Size: 1}, client.PutConfig{})
	wantKind(t, "another generation", err, errs.NotSupported)
	c = overMooncake(t, nil, n.address)
	_, err = c.ExistKey(soon(t, 300*time.Millisecond), "k")
	wantKind(t, "gRPC alone", err, errs.Unavailable)
}
