package mooncakeclient

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
)

// What Mooncake's own client does (client_service.cpp, PingThreadMain).
const (
	failedPings = 3                // in a row before it looks for another master
	pingPause   = time.Second      // between two Pings, whatever came of the first
	pingTimeout = 30 * time.Second // of a Ping
)

// thePrimary is the one address that a client as the original knows.
const thePrimary = "primary:0"

// AsOriginal returns a configuration whose client finds the primary as Mooncake's
// own does and no sooner, for measurements: when three Pings have failed, each a
// second after the other, it asks once a second whether the node that etcd names
// serves, or without etcd the next one of the addresses. To the client all
// primaries are one node, whose connection breaks now and then.
func (t *Transport) AsOriginal(config client.Config) client.Config {
	config.Transport = &originalTransport{t, config.Addresses, config.EtcdEndpoints}
	config.Addresses, config.EtcdEndpoints = []string{thePrimary}, nil
	return config
}

type originalTransport struct {
	*Transport
	addresses, etcd []string
}

// Dial begins to look for the primary.
func (t *originalTransport) Dial(_ string, config client.Config) (client.Conn, error) {
	o := &original{originalTransport: t, config: config}
	if len(t.etcd) > 0 {
		var err error
		if o.reader, err = etcdclient.New(t.etcd); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	o.running.Go(func() { o.run(ctx) })
	return o, nil
}

// An original is a connection to the primary, whichever node that is.
type original struct {
	*originalTransport
	config  client.Config
	reader  *clientv3.Client // of etcd; nil without it
	cancel  context.CancelFunc
	running sync.WaitGroup
	current atomic.Pointer[caller] // of the primary that was found last; nil before
	term    uint64                 // its term; run's own
}

// Invoke makes a call at the primary that was found last.
func (o *original) Invoke(ctx context.Context, name string, req, resp any, options ...grpc.CallOption) error {
	if c := o.current.Load(); c != nil {
		return c.Invoke(ctx, name, req, resp, options...)
	}
	return status.Error(codes.Unavailable, "no primary has been found yet")
}

// ResetConnectBackoff does nothing: the original does not hurry.
func (o *original) ResetConnectBackoff() {}

// Close ends the search for primaries, and all connections.
func (o *original) Close() error {
	o.cancel()
	o.running.Wait()
	if c := o.current.Load(); c != nil {
		_ = c.Close()
	}
	if o.reader != nil {
		_ = o.reader.Close()
	}
	return nil
}

// run pings until the context ends.
func (o *original) run(ctx context.Context) {
	tries, failed := 0, failedPings
	for {
		if o.ping(ctx) {
			failed = 0
		} else if failed++; failed >= failedPings && o.connect(ctx, tries) {
			failed = 0
		} else if failed >= failedPings {
			tries++
		}
		select {
		case <-time.After(pingPause):
		case <-ctx.Done():
			return
		}
	}
}

// ping pings the primary that is known. It reports false if there is none, or it
// does not answer.
func (o *original) ping(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	req := &pb.PingRequest{ClientId: o.config.ClientID.String()}
	return o.Invoke(ctx, pb.ClientService_Ping_FullMethodName, req, new(pb.PingResponse)) == nil
}

// connect asks one node whether it is the primary, and then goes on with it.
func (o *original) connect(ctx context.Context, try int) bool {
	address, ok := o.named(ctx, try)
	if !ok {
		return false
	}
	old := o.current.Load()
	next := old
	if old == nil || old.address != address {
		next = o.newCaller(address, o.config)
		next.pool.original = true
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	resp := new(pb.ServiceReadyResponse)
	err := next.Invoke(ctx, pb.ClientService_ServiceReady_FullMethodName, &pb.ServiceReadyRequest{ContractRevision: pb.ContractRevision}, resp)
	if err != nil || resp.GetHeader().GetTerm() < o.term {
		if next != old {
			_ = next.Close()
		}
		return false
	}
	o.term = resp.GetHeader().GetTerm()
	if o.current.Store(next); old != nil && next != old {
		_ = old.Close()
	}
	return true
}

// named returns the node to ask.
func (o *original) named(ctx context.Context, try int) (address string, ok bool) {
	if o.reader == nil {
		return o.addresses[try%len(o.addresses)], true
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), 3*time.Second)
	defer cancel()
	resp, err := o.reader.Get(ctx, o.LeaderKey(o.config))
	if err != nil || len(resp.Kvs) == 0 {
		return "", false
	}
	address, _, err = o.ParseLeader(resp.Kvs[0].Value, resp.Kvs[0].ModRevision)
	return address, err == nil
}
