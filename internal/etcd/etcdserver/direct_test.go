package etcdserver_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
)

// direct returns a client of a server that makes its transactions directly.
func direct(t *testing.T, s *etcdserver.Server) *clientv3.Client {
	t.Helper()
	c := dial(t, s.Endpoints()...)
	s.Direct(c)
	return c
}

// hang has a server take proposals in and answer none of them, until it is released.
func hang(t *testing.T, s *etcdserver.Server) (release func()) {
	t.Helper()
	tx := s.Embedded().Server.Backend().BatchTx()
	tx.LockOutsideApply()
	release = sync.OnceFunc(tx.Unlock)
	t.Cleanup(release)
	return release
}

func TestDirectTransactionsAreThoseOfOthers(t *testing.T) {
	s := start(t, testConfig(t))
	c, other := direct(t, s), dial(t, s.Endpoints()...)
	put(t, other, "a", "1")
	resp, err := c.Txn(t.Context()).If(clientv3.Compare(clientv3.Value("a"), "=", "1")).Then(clientv3.OpPut("b", "2"), clientv3.OpGet("a")).Commit()
	if err != nil || !resp.Succeeded || string(resp.Responses[1].GetResponseRange().Kvs[0].Value) != "1" {
		t.Fatalf("got %v, %v, want that it succeeds and reads 1", resp, err)
	}
	read, err := other.Get(t.Context(), "b")
	if err != nil || len(read.Kvs) != 1 || read.Kvs[0].ModRevision != resp.Header.Revision {
		t.Errorf("got %v, %v, want the key of revision %d", read, err, resp.Header.Revision)
	}
	if got := get(t, c, "b"); got != "2" { // over the connection
		t.Errorf("got %q, want 2", got)
	}
}

// Whoever handles errors must not have to know how the transaction was made.
func TestDirectErrorsAreThoseOfAConnection(t *testing.T) {
	s := start(t, testConfig(t))
	full := testConfig(t)
	full.QuotaBytes = 1
	noSpace := start(t, full)
	expired, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	many := make([]clientv3.Op, 129)
	for i := range many {
		many[i] = clientv3.OpGet("a")
	}
	for name, tc := range map[string]struct {
		server *etcdserver.Server
		ctx    context.Context
		ops    []clientv3.Op
		want   error
	}{
		"lease":    {s, t.Context(), []clientv3.Op{clientv3.OpPut("a", "1", clientv3.WithLease(7))}, rpctypes.ErrLeaseNotFound},
		"large":    {s, t.Context(), []clientv3.Op{clientv3.OpPut("a", strings.Repeat("1", 3<<19))}, rpctypes.ErrRequestTooLarge},
		"many":     {s, t.Context(), many, rpctypes.ErrTooManyOps},
		"twice":    {s, t.Context(), []clientv3.Op{clientv3.OpPut("a", "1"), clientv3.OpPut("a", "2")}, rpctypes.ErrDuplicateKey},
		"future":   {s, t.Context(), []clientv3.Op{clientv3.OpGet("a", clientv3.WithRev(1<<40))}, rpctypes.ErrFutureRev},
		"no space": {noSpace, t.Context(), []clientv3.Op{clientv3.OpPut("a", "1")}, rpctypes.ErrNoSpace},
		"expired":  {s, expired, []clientv3.Op{clientv3.OpPut("a", "1")}, context.DeadlineExceeded},
		"canceled": {s, canceled, []clientv3.Op{clientv3.OpPut("a", "1")}, context.Canceled},
	} {
		for how, c := range map[string]*clientv3.Client{"directly": direct(t, tc.server), "over a connection": dial(t, tc.server.Endpoints()...)} {
			if _, err := c.Txn(tc.ctx).Then(tc.ops...).Commit(); !errors.Is(err, tc.want) {
				t.Errorf("%s, %s: got %v, want %v", name, how, err, tc.want)
			}
		}
	}
}

func TestDirectTransactionEndsWithItsContext(t *testing.T) {
	s := start(t, testConfig(t))
	c := direct(t, s)
	release := hang(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Txn(ctx).Then(clientv3.OpPut("a", "2")).Commit(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	release()
}

// A server that closes ends the transactions under way before it closes its database.
func TestCloseEndsDirectTransactions(t *testing.T) {
	s := start(t, testConfig(t))
	c := direct(t, s)
	release := hang(t, s)
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		close(begun)
		_, err := c.Txn(t.Context()).Then(clientv3.OpPut("a", "1")).Commit()
		ended <- err
	}()
	<-begun
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	if err := <-ended; !errors.Is(err, rpctypes.ErrStopped) {
		t.Errorf("got %v, want %v", err, rpctypes.ErrStopped)
	}
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := c.Txn(t.Context()).Then(clientv3.OpGet("a")).Commit(); !errors.Is(err, rpctypes.ErrStopped) {
		t.Errorf("got %v of a closed server, want %v", err, rpctypes.ErrStopped)
	}
}
