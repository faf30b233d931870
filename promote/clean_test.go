package promote_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote"
)

// A node stops while etcd, overloaded, refuses the marked renewals but accepts the resignation.
// The head must not be clean, since the journal lacks leases of the term.
func TestAStopWithoutItsRenewalsIsNotClean(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	var refuse atomic.Bool
	var refused atomic.Int64
	overload := func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if r, ok := req.(*etcdserverpb.TxnRequest); ok && refuse.Load() {
			for _, op := range r.Success {
				if p := op.GetRequestPut(); p != nil && strings.Contains(string(p.Key), "lease_renewals/") {
					refused.Add(1)
					return rpctypes.ErrGRPCRequestTooManyRequests
				}
			}
		}
		return invoke(ctx, method, req, reply, conn, options...)
	}
	a := w.start("a", steady, func(c *promote.Config) {
		c.Params.LeaseTTL = time.Minute
		c.Client = etcd.Client(t, grpc.WithChainUnaryInterceptor(overload))
	})
	w.serving(a).mount()
	a.put("k")
	refuse.Store(true)
	if err := a.get("k"); err != nil {
		t.Fatal(err)
	}
	a.end()
	head, err := (&journal.Reader{Client: etcd.Client(t), Layout: layout}).Head(t.Context())
	if err != nil || refused.Load() == 0 || head.Head.Clean {
		t.Errorf("L: %d renewals were refused, and the term ended clean: %v (%v); want it not clean", refused.Load(), head.Head.Clean, err)
	}
}
