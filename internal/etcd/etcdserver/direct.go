package etcdserver

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Direct has a client of this server, which is ready, make its transactions as calls
// within this process: they cost less there, and are answered sooner, than over a
// connection to the same process. Everything else goes over the client's connection as
// before. Errors are those of a connection. Call it before the client is used.
func (s *Server) Direct(client *clientv3.Client) {
	client.KV = clientv3.NewKVFromKVClient(&directKV{
		KVClient: clientv3.RetryKVClient(client), server: v3rpc.NewQuotaKVServer(s.etcd.Server), calls: s.direct,
	}, client)
}

// A directKV makes transactions directly, and the other calls over a connection.
type directKV struct {
	pb.KVClient
	server pb.KVServer
	calls  *directCalls
}

// Txn makes a transaction. It ends with its context whatever the server does, as over a
// connection: one that hangs in its database may not look at the context.
func (d *directKV) Txn(caller context.Context, r *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	ctx, end, err := d.calls.begin(caller)
	if err != nil {
		return nil, err
	}
	defer end()
	type answer struct {
		resp *pb.TxnResponse
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		defer d.calls.underWay.Done()
		resp, err := d.server.Txn(ctx, r)
		answers <- answer{resp, err}
	}()
	select {
	case a := <-answers:
		if a.err == nil || ctx.Err() == nil { // else the server may say that the request timed out
			return a.resp, a.err
		}
	case <-caller.Done():
	case <-d.calls.closing.Done():
	}
	if err := caller.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return nil, rpctypes.ErrGRPCStopped
}

// directCalls are those under way. They must have ended before the server closes its
// database.
type directCalls struct {
	closing context.Context
	cancel  context.CancelFunc

	mu       sync.RWMutex // held to begin a call, so that none begins once closed
	closed   bool
	underWay sync.WaitGroup
}

func newDirectCalls() *directCalls {
	c := new(directCalls)
	c.closing, c.cancel = context.WithCancel(context.Background())
	return c
}

// begin begins a call, which is under way until end is called. Its context ends when the
// server closes.
func (c *directCalls) begin(caller context.Context) (ctx context.Context, end func(), err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return nil, nil, rpctypes.ErrGRPCStopped
	}
	c.underWay.Add(1)
	ctx, cancel := context.WithCancel(caller)
	stop := context.AfterFunc(c.closing, cancel)
	return ctx, func() {
		stop()
		cancel()
	}, nil
}

// close refuses further calls, and waits until those under way have ended.
func (c *directCalls) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.underWay.Wait()
}
