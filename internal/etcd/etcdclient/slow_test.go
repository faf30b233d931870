package etcdclient_test

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
)

// A slowKV stands before a member of etcd. It passes on reads and writes, and
// makes them wait, as busy members and slow disks do.
type slowKV struct {
	etcdserverpb.UnimplementedKVServer
	member        etcdserverpb.KVClient
	reads, writes time.Duration
	hangs         atomic.Bool // reads get no answer
}

func (s *slowKV) Range(ctx context.Context, req *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	if s.hangs.Load() {
		<-ctx.Done()
	}
	return after(ctx, s.reads, func() (*etcdserverpb.RangeResponse, error) { return s.member.Range(ctx, req) })
}

func (s *slowKV) Put(ctx context.Context, req *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	return after(ctx, s.writes, func() (*etcdserverpb.PutResponse, error) { return s.member.Put(ctx, req) })
}

// after does something when a time has passed.
func after[T any](ctx context.Context, delay time.Duration, do func() (*T, error)) (*T, error) {
	select {
	case <-time.After(delay):
		return do()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// slowFronts returns a client of three endpoints before one member, and what
// stands at each of them.
func slowFronts(t *testing.T, reads, writes time.Duration) (*clientv3.Client, map[string]*slowKV) {
	t.Helper()
	conn, err := grpc.NewClient(etcdtest.Start(t).Endpoint(0), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	fronts := make(map[string]*slowKV)
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		front := &slowKV{member: etcdserverpb.NewKVClient(conn), reads: reads, writes: writes}
		server := grpc.NewServer()
		etcdserverpb.RegisterKVServer(server, front)
		go func() { _ = server.Serve(l) }()
		t.Cleanup(server.Stop)
		fronts[l.Addr().String()] = front
	}
	client, err := etcdclient.New(slices.Collect(maps.Keys(fronts)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client, fronts
}

// Writes take longer everywhere than a member is waited for at first, and no
// longer than their own attempts: each but the first two succeeds at once.
func TestAllMembersAreSlow(t *testing.T) {
	for _, delay := range []time.Duration{1300 * time.Millisecond, 2200 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			t.Parallel()
			client, _ := slowFronts(t, 0, delay)
			for i := range 4 {
				if failed, _ := put(t, client, "k", "v"); i == 0 && failed > 2 || i > 0 && failed > 0 {
					t.Errorf("put %d: %d attempts failed, want at most 2 of the first put, and none later", i, failed)
				}
			}
		})
	}
}

// Members hang one after the other, and the client only reads, as a standby's
// and package client's: each costs one read about a second, however many have
// hung before.
func TestMembersThatHangUnderReads(t *testing.T) {
	t.Parallel()
	client, fronts := slowFronts(t, 0, 0)
	read := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // gRPC would take 13 s
		defer cancel()
		_, err := client.Get(ctx, "k")
		return err
	}
	for round := range 4 {
		if err := read(); err != nil {
			t.Fatalf("round %d, all is well: got %v; want no error", round, err)
		}
		used := fronts[client.Endpoints()[0]]
		used.hangs.Store(true)
		if err := read(); err != nil {
			t.Errorf("round %d: got %v, want no error", round, err)
		}
		used.hangs.Store(false)
	}
}

// All members are slow, but not too slow, and somebody asks with deadlines that
// they cannot meet: that cuts off no write of the same client.
func TestHurriedReadsCutOffNoWrites(t *testing.T) {
	t.Parallel()
	client, _ := slowFronts(t, 650*time.Millisecond, 900*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	var asks sync.WaitGroup
	asks.Go(func() {
		for ctx.Err() == nil {
			attempt, done := context.WithTimeout(ctx, 600*time.Millisecond)
			_, _ = client.Get(attempt, "k")
			done()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	for i := range 10 {
		if failed, _ := put(t, client, "k", "v"); failed > 0 {
			t.Errorf("put %d: %d attempts failed, want none", i, failed)
		}
	}
	cancel()
	asks.Wait()
}
