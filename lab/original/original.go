// Package original makes clients find the primary as Mooncake's own client does, for
// measurements. It must never be quicker than that client.
package original

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
)

// What Mooncake's own client does (client_service.cpp, PingThreadMain).
const (
	failedPings = 3                // consecutive failures before it looks for another master
	pingPause   = time.Second      // between two Pings, also after a failure
	pingTimeout = 30 * time.Second // of a Ping

	// Before a call fails, it tries four times to connect, with dialPause and up to a fifth
	// more in between.
	dials       = 4
	dialTimeout = 2 * time.Second
	dialPause   = time.Second
)

// thePrimary is the only address that such a client knows.
const thePrimary = "primary:0"

// Client returns a configuration whose client finds the primary as Mooncake's own client
// does, and no sooner. After three failed Pings, a second apart, it asks once a second
// whether the node that etcd names serves, or without etcd the next one of the addresses.
// To the client all primaries are one node, whose connection breaks now and then.
func Client(t *mooncakeclient.Transport, config client.Config) client.Config {
	patient := *t
	patient.Connect = connect
	config.Transport = &transport{&patient, config.Addresses, config.EtcdEndpoints}
	config.Addresses, config.EtcdEndpoints = []string{thePrimary}, nil
	return config
}

// connect tries to connect as often as the original does before a call fails.
func connect(ctx context.Context, address string, g *mooncake.Generation) (*mooncakeclient.Conn, error) {
	for try := 1; ; try++ {
		one, cancel := context.WithTimeout(ctx, dialTimeout)
		c, err := mooncakeclient.Dial(one, address, g)
		cancel()
		if err == nil || try == dials {
			return c, err
		}
		if clock.Sleep(ctx, dialPause+rand.N(dialPause/5)) != nil {
			return nil, err
		}
	}
}

type transport struct {
	*mooncakeclient.Transport
	addresses, etcd []string
}

// Dial begins to look for the primary.
func (t *transport) Dial(_ string, config client.Config) (client.Conn, error) {
	s := &search{transport: t, config: config}
	if len(t.etcd) > 0 {
		var err error
		if s.reader, err = etcdclient.New(t.etcd); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.running.Go(func() { s.run(ctx) })
	return s, nil
}

// A primary is the connection to one.
type primary struct {
	client.Conn
	address string
}

// A search is a connection to the primary, whichever node that is.
type search struct {
	*transport
	config  client.Config
	reader  *clientv3.Client // of etcd; nil without it
	cancel  context.CancelFunc
	running sync.WaitGroup
	current atomic.Pointer[primary] // the one found last; nil before
	term    uint64                  // its term; run's own
}

// Invoke makes a call at the primary that was found last.
func (s *search) Invoke(ctx context.Context, name string, req, resp any, options ...grpc.CallOption) error {
	if c := s.current.Load(); c != nil {
		return c.Invoke(ctx, name, req, resp, options...)
	}
	return status.Error(codes.Unavailable, "no primary has been found yet")
}

// ResetConnectBackoff does nothing: the original never connects sooner.
func (s *search) ResetConnectBackoff() {}

// Close ends the search for primaries, and all connections.
func (s *search) Close() error {
	s.cancel()
	s.running.Wait()
	if c := s.current.Load(); c != nil {
		_ = c.Close()
	}
	if s.reader != nil {
		_ = s.reader.Close()
	}
	return nil
}

func (s *search) run(ctx context.Context) {
	tries, failed := 0, failedPings
	for {
		if s.ping(ctx) {
			failed = 0
		} else if failed++; failed >= failedPings && s.connect(ctx, tries) {
			failed = 0
		} else if failed >= failedPings {
			tries++
		}
		if clock.Sleep(ctx, pingPause) != nil {
			return
		}
	}
}

// ping pings the primary that is known. It reports false if there is none, or it
// does not answer.
func (s *search) ping(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	req := &pb.PingRequest{ClientId: s.config.ClientID.String()}
	return s.Invoke(ctx, pb.ClientService_Ping_FullMethodName, req, new(pb.PingResponse)) == nil
}

// connect asks one node whether it is the primary, and then goes on with it.
func (s *search) connect(ctx context.Context, try int) bool {
	address, ok := s.named(ctx, try)
	if !ok {
		return false
	}
	old := s.current.Load()
	next := old
	if old == nil || old.address != address {
		conn, err := s.Transport.Dial(address, s.config)
		if err != nil {
			return false
		}
		next = &primary{conn, address}
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	resp := new(pb.ServiceReadyResponse)
	err := next.Invoke(ctx, pb.ClientService_ServiceReady_FullMethodName, &pb.ServiceReadyRequest{ContractRevision: pb.ContractRevision}, resp)
	if err != nil || resp.GetHeader().GetTerm() < s.term {
		if next != old {
			_ = next.Close()
		}
		return false
	}
	s.term = resp.GetHeader().GetTerm()
	if s.current.Store(next); old != nil && next != old {
		_ = old.Close()
	}
	return true
}

// named returns the node to ask.
func (s *search) named(ctx context.Context, try int) (address string, ok bool) {
	if s.reader == nil {
		return s.addresses[try%len(s.addresses)], true
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), 3*time.Second)
	defer cancel()
	resp, err := s.reader.Get(ctx, s.LeaderKey(s.config))
	if err != nil || len(resp.Kvs) == 0 {
		return "", false
	}
	address, _, err = s.ParseLeader(resp.Kvs[0].Value, resp.Kvs[0].ModRevision)
	return address, err == nil
}
