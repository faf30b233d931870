package app

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsentBytes is how many bytes the system keeps for a connection whose peer reads nothing, and
// does not send. By default that is up to 4 MiB on Linux (net.ipv4.tcp_wmem), outside of all
// budgets of this process and, in a container, inside of its memory limit. What was sent and is
// not acknowledged yet does not count.
const unsentBytes = 64 << 10

// listenTCP is net.Listen, for connections that keep few unsent bytes.
func listenTCP(address string) (net.Listener, error) {
	c := net.ListenConfig{Control: func(_, _ string, socket syscall.RawConn) error {
		return socket.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes) // connections inherit it
		})
	}}
	c.SetMultipathTCP(false) // it is on by default, and its connections inherit nothing
	return c.Listen(context.Background(), "tcp", address)
}
