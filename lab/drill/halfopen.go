package drill

import (
	"bytes"
	"context"
	"net"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/net/http2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/lab/cluster"
)

// The attacks of peers that begin something and then say nothing.

// halfOpen returns these attacks, one for each protocol.
func halfOpen() []attack {
	preface := []byte(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00") // with empty SETTINGS
	with := func(begin []byte, more ...byte) []byte { return append(bytes.Clone(begin), more...) }
	header := []byte{coro.Magic, 0, 0, 0, 0, 0, 0, 0}
	frame := mooncakeFrame(0, make([]byte, 1<<20))
	http := func(n *cluster.Node) string { return n.HTTP }
	return []attack{
		{what: "half-open gRPC connections", at: direct, run: leaveHalfOpen(nil, preface[:10], preface, with(preface, 0, 0, 100), with(preface, 0, 0, 100, 1, 4, 0, 0, 0, 1, 0x82))},
		{what: "half-open Mooncake connections", at: direct, run: leaveHalfOpen(header[:1], header, frame[:len(frame)/2])},
		{what: "half-open HTTP connections", at: http, run: leaveHalfOpen(nil, []byte("GE"), []byte("GET /metrics HTTP/1.1\r\nHost:"),
			[]byte("POST /api/v1/drain_jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"))},
	}
}

// leaveHalfOpen opens two connections for each beginning, and sends the beginning and nothing
// more. One of the two then vanishes.
func leaveHalfOpen(beginnings ...[]byte) func(context.Context, string) {
	return func(ctx context.Context, address string) {
		var g errgroup.Group
		for i := range 2 * len(beginnings) {
			g.Go(func() error {
				onSocket(ctx, address, func(c net.Conn) {
					if _, _ = c.Write(beginnings[i/2]); i%2 == 1 {
						vanish(c)
					}
					<-ctx.Done()
				})
				return nil
			})
		}
		_ = g.Wait()
	}
}

// vanish makes a connection silent, as if this host had gone: a filter drops whatever
// arrives, so the kernel acknowledges nothing. If the process may use TCP_REPAIR, the kernel
// does not send the end of the connection either.
func vanish(c net.Conn) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
		_ = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1)
	})
}

const (
	connectionsGo   = time.Minute // after an attack: longer than a node's timeouts, except gRPC's probe
	moreDescriptors = 50          // how many more than before may be open, for other connections
)

// connectionsEnd checks that a node ends the connections of an attack. before is how many
// file descriptors it had open before the attack.
func (e *Env) connectionsEnd(ctx context.Context, n *cluster.Node, before int, what string) {
	now := 0
	err := cluster.Poll(ctx, connectionsGo, "the connections end", func(context.Context) (bool, error) {
		now = descriptors(n)
		return now <= before+moreDescriptors, nil
	})
	e.result.check("connections end", err == nil, "%v after %s the primary has %d descriptors, before it had %d", connectionsGo, what, now, before)
	do(ctx.Err())
}

func descriptors(n *cluster.Node) int {
	return must(must(procfs.NewProc(n.PID)).FileDescriptorsLen())
}
