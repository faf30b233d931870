package etcdclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/understudy-store/understudy/internal/clock"
)

// callTimeout is how long a call may take before the client asks whether the member in use
// is there at all. The attempts of callers last longer, except the first attempt of a
// commit with a short serve window.
const callTimeout = 500 * time.Millisecond

// probeTimeout bounds the reads that show who answers, and how often they are made.
const probeTimeout = 500 * time.Millisecond

// tokenTime is for how long a user's token serves all calls, unless etcd refuses it. etcd
// spends 65 ms of a processor on each that it gives out, and clientv3 asks for one whenever it
// opens a stream: for each keepalive of a session.
const tokenTime = 10 * time.Second

// headStart is how much later than another member the one in use may answer a probe.
const headStart = 100 * time.Millisecond

// members keeps a client on one of the members of etcd, and moves it when that one does
// not answer. clientv3 by itself takes them in turn, so one member that hangs would delay
// every second or third call until its timeout; and it learns only by gRPC's keepalive that a
// connection silently loses packets.
//
// When a call has had no answer for a while, the client reads over the connection in use,
// and over a new one to each other member, or to the same one if there is no other. If
// the one in use answers it is slow, not away, and the client stays: where all members
// are slow to write, moving would only cut off each attempt in turn. Calls go on until
// another one has answered. Then the old connections are closed: their calls fail, and
// their watches begin anew. If none answers, they are all slow, or etcd is electing a
// leader, or away: the client goes to a member that is there, which will answer when a
// leader is.
type members struct {
	all    []string
	client *clientv3.Client
	there  atomic.Bool // client is set: while it is made, it asks for a user's token
	clock  clock.Clock
	log    *slog.Logger
	// password is Access.Password.
	password func() (string, error)

	mu     sync.Mutex // guards all below
	at     int        // index of the member in use
	moving bool
	conns  map[net.Conn]struct{} // open, to any member
	token  string                // of the user; empty for none, or if etcd refused it
	since  time.Duration         // by the clock: when etcd gave it out
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
}

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
	c := &conn{Conn: opened, members: m}
	m.conns[c] = struct{}{}
	return c, nil
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
		go m.move(m.choose)
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

// move moves the client from the member in use, if choose says so.
func (m *members) move(choose func(from int) (to int, leave bool)) {
	begun := m.clock()
	m.mu.Lock()
	from, old := m.at, slices.Collect(maps.Keys(m.conns))
	m.mu.Unlock()
	to, left := choose(from)
	if left {
		m.use(to)
	}
	m.mu.Lock()
	m.moving = false
	m.mu.Unlock()
	if !left || m.client.Ctx().Err() != nil {
		return
	}
	if to != from {
		m.log.Warn("a member of etcd does not answer: another one is used", "member", m.all[from], "now", m.all[to], "took", m.clock()-begun)
	} else {
		m.log.Warn("etcd does not answer on the connection in use: a new one is used", "member", m.all[to], "took", m.clock()-begun)
	}
	for _, c := range old {
		_ = c.Close()
	}
}

// A probe says whether a member answers.
type probe struct {
	at    int
	inUse bool // over the connection in use
	there bool // it answers by itself
	leads bool // and knows a leader
}

// choose reports whether to leave the connection in use, and for which member.
func (m *members) choose(from int) (to int, leave bool) {
	ctx, cancel := context.WithTimeout(m.client.Ctx(), probeTimeout)
	defer cancel()
	probes := make(chan probe, 2*len(m.all)+2)
	go m.probe(ctx, probe{at: from, inUse: true}, m.client.ActiveConnection(), probes)
	for at := range m.all {
		if at == from && len(m.all) > 1 {
			continue
		}
		// Not in the goroutine: it reads what SetEndpoints writes.
		if conn, err := m.client.Dial(m.all[at]); err == nil {
			go m.probeAnew(ctx, at, conn, probes)
		}
	}
	var late <-chan time.Time // when the one in use has had its time
	failed, stays, there := false, false, -1
	for to = -1; ; {
		select {
		case p := <-probes:
			switch {
			case p.inUse && p.leads:
				return from, false
			case p.inUse:
				failed, stays = failed || !p.there, stays || p.there
			case p.leads && to < 0:
				to, late = p.at, time.After(headStart)
			case p.there && there < 0:
				there = p.at
			}
			if failed && to >= 0 {
				return to, true
			}
		case <-late:
			return to, true
		case <-ctx.Done():
			return there, there >= 0 && there != from && !stays
		}
	}
}

// probing marks the context of a probe.
type probing struct{}

// probeAnew is probe over a connection of its own, which it closes.
func (m *members) probeAnew(ctx context.Context, at int, conn *grpc.ClientConn, to chan<- probe) {
	defer conn.Close()
	m.probe(ctx, probe{at: at}, conn, to)
}

// probe tells whether a member answers by itself, then whether it knows a leader. It
// bypasses clientv3, which would repeat a read while the member cannot be reached.
func (m *members) probe(ctx context.Context, p probe, conn *grpc.ClientConn, to chan<- probe) {
	ctx = context.WithValue(ctx, probing{}, true)
	kv, key := pb.NewKVClient(conn), []byte(checkKey)
	_, err := kv.Range(ctx, &pb.RangeRequest{Key: key, Serializable: true})
	p.there = answered(err)
	to <- p
	if !p.there {
		return
	}
	if _, err := kv.Range(ctx, &pb.RangeRequest{Key: key}); answered(err) {
		p.leads = true
		to <- p
	}
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

// inUse reports whether a connection is the one that moves from member to member.
func (m *members) inUse(cc *grpc.ClientConn) bool {
	return m.there.Load() && cc == m.client.ActiveConnection()
}

// authenticate gets a new token from etcd, unless the last one is younger than tokenTime.
func (m *members) authenticate(req *pb.AuthenticateRequest, reply *pb.AuthenticateResponse, invoke func() error) (err error) {
	m.mu.Lock()
	token, since := m.token, m.since
	m.mu.Unlock()
	if token != "" && m.clock()-since < tokenTime {
		reply.Token = token
		return nil
	}
	if req.Password, err = m.password(); err != nil {
		return fmt.Errorf("the password of etcd's user %s: %w", req.Name, err)
	}
	if err = invoke(); err == nil {
		m.mu.Lock()
		m.token, m.since = reply.Token, m.clock()
		m.mu.Unlock()
	}
	return err
}

// refused forgets the token if etcd does not take it.
func (m *members) refused(err error) {
	if err = rpctypes.Error(err); errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) {
		m.mu.Lock()
		m.token = ""
		m.mu.Unlock()
	}
}

func (m *members) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if given, ok := reply.(*pb.AuthenticateResponse); ok {
		return m.authenticate(req.(*pb.AuthenticateRequest), given, func() error { return invoke(ctx, method, req, reply, cc, opts...) })
	}
	if !m.inUse(cc) || !strings.HasPrefix(method, "/etcdserverpb.KV/") && !strings.HasPrefix(method, "/etcdserverpb.Lease/") {
		err := invoke(ctx, method, req, reply, cc, opts...) // to a given member, or one that may take long
		if ctx.Value(probing{}) != nil && answered(err) {
			return nil // clientv3 would ask the member in use for another token
		}
		m.refused(err)
		return err
	}
	begun := m.clock()
	stop, at := m.leaveAfter()
	err := invoke(ctx, method, req, reply, cc, opts...)
	stop()
	m.failed(at, err)
	m.refused(err)
	if status.Code(err) == codes.DeadlineExceeded && m.clock()-begun >= callTimeout/3 {
		m.leave(at) // the call's own deadline may come before the timeout
	}
	return err
}

func (m *members) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if !m.inUse(cc) {
		return open(ctx, desc, cc, method, opts...)
	}
	stop, at := m.leaveAfter()
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil || !strings.HasSuffix(method, "/LeaseKeepAlive") { // others may be silent for long
		stop()
		m.failed(at, err)
		return s, err
	}
	return &keepAlive{ClientStream: s, stop: stop, failed: func(err error) { m.failed(at, err); m.refused(err) }}, nil
}

// A keepAlive is a stream whose first answer has a timeout.
type keepAlive struct {
	grpc.ClientStream
	stop   func() bool
	failed func(error)
}

func (k *keepAlive) RecvMsg(msg any) error {
	err := k.ClientStream.RecvMsg(msg)
	k.stop()
	k.failed(err)
	return err
}
