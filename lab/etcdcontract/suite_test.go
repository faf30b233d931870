package etcdcontract

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/lab/fakeetcd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An etcd is what a case of the suite works with.
type etcd struct {
	*clientv3.Client
	// losing returns a client whose transactions are applied, but whose answers
	// to them never arrive.
	losing func() *clientv3.Client
	// down takes the etcd away, and up brings it back with its data.
	down, up func()
	// slack is how much later than it should something may be seen.
	slack time.Duration
}

// settings of the etcd that a case wants.
type settings struct{ quota int64 }

// minLeaseTTL is the shortest TTL that both grant here.
const minLeaseTTL = etcdtest.MinLeaseTTL

// A contract is one thing that we rely on.
type contract struct {
	name string
	settings
	run func(t *testing.T, e etcd)
}

func contracts() []contract {
	return []contract{
		{name: "keys have revisions and versions", run: revisions},
		{name: "ranges", run: ranges},
		{name: "ranges of the past", run: past},
		{name: "compares", run: compares},
		{name: "a transaction has one revision", run: oneRevision},
		{name: "a transaction is done whole or not at all", run: wholeOrNot},
		{name: "refused transactions", run: refused},
		{name: "a request that is too large", run: tooLarge},
		{name: "a lost answer", run: lostAnswer},
		{name: "leases expire", run: leasesExpire},
		{name: "leases are kept alive", run: leasesKept},
		{name: "leases begin anew behind an outage", run: leasesBehindOutage},
		{name: "leases are revoked", run: leasesRevoked},
		{name: "a key changes its lease", run: leaseChanges},
		{name: "short leases are raised", run: shortLeases},
		{name: "leases that are not there", run: unknownLease},
		{name: "a watch from now", run: watchFromNow},
		{name: "a watch from a revision of the past", run: watchFromPast},
		{name: "a watch from a revision to come", run: watchFromFuture},
		{name: "one revision is one answer to a watch", run: watchWhole},
		{name: "watches of one stream", run: watchMany},
		{name: "a watch is told the revision", run: watchProgress},
		{name: "compaction", run: compaction},
		{name: "a watch below the compaction", run: watchCompacted},
		{name: "a watch on the compaction", run: watchAtCompaction},
		{name: "a full etcd", settings: settings{quota: 16 << 20}, run: noSpace},
	}
}

func TestRealEtcd(t *testing.T) {
	for _, c := range contracts() {
		t.Run(c.name, func(t *testing.T) {
			var opts []etcdtest.Option
			if c.quota > 0 {
				opts = append(opts, etcdtest.WithQuota(c.quota))
			}
			real := etcdtest.Start(t, opts...)
			c.run(t, etcd{
				Client: real.Client(t),
				losing: func() *clientv3.Client { return losingClient(t, real.Endpoints()) },
				down:   real.StopAll, up: real.StartAll,
				slack: 2 * time.Second,
			})
		})
	}
}

func TestFakeEtcd(t *testing.T) {
	for _, c := range contracts() {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := fakeetcd.New(fakeetcd.Options{MinLeaseTTL: minLeaseTTL, QuotaBytes: c.quota})
				t.Cleanup(fake.Close)
				fake.Fault(func(call fakeetcd.Call) fakeetcd.Verdict {
					if _, txn := call.Request.(*pb.TxnRequest); txn && call.Client == "losing" {
						return fakeetcd.Lose
					}
					return fakeetcd.Serve
				})
				connect := func(name string) *clientv3.Client {
					client, err := fake.Link(name).Client()
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = client.Close() })
					return client
				}
				c.run(t, etcd{
					Client: connect("client"), losing: func() *clientv3.Client { return connect("losing") },
					down: fake.Down, up: fake.Up,
				})
			})
		})
	}
}

// losingClient loses the answers of a real etcd to transactions.
func losingClient(t *testing.T, endpoints []string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints,
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
			cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			err := invoker(ctx, method, req, reply, cc, opts...)
			if err == nil && method == pb.KV_Txn_FullMethodName {
				<-ctx.Done()
				return ctx.Err()
			}
			return err
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// within returns a context that bounds a step of a case.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

const step = 20 * time.Second

func (e etcd) put(t *testing.T, key, value string, opts ...clientv3.OpOption) int64 {
	t.Helper()
	resp, err := e.Put(within(t, step), key, value, opts...)
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	return resp.Header.Revision
}

func (e etcd) get(t *testing.T, key string, opts ...clientv3.OpOption) *clientv3.GetResponse {
	t.Helper()
	resp, err := e.Get(within(t, step), key, opts...)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return resp
}

func (e etcd) grant(t *testing.T, ttl time.Duration) clientv3.LeaseID {
	t.Helper()
	resp, err := e.Grant(within(t, step), int64(ttl/time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return resp.ID
}

func (e etcd) delete(t *testing.T, key string, opts ...clientv3.OpOption) *clientv3.DeleteResponse {
	t.Helper()
	resp, err := e.Delete(within(t, step), key, opts...)
	if err != nil {
		t.Fatalf("delete %s: %v", key, err)
	}
	return resp
}

func (e etcd) compact(t *testing.T, revision int64) {
	t.Helper()
	if _, err := e.Compact(within(t, step), revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatalf("compact to %d: %v", revision, err)
	}
}
