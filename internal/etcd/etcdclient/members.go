package etcdclient

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/understudy-store/understudy/internal/clock"
)

// callTimeout is how long a member may take for an answer before the client asks
// whether it is there at all. The attempts of callers last longer, but for the first
// attempt of a commit with a short serve window.
const callTimeout = 500 * time.Millisecond

// probeTimeout bounds the read that shows whether a member answers.
const probeTimeout = 500 * time.Millisecond

// members keeps a client on one of several members of etcd, and moves it to the
// next when that one does not answer. clientv3 by itself takes them in turn, so
// one member that hangs would delay every second or third call until its timeout.
//
// When a call has had no answer for a while, the client first reads at the member in
// use. One that answers is slow, not away, and the client stays: where all members are
// slow to write, moving would only cut off each attempt in turn. Otherwise it reads at
// the others in turn. Calls at the old member go on until another one has answered. Then
// the connections to the old member are closed: its calls fail, and its watches begin
// anew at the next one. If none answers, they are all slow, or etcd is electing a leader,
// or away: the client goes to one that is there, which will answer when a leader is.
type members struct {
	all    []string
	client *clientv3.Client
	clock  clock.Clock
	log    *slog.Logger

	mu     sync.Mutex // guards all below
	at     int        // index of the member in use
	moving bool
	conns  map[*conn]struct{} // open, to any member
}

// options are for the client whose members these are.
func (m *members) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(m.dial),
		grpc.WithChainUnaryInterceptor(m.unary),
		grpc.WithChainStreamInterceptor(m.stream),
	}
}

// A conn is an open connection to a member.
type conn struct {
	net.Conn
	members *members
	host    string
}

// Close closes the connection.
func (c *conn) Close() error {
	c.members.mu.Lock()
	delete(c.members.conns, c)
	c.members.mu.Unlock()
	return c.Conn.Close()
}

func (m *members) dial(ctx context.Context, address string) (net.Conn, error) {
	opened, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &conn{Conn: opened, members: m, host: address}
	m.conns[c] = struct{}{}
	return c, nil
}

// host returns the address that is dialed for an endpoint, which may be a URL.
func host(endpoint string) string {
	if _, rest, url := strings.Cut(endpoint, "://"); url {
		endpoint, _, _ = strings.Cut(rest, "/")
	}
	return endpoint
}

func (m *members) current() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

// leave moves the client on from a member that does not answer, unless it has moved or
// is moving.
func (m *members) leave(at int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == at && !m.moving && m.client.Ctx().Err() == nil {
		m.moving = true
		go m.move(m.probe)
	}
}

// use moves the client to a member. It may wait for connections to be closed.
func (m *members) use(at int) {
	m.mu.Lock()
	moves := m.at != at
	m.at = at
	m.mu.Unlock()
	if moves {
		m.client.SetEndpoints(m.all[at])
	}
}

// move goes from member to member until one answers, the one in use first, and once
// round at most. answers asks the one in use.
func (m *members) move(answers func() error) {
	begun, from, there := m.clock(), m.current(), -1 // the first that is there, though it may not reach a leader
	for tries := len(m.all); answers() != nil; answers = m.probe {
		at := m.current()
		if there < 0 && m.isThere() {
			there = at
		}
		if tries--; tries == 0 {
			if there >= 0 {
				m.use(there)
			}
			break
		}
		m.use((at + 1) % len(m.all))
	}
	m.mu.Lock()
	m.moving = false
	at := m.at
	var left []*conn
	for c := range m.conns {
		if at != from && c.host != host(m.all[at]) {
			left = append(left, c)
		}
	}
	m.mu.Unlock()
	if at != from && m.client.Ctx().Err() == nil {
		m.log.Warn("a member of etcd does not answer: another one is used", "member", m.all[from], "now", m.all[at], "took", m.clock()-begun)
	}
	for _, c := range left {
		_ = c.Close()
	}
}

// probe makes one linearizable read at the member in use, which needs a leader.
func (m *members) probe() error {
	return m.read(probeTimeout, &pb.RangeRequest{Key: []byte(checkKey)})
}

// isThere reports whether the member in use answers by itself.
func (m *members) isThere() bool {
	return m.read(probeTimeout/5, &pb.RangeRequest{Key: []byte(checkKey), Serializable: true}) == nil
}

// read reads at the member in use. It bypasses clientv3, which would repeat the read
// while the member cannot be reached.
func (m *members) read(timeout time.Duration, r *pb.RangeRequest) error {
	ctx, cancel := context.WithTimeout(m.client.Ctx(), timeout)
	defer cancel()
	_, err := pb.NewKVClient(m.client.ActiveConnection()).Range(ctx, r)
	return err
}

// leaveAfter leaves the member in use after a while, unless it is stopped.
func (m *members) leaveAfter() (stop func() bool, at int) {
	at = m.current()
	return time.AfterFunc(callTimeout, func() { m.leave(at) }).Stop, at
}

// failed leaves a member that says it cannot serve, or that cannot be reached.
func (m *members) failed(at int, err error) {
	if status.Code(err) == codes.Unavailable {
		m.leave(at)
	}
}

func (m *members) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if cc != m.client.ActiveConnection() || !strings.HasPrefix(method, "/etcdserverpb.KV/") && !strings.HasPrefix(method, "/etcdserverpb.Lease/") {
		return invoke(ctx, method, req, reply, cc, opts...) // to a given member, or one that may take long
	}
	begun := m.clock()
	stop, at := m.leaveAfter()
	err := invoke(ctx, method, req, reply, cc, opts...)
	stop()
	m.failed(at, err)
	if status.Code(err) == codes.DeadlineExceeded && m.clock()-begun >= callTimeout/3 {
		m.leave(at) // the call's own deadline may come before the timeout
	}
	return err
}

func (m *members) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if cc != m.client.ActiveConnection() {
		return open(ctx, desc, cc, method, opts...)
	}
	stop, at := m.leaveAfter()
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil || !strings.HasSuffix(method, "/LeaseKeepAlive") { // others may be silent for long
		stop()
		m.failed(at, err)
		return s, err
	}
	return &keepAlive{ClientStream: s, stop: stop, failed: func(err error) { m.failed(at, err) }}, nil
}

// A keepAlive is a stream whose first answer has a timeout.
type keepAlive struct {
	grpc.ClientStream
	stop   func() bool
	failed func(error)
}

// RecvMsg receives a message.
func (k *keepAlive) RecvMsg(msg any) error {
	err := k.ClientStream.RecvMsg(msg)
	k.stop()
	k.failed(err)
	return err
}
