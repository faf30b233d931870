package rpc

import (
	"net"
	"sync"
)

// accepted are the connections of a server's listeners that are open, so that it can close them:
// gRPC's own Stop waits, up to handshakeTimeout, for those whose peers have sent nothing yet.
type accepted struct {
	mu     sync.Mutex
	open   map[*acceptedConn]struct{}
	closed bool
}

func (a *accepted) listener(l net.Listener) net.Listener { return acceptedListener{l, a} }

// close closes all connections, and those that are still accepted at once.
func (a *accepted) close() {
	a.mu.Lock()
	a.closed = true
	open := a.open
	a.open = nil
	a.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close()
	}
}

type acceptedListener struct {
	net.Listener
	of *accepted
}

func (l acceptedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &acceptedConn{Conn: conn, of: l.of}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.of.closed {
		_ = conn.Close() // gRPC finds that out
		return c, nil
	}
	if l.of.open == nil {
		l.of.open = make(map[*acceptedConn]struct{})
	}
	l.of.open[c] = struct{}{}
	return c, nil
}

// An acceptedConn is closed by gRPC in any case, whatever becomes of its handshake.
type acceptedConn struct {
	net.Conn
	of *accepted

	mu     sync.Mutex
	closed bool
	after  []func()
}

// onClose has a function called when the connection is closed; at once if it is.
func (c *acceptedConn) onClose(f func()) {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.after = append(c.after, f)
	}
	c.mu.Unlock()
	if closed {
		f()
	}
}

func (c *acceptedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	c.mu.Lock()
	after := c.after
	c.closed, c.after = true, nil
	c.mu.Unlock()
	for _, f := range after {
		f()
	}
	return c.Conn.Close()
}
