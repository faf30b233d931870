package client

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// A deadConn is a connection that nobody uses.
type deadConn struct{}

func (*deadConn) Invoke(context.Context, string, any, any, ...grpc.CallOption) error { return nil }
func (*deadConn) ResetConnectBackoff()                                               {}
func (*deadConn) Close() error                                                       { return nil }

// Clients that lose their leader at once replace old connections 2 to 4 s later, and not all at
// one time.
func TestConnectionsAreNotReplacedInStep(t *testing.T) {
	lost := time.Hour // on their clocks
	replaced := make(map[time.Duration]int)
	for range 200 {
		now := lost
		f := &finder{clock: func() time.Duration { return now }, spawn: func(func(context.Context)) bool { return false }}
		conn := new(deadConn)
		c := &candidate{conn: conn}
		for c.conn != nil && now < lost+time.Minute {
			if f.outdated(c, conn); c.conn != nil {
				now += 100 * time.Millisecond
			}
		}
		replaced[now-lost]++
	}
	for after, clients := range replaced {
		if after < 2*time.Second || after > 4100*time.Millisecond || clients > 100 {
			t.Errorf("%d of 200 clients replace a connection after %v, want a few, after 2 s to 4.1 s", clients, after)
		}
	}
}

// Why no node serves is said of each address once, without a kind that says no more.
func TestWhyNoNodeServes(t *testing.T) {
	refused, _ := rpcerr.Parse(status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp b:2: connect: connection refused"`))
	f := &finder{candidates: []*candidate{
		{address: "a:1", state: ours, problem: errs.New(errs.NotLeader, "ServiceReady", "this node does not serve; ask b:2")},
		{address: "b:2", state: silent, problem: refused},
		{address: "c:3", state: refusing, problem: errs.New(errs.IllegalClient, "ServiceReady", "the token is unknown")},
	}}
	const want = "a:1: this node does not serve; ask b:2; b:2: connection refused; c:3: ServiceReady: ILLEGAL_CLIENT: the token is unknown"
	if got := f.whyLocked(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
