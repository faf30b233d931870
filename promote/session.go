package promote

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
)

// A Session is a lease in etcd that this node keeps alive, and the time until
// which it may rely on it, by its own clock.
//
// The deadline counts from before a keepalive is sent: etcd may have begun the
// TTL anew at any moment after that, and no earlier.
type Session struct {
	client   *clientv3.Client
	clock    clock.Clock
	ttl      time.Duration
	lease    clientv3.LeaseID
	deadline atomic.Int64 // by the clock, in ns
	stopped  atomic.Bool  // this node gave the session up
}

// ErrSessionLost says that etcd does not know the session's lease any more.
var ErrSessionLost = errors.New("the session with etcd has ended")

// openSession grants a lease of ttl, in whole seconds.
func openSession(ctx context.Context, client *clientv3.Client, clk clock.Clock, ttl time.Duration) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, ttl)
	defer cancel()
	before := clk()
	resp, err := client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return nil, fmt.Errorf("opening a session with etcd: %w", err)
	}
	s := &Session{client: client, clock: clk, ttl: ttl, lease: resp.ID}
	s.extend(before)
	return s, nil
}

// extend sets the deadline for a keepalive sent at a time: its TTL, less what
// two clocks within 1/1000 of a common rate may differ in it.
func (s *Session) extend(sent time.Duration) {
	s.deadline.Store(int64(sent + s.ttl - s.ttl/500))
}

// Valid reports whether this node may rely on the session now.
func (s *Session) Valid() bool {
	return !s.stopped.Load() && int64(s.clock()) < s.deadline.Load()
}

// Fence returns nil while this node may rely on the session, else errs.NotLeader.
func (s *Session) Fence() error {
	if !s.Valid() {
		return errFenced
	}
	return nil
}

var errFenced = errs.New(errs.NotLeader, "fence", "this node's session with etcd may have ended")

// stop makes the session invalid at once, whatever its deadline.
func (s *Session) stop() { s.stopped.Store(true) }

// resume takes stop back.
func (s *Session) resume() { s.stopped.Store(false) }

// keepAlive renews the lease until the context ends or the lease is lost. A
// session whose deadline has passed becomes valid again if a later keepalive of
// the same lease succeeds.
func (s *Session) keepAlive(ctx context.Context) error {
	due := time.NewTimer(s.ttl / 5)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-due.C:
		}
		before := s.clock()
		ttl, err := s.once(ctx)
		switch {
		case err != nil: // etcd is slow or away: the deadline says how long that matters not
		case ttl <= 0:
			return ErrSessionLost
		default:
			s.extend(before)
		}
		due.Reset(before + s.ttl/5 - s.clock()) // at once, if this one took so long
	}
}

// once sends one keepalive and returns the TTL that etcd grants, 0 if it does
// not know the lease. clientv3's KeepAlive hides when it was sent, and its
// KeepAliveOnce spins while etcd is away.
func (s *Session) once(ctx context.Context) (ttl int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.ttl/2)
	defer cancel()
	stream, err := etcdserverpb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(ctx, grpc.WaitForReady(true))
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(s.lease)}); err != nil {
		return 0, err
	}
	resp, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	_ = stream.CloseSend()
	return resp.TTL, nil
}

// close gives the lease back.
func (s *Session) close(ctx context.Context) {
	s.stop()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = s.client.Revoke(ctx, s.lease) // it expires by itself otherwise
}
