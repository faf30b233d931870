package etcdtest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// A link is a TCP proxy in front of one port of a member. It keeps the address
// that others know while the member is down or listens on another port, and it
// can stall and cut what passes.
type link struct {
	ln     net.Listener
	ctx    context.Context // ends with the link
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu     sync.Mutex
	target string        // where the member listens; "" while it is down
	broken bool          // cut: connections are refused
	stall  chan struct{} // closed when the link goes on; nil if it is not stalled
	conns  map[net.Conn]struct{}
}

func newLink() (*link, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{ln: ln, conns: make(map[net.Conn]struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.tasks.Go(l.accept)
	return l, nil
}

// addr is the host:port that others know.
func (l *link) addr() string { return l.ln.Addr().String() }

// connect sets where the member listens, "" if it does not.
func (l *link) connect(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

// pause holds back all bytes, and new connections too: they are accepted and
// hear nothing, as from a machine that hangs.
func (l *link) pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stall == nil {
		l.stall = make(chan struct{})
	}
}

// resume lets the bytes held back go on, in order and complete.
func (l *link) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stall != nil {
		close(l.stall)
		l.stall = nil
	}
}

// cut resets all connections, and every new one at once.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for c := range l.conns {
		reset(c)
	}
}

// heal ends a cut.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = false
}

func (l *link) close() {
	l.cancel()
	_ = l.ln.Close()
	l.cut()
	l.tasks.Wait()
}

func (l *link) accept() {
	for {
		client, err := l.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // the connection died while it waited
		}
		l.tasks.Go(func() { l.serve(client) })
	}
}

// serve joins a client with the member until both ends have finished.
func (l *link) serve(client net.Conn) {
	if !l.track(client) {
		return
	}
	defer l.drop(client)
	if !l.flowing() {
		return
	}
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	if target == "" {
		reset(client)
		return
	}
	var d net.Dialer
	member, err := d.DialContext(l.ctx, "tcp", target)
	if err != nil {
		reset(client)
		return
	}
	if !l.track(member) {
		return
	}
	defer l.drop(member)

	var directions sync.WaitGroup
	directions.Go(func() { l.copy(member, client) })
	directions.Go(func() { l.copy(client, member) })
	directions.Wait()
}

// copy passes bytes on until src ends, and then ends dst's side.
func (l *link) copy(dst, src net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if !l.flowing() {
			return
		}
		if n > 0 {
			if _, werr := dst.Write(buf[:n]); werr != nil {
				reset(src)
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			_ = dst.(*net.TCPConn).CloseWrite()
			return
		case err != nil:
			reset(dst)
			return
		}
	}
}

// flowing waits while the link is stalled, and reports whether it still is
// there.
func (l *link) flowing() bool {
	for {
		l.mu.Lock()
		stall := l.stall
		l.mu.Unlock()
		if stall == nil {
			return l.ctx.Err() == nil
		}
		select {
		case <-stall:
		case <-l.ctx.Done():
			return false
		}
	}
}

// track makes a connection one that cut resets. It resets the connection and
// reports false if the link is cut already.
func (l *link) track(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		reset(c)
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *link) drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	_ = c.Close()
}

// reset closes a connection so that the other end gets an error at once.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}
