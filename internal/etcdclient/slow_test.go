package etcdclient_test

import (
	"context"
	"net"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/etcdclient"
)

// A slowKV stands before a member of etcd. It passes on reads and writes, and
// makes writes wait, as slow disks do.
type slowKV struct {
	etcdserverpb.UnimplementedKVServer
	member etcdserverpb.KVClient
	delay  time.Duration
}

func (s *slowKV) Range(ctx context.Context, req *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return s.member.Range(ctx, req)
}

func (s *slowKV) Put(ctx context.Context, req *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	select {
	case <-time.After(s.delay):
		return s.member.Put(ctx, req)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// slowFront returns an endpoint before a member at which writes take long.
func slowFront(t *testing.T, member string, delay time.Duration) string {
	t.Helper()
	conn, err := grpc.NewClient(member, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	etcdserverpb.RegisterKVServer(server, &slowKV{member: etcdserverpb.NewKVClient(conn), delay: delay})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		_ = conn.Close()
	})
	return l.Addr().String()
}

// Writes take longer everywhere than a member is waited for at first, and no
// longer than their own attempts: each but the first two succeeds at once.
func TestAllMembersAreSlow(t *testing.T) {
	for _, delay := range []time.Duration{1300 * time.Millisecond, 2200 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.Start(t)
			var endpoints []string
			for range 3 {
				endpoints = append(endpoints, slowFront(t, etcd.Endpoint(0), delay))
			}
			client, err := etcdclient.New(endpoints)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			for i := range 4 {
				if failed, _ := put(t, client, "k", "v"); i == 0 && failed > 2 || i > 0 && failed > 0 {
					t.Errorf("put %d: %d attempts failed", i, failed)
				}
			}
		})
	}
}
