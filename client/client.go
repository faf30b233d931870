package client

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
)

// ErrClosed is in the chain of the errors that calls of a closed client return.
var ErrClosed = errors.New("the client is closed")

// A Client makes calls of one cluster. It is safe for concurrent use; all its
// callers share one connection to each node.
type Client struct {
	config Config
	clock  clock.Clock
	view   *view
	finder *finder
	mounts mounts
	claims *claims // shared by the clients of a Clusters, else nil
	// instance tells this client from earlier ones with its id.
	instance uint64
	etcd     *clientv3.Client // nil if it is not used

	// ctx ends with Close, and with it all that runs in the background.
	ctx    context.Context
	cancel context.CancelFunc

	mu         sync.Mutex // guards closed, and background against starts after it
	closed     bool
	background sync.WaitGroup
}

// New returns a client. It connects to nobody yet, unless there is an EtcdUser: whether the
// cluster can be reached shows at the first call.
//
// Errors: InvalidParams, which names all faults of the configuration or of the files that it
// names, or says that etcd refuses the user; Unavailable if etcd does not take the user within
// 5 s.
func New(config Config) (*Client, error) { return NewContext(context.Background(), config) }

// NewContext is New with a context that bounds the wait for etcd, too. The client outlives it.
func NewContext(ctx context.Context, config Config) (*Client, error) {
	return newClient(ctx, config, clock.Boot())
}

func newClient(ctx context.Context, config Config, now clock.Clock) (*Client, error) {
	config.setDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	var err error
	if config.access, err = config.open(now); err != nil {
		return nil, errs.Wrap(errs.InvalidParams, "client.New", err)
	}
	c := &Client{config: config, clock: now, mounts: mounts{busy: make(chan struct{}, 1)}, instance: newRequestID()}
	c.view = &view{clusterID: config.ClusterID, messageBytes: config.MaxMessageBytes, terms: terms{clock: now}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.finder = newFinder(c)
	if len(config.EtcdEndpoints) > 0 {
		if c.etcd, err = etcdclient.Connect(ctx, config.EtcdEndpoints, config.etcdAccess(), nil); err != nil {
			c.Close()
			kind := errs.InvalidParams
			if ctx.Err() != nil || etcdclient.Silent(err) {
				kind = errs.Unavailable
			}
			return nil, errs.Wrap(kind, "client.New", err)
		}
		c.spawn(func(ctx context.Context) { c.finder.watch(ctx, c.etcd) })
	}
	c.spawn(c.finder.run)
	return c, nil
}

// ID returns the id under which this client puts objects and mounts segments.
func (c *Client) ID() uuid.UUID { return c.config.ClientID }

// Close ends what runs in the background, and all calls under way: with errs.Unresolved
// where the outcome is open. It waits until they have ended, which takes little time.
// Mounted segments stay mounted until the server misses the pings; unmount them first to
// take the memory back at once.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.finder.close()
	if c.etcd != nil {
		_ = c.etcd.Close()
	}
	c.background.Wait()
}

// spawn runs f in the background until the client is closed. If it is closed already, f
// does not run, and spawn reports false.
func (c *Client) spawn(f func(context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.background.Go(func() { f(c.ctx) })
	return true
}

// ended says why a call cannot go on, or nil.
func (c *Client) ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	return nil
}
