package client

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
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
