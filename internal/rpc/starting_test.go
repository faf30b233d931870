package rpc_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/internal/service"
)

// Connections whose peers send nothing, or half of what comes first, keep no server from ending:
// its successor waits for its port, or systemd for its process.
func TestStopBesideSilentConnections(t *testing.T) {
	node := rpc.NewServer(rpc.Config{ClusterID: "c", NodeID: "n", Gate: service.NewGate(), Log: zerolog.Nop()})
	starting := rpc.NewStarting(rpcerr.Source{ClusterID: "c", NodeID: "n"}, nil, func() string { return "it waits" })
	for name, server := range map[string]struct {
		serve func(net.Listener) error
		stop  func()
	}{
		"of a node that starts": {starting.Serve, starting.Stop},
		"of a node": {node.Serve, func() {
			now, cancel := context.WithCancel(t.Context())
			cancel()
			_ = node.Stop(now)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = server.serve(l)
			}()
			var silent []net.Conn
			for _, sends := range []string{"", "PRI * HTTP/2.0\r\n"} {
				c, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if _, err := io.WriteString(c, sends); err != nil {
					t.Fatal(err)
				}
				silent = append(silent, c)
			}
			// What the server sends first shows that it has accepted a connection.
			for _, c := range silent {
				if _, err := io.ReadFull(c, make([]byte, 9)); err != nil {
					t.Fatal(err)
				}
			}
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				server.stop()
			}()
			select {
			case <-stopped:
			case <-time.After(5 * time.Second): // gRPC waits for 10 s
				t.Error("stop beside silent connections: got it waiting after 5 s, want it ended")
			}
			<-stopped
			<-ended
		})
	}
}
