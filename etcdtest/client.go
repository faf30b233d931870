package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// callTimeout bounds one call of the helpers here.
const callTimeout = 30 * time.Second

// Client returns a new connection to the cluster, closed at the end of the
// test t. It reconnects quickly, so that a test need not wait for gRPC's
// backoff of a second and more after a member has come back. Options may give it faults.
func (c *Cluster) Client(t testing.TB, options ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	return c.dial(t, c.Endpoints(), options...)
}

// ClientOf is Client for one member alone.
func (c *Cluster) ClientOf(t testing.TB, i int) *clientv3.Client {
	t.Helper()
	return c.dial(t, []string{c.Endpoint(i)})
}

func (c *Cluster) dial(t testing.TB, endpoints []string, options ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints,
		Logger:    zap.NewNop(),
		DialOptions: append([]grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: time.Second,
		})}, options...),
	})
	if err != nil {
		t.Fatalf("etcdtest: connect to %v: %v", endpoints, err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Compact discards the history before revision rev, and returns when it is
// gone from the database of the member that was asked.
func (c *Cluster) Compact(t testing.TB, rev int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	if _, err := c.Client(t).Compact(ctx, rev, clientv3.WithCompactPhysical()); err != nil {
		t.Fatalf("etcdtest: compact to revision %d: %v", rev, err)
	}
}

// Defrag returns the space that a compaction has freed to the file systems of all
// members, which must be up.
func (c *Cluster) Defrag(t testing.TB) {
	t.Helper()
	client := c.Client(t)
	for _, endpoint := range c.Endpoints() {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		_, err := client.Defragment(ctx, endpoint)
		cancel()
		if err != nil {
			t.Fatalf("etcdtest: defragment %s: %v", endpoint, err)
		}
	}
}

// FillQuota writes one key again and again until etcd refuses writes with
// NOSPACE, and returns the revision of the last write. Compacting to that
// revision frees the space; the alarm must be disarmed afterwards. Meant for
// clusters with a small WithQuota.
func (c *Cluster) FillQuota(t testing.TB) (rev int64) {
	t.Helper()
	client := c.Client(t)
	value := strings.Repeat("x", 256<<10)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		r, err := client.Put(ctx, "etcdtest/fill", value)
		cancel()
		switch {
		case err == nil:
			rev = r.Header.Revision
		case errors.Is(err, rpctypes.ErrNoSpace):
			return rev
		default:
			t.Fatalf("etcdtest: fill the quota: %v", err)
		}
	}
}

// FillTo writes keys under tenant/ until the database of a lone member has so many bytes.
// As long as the keys are there, neither a compaction nor a defragmentation frees these.
func (c *Cluster) FillTo(t testing.TB, bytes int64) {
	t.Helper()
	const step = 64 * (4 << 10)                              // bytes of a transaction
	client, value := c.Client(t), strings.Repeat("x", 4<<10) // small: bolt copies whole pages
	for i := int64(0); ; i++ {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		var size int64
		var err error
		if i*step >= bytes/2 { // less cannot be enough, and a look costs more the more there is
			size, err = c.size(ctx, client)
		}
		if err == nil && size >= bytes {
			cancel()
			return
		}
		var puts []clientv3.Op
		for j := range 64 {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("tenant/%d/%d", i, j), value))
		}
		if err == nil {
			_, err = client.Txn(ctx).Then(puts...).Commit()
		}
		cancel()
		if err != nil {
			t.Fatalf("etcdtest: fill the database to %d bytes: %v", bytes, err)
		}
	}
}

// size returns how many bytes the database of a lone member has.
func (c *Cluster) size(ctx context.Context, client *clientv3.Client) (int64, error) {
	// For a hash etcd writes what is pending, which the size leaves out otherwise.
	if _, err := pb.NewMaintenanceClient(client.ActiveConnection()).Hash(ctx, new(pb.HashRequest)); err != nil {
		return 0, err
	}
	st, err := client.Status(ctx, c.Endpoint(0))
	if err != nil {
		return 0, err
	}
	return st.DbSize, nil
}
