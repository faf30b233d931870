package fakeetcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// A Link is one client's way to the server. Its faults hit the connections
// over it, those that are there and those to come.
type Link struct {
	name   string
	server *Server

	mu         sync.Mutex // guards all below
	cut        bool
	serverDown bool
	stalled    bool
	there      time.Duration // that requests take
	back       time.Duration // that answers take
	pipes      map[*pipe]bool
}

// Link returns a new way to the server. Calls over it carry its name.
func (s *Server) Link(name string) *Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &Link{name: name, server: s, serverDown: s.down, pipes: make(map[*pipe]bool)}
	s.links = append(s.links, l)
	return l
}

// Client returns a client over the link. It connects again quickly, and without
// jitter, so that a run can be repeated.
func (l *Link) Client() (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:             []string{l.name},
		Logger:                zap.NewNop(),
		BackoffJitterFraction: 1e-12, // 0 stands for etcd's default
		DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(l.dial),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 500 * time.Millisecond},
				MinConnectTimeout: time.Second,
			}),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("connecting %s to the fake etcd: %w", l.name, err)
	}
	return client, nil
}

// Cut breaks all connections and refuses new ones, until Heal.
func (l *Link) Cut() { l.change(func() { l.cut = true }) }

// Heal ends Cut.
func (l *Link) Heal() { l.change(func() { l.cut = false }) }

// Stall holds back all bytes of both directions, until Resume: as with a peer
// that hangs. Connections stay open, and nothing is lost.
func (l *Link) Stall() { l.change(func() { l.stalled = true }) }

// Resume ends Stall. What was held back arrives now.
func (l *Link) Resume() { l.change(func() { l.stalled = false }) }

// Delay makes requests, and answers, take so much time from now on.
func (l *Link) Delay(there, back time.Duration) { l.change(func() { l.there, l.back = there, back }) }

// change changes the link's state and lets its connections see it.
func (l *Link) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	for p := range l.pipes {
		if l.cut || l.serverDown {
			p.close(errCut)
			delete(l.pipes, p)
		}
		p.wake()
	}
}

var errCut = errors.New("fakeetcd: the connection is cut")

// dial connects to the server, whatever the address.
func (l *Link) dial(ctx context.Context, _ string) (net.Conn, error) {
	l.mu.Lock()
	if l.cut || l.serverDown {
		l.mu.Unlock()
		return nil, errCut
	}
	there, back := newPipe(l, false), newPipe(l, true)
	l.pipes[there], l.pipes[back] = true, true
	l.mu.Unlock()
	select {
	case l.server.arrived <- &conn{in: there, out: back, name: l.name}:
		return &conn{in: back, out: there, name: l.name}, nil
	case <-ctx.Done():
		l.forget(there, back)
		return nil, ctx.Err()
	}
}

func (l *Link) forget(pipes ...*pipe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range pipes {
		delete(l.pipes, p)
	}
}

// transit returns how the bytes of requests, or of answers, pass now.
func (l *Link) transit(answers bool) (stalled bool, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answers {
		return l.stalled, l.back
	}
	return l.stalled, l.there
}

// address is the name of a link, as a network address.
type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }
