package promote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
)

// A Session is a lease in etcd that this node keeps alive.
//
// Its deadline counts from just before a keepalive is sent: etcd restarts the TTL at
// some moment after that, never earlier.
type Session struct {
	client *clientv3.Client
	clock  clock.Clock
	ttl    time.Duration
	lease  clientv3.LeaseID
	right  *journal.Right // gets the session's deadline; may be nil
}

// A spare is a session that a standby holds in advance, so that its election does not
// wait until etcd has granted one. Safe for concurrent use.
type spare struct {
	mu   sync.Mutex
	held *Session      // nil for none
	sent time.Duration // by the clock: the last keepalive that etcd answered
}

// take hands the session over to a candidate, whose right then gets its deadline. It
// returns nil if there is no session that is surely alive.
func (p *spare) take(right *journal.Right) *Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.held
	p.held = nil
	if s == nil || s.clock()-p.sent > s.ttl/2 {
		return nil // etcd ends it by itself
	}
	s.right = right
	s.extend(p.sent)
	return s
}

// run keeps a session ready until the context ends.
func (p *spare) run(ctx context.Context, n *Node) {
	for {
		p.keep(ctx, n)
		if clock.Sleep(ctx, n.SessionTTL/5) != nil {
			break
		}
	}
	p.mu.Lock()
	s := p.held
	p.held = nil
	p.mu.Unlock()
	if s != nil {
		s.close(context.WithoutCancel(ctx))
	}
}

// keep opens a session if there is none, and else keeps it alive. It does not matter
// if it fails: then the election opens one.
func (p *spare) keep(ctx context.Context, n *Node) {
	p.mu.Lock()
	s := p.held
	p.mu.Unlock()
	sent := n.Clock()
	if s == nil {
		if n.roleNow() != Standby { // it has just been taken
			return
		}
		if s, err := openSession(ctx, n.Sessions, n.Clock, n.SessionTTL, nil); err == nil {
			p.mu.Lock()
			p.held, p.sent = s, sent
			p.mu.Unlock()
		}
		return
	}
	ttl, err := s.once(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil || p.held != s:
	case ttl <= 0:
		p.held = nil
	default:
		p.sent = sent
	}
}

// ErrSessionLost says that etcd does not know the session's lease any more.
var ErrSessionLost = errors.New("the session with etcd has ended")

// openSession grants a lease of ttl, in whole seconds. It passes the deadline to a
// right, if there is one.
func openSession(ctx context.Context, client *clientv3.Client, clk clock.Clock, ttl time.Duration, right *journal.Right) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, ttl)
	defer cancel()
	before := clk()
	resp, err := client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return nil, fmt.Errorf("opening a session with etcd: %w", err)
	}
	s := &Session{client: client, clock: clk, ttl: ttl, lease: resp.ID, right: right}
	s.extend(before)
	return s, nil
}

// extend moves the deadline to one TTL after a keepalive was sent, less TTL/500: the
// clocks of two machines, each within 1/1000 of a common rate, may differ by that much.
func (s *Session) extend(sent time.Duration) {
	if s.right != nil {
		s.right.Session(sent + s.ttl - s.ttl/500)
	}
}

// keepAlive renews the lease until the context ends or the lease is lost.
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
		case err != nil: // etcd is slow or away: the deadline bounds how long this is tolerated
		case ttl <= 0:
			return ErrSessionLost
		default:
			s.extend(before)
		}
		due.Reset(before + s.ttl/5 - s.clock()) // at once, if this one took so long
	}
}

// kept keeps a session alive in a goroutine of its own until end is called, which waits for
// that. The context ends with the session, and has its error as the cause.
func (s *Session) kept(ctx context.Context) (kept context.Context, end func()) {
	kept, cancel := context.WithCancelCause(ctx)
	keeping := start(func() error {
		cancel(s.keepAlive(kept))
		return nil
	})
	return kept, func() {
		cancel(nil)
		<-keeping.ended
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

// put writes a value in JSON under a key that lives as long as the session.
func (s *Session) put(ctx context.Context, key string, value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	_, err = s.client.Put(ctx, key, string(b), clientv3.WithLease(s.lease))
	return err
}

// close revokes the lease.
func (s *Session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = s.client.Revoke(ctx, s.lease) // it expires by itself otherwise
}
