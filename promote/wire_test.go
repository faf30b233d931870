package promote_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// A wire is one node's connections to etcd, which can be cut.
type wire struct {
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
	slow  atomic.Int64 // how long each response of a watch takes, a time.Duration
	lost  atomic.Bool  // responses of watches
	noTxn atomic.Bool  // transactions fail
}

func (w *wire) unary(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	if method == "/etcdserverpb.KV/Txn" && w.noTxn.Load() {
		return errCut
	}
	return invoke(ctx, method, req, reply, conn, options...)
}

// A slowWatch takes its time for each response, or loses it.
type slowWatch struct {
	grpc.ClientStream
	wire *wire
}

func (s *slowWatch) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	for err == nil && s.wire.lost.Load() {
		err = s.ClientStream.RecvMsg(m)
	}
	time.Sleep(time.Duration(s.wire.slow.Load()))
	return err
}

func (w *wire) stream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, conn, method, options...)
	if err != nil || method != "/etcdserverpb.Watch/Watch" {
		return s, err
	}
	return &slowWatch{s, w}, nil
}

var errCut = errors.New("test: the wire is cut")

func (w *wire) dial(ctx context.Context, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		return nil, errCut
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err == nil {
		w.conns = append(w.conns, conn)
	}
	return conn, err
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = false
}

func (w *wire) client(t *testing.T, endpoints []string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints,
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(w.dial),
			grpc.WithStreamInterceptor(w.stream),
			grpc.WithChainUnaryInterceptor(w.unary),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond},
				MinConnectTimeout: time.Second,
			}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
