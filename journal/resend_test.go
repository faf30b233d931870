package journal_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
)

// After a commit that a dead member of etcd delayed, the next commit is sent again as early as usual,
// since a hanging member, or an election, does not mean that etcd is slow.
func TestResendsAfterAMemberThatDidNotAnswer(t *testing.T) {
	const away = 2 * time.Second // for which the first transaction had no answer
	for name, tc := range map[string]struct {
		next  int32 // the transaction that has no answer either
		first func(ctx context.Context) error
	}{
		"an election ends it with an error": {2, func(context.Context) error {
			return status.Error(codes.Unavailable, "test: no leader")
		}},
		"a member hangs": {3, func(ctx context.Context) error {
			<-ctx.Done()
			return status.FromContextError(ctx.Err()).Err()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t)
			var on atomic.Bool
			var sent atomic.Int32
			var passed atomic.Int64 // by the clock of the log, beside the real one
			hung := func(ctx context.Context) error {
				<-ctx.Done()
				if errors.Is(ctx.Err(), context.DeadlineExceeded) && sent.Load() == tc.next {
					t.Error("a transaction had no answer until its deadline; want another one beside it")
				}
				return status.FromContextError(ctx.Err()).Err()
			}
			client, err := clientv3.New(clientv3.Config{
				Endpoints: etcd.Endpoints(), Logger: zap.NewNop(),
				DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
					cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
				) error {
					if !on.Load() || !strings.HasSuffix(method, "/Txn") {
						return invoker(ctx, method, req, reply, cc, opts...)
					}
					switch sent.Add(1) {
					case 1:
						passed.Add(int64(away))
						return tc.first(ctx)
					case tc.next:
						return hung(ctx)
					}
					return invoker(ctx, method, req, reply, cc, opts...)
				})},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			p := newPrimary(t, client, 1<<20)
			boot := clock.Boot()
			log := journal.NewEtcdLog(client, p.layout, p.election, p.log.Tip(), 5*time.Second,
				func() time.Duration { return boot() + time.Duration(passed.Load()) })
			on.Store(true)
			for range 2 {
				next := log.Tip().Head
				next.Seq++
				if err := log.Append(t.Context(), &journal.Sealed{Head: next}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
