package fakeetcd

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
)

// pipeBytes bounds what is under way in one direction. gRPC's own windows stay
// far below it.
const pipeBytes = 8 << 20

// A pipe carries bytes in one direction over a link. Every wait in it is on a
// channel or a timer, which a synctest bubble counts as idle.
type pipe struct {
	link    *Link
	answers bool // else requests
	clock   clock.Clock

	mu      sync.Mutex // guards all below; taken after the link's
	parts   []part
	bytes   int
	closed  error // no more is written: what readers get in the end
	broken  bool  // and what is under way is lost
	changed chan struct{}
}

// A part is one write on its way.
type part struct {
	data []byte
	sent time.Duration // by the pipe's clock
}

func newPipe(l *Link, answers bool) *pipe {
	return &pipe{link: l, answers: answers, clock: clock.Runtime(), changed: make(chan struct{})}
}

// wake makes everybody look again.
func (p *pipe) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signal()
}

// signal needs mu.
func (p *pipe) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// close ends the pipe. After io.EOF readers still get what is under way.
func (p *pipe) close(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed == nil {
		p.closed = err
	}
	if err != io.EOF { //nolint:errorlint // one of two values
		p.broken = true
	}
	p.signal()
}

func (p *pipe) write(b []byte) (int, error) {
	for {
		p.mu.Lock()
		if p.closed != nil {
			p.mu.Unlock()
			return 0, io.ErrClosedPipe
		}
		if p.bytes == 0 || p.bytes+len(b) <= pipeBytes {
			p.parts = append(p.parts, part{append([]byte(nil), b...), p.clock()})
			p.bytes += len(b)
			p.signal()
			p.mu.Unlock()
			return len(b), nil
		}
		changed := p.changed
		p.mu.Unlock()
		<-changed
	}
}

func (p *pipe) read(b []byte) (int, error) {
	for {
		changed := p.changes() // before anything is looked at, so that no change is missed
		stalled, delay := p.link.transit(p.answers)
		var timer <-chan time.Time
		if !stalled {
			n, wait, err := p.take(b, delay)
			if n > 0 || err != nil {
				return n, err
			}
			if wait > 0 {
				timer = time.After(wait)
			}
		} else if err := p.lost(); err != nil {
			return 0, err
		}
		select {
		case <-changed:
		case <-timer:
		}
	}
}

func (p *pipe) changes() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// lost returns why the pipe is broken, nil if it is not.
func (p *pipe) lost() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return p.closed
	}
	return nil
}

// take reads what has arrived. If that is nothing, it returns how long the next
// part still takes, 0 if there is none.
func (p *pipe) take(b []byte, delay time.Duration) (n int, wait time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.broken, len(p.parts) == 0 && p.closed != nil:
		return 0, 0, p.closed
	case len(p.parts) == 0:
		return 0, 0, nil
	}
	first := &p.parts[0]
	if wait = first.sent + delay - p.clock(); wait > 0 {
		return 0, wait, nil
	}
	n = copy(b, first.data)
	if first.data = first.data[n:]; len(first.data) == 0 {
		p.parts = p.parts[1:]
	}
	p.bytes -= n
	p.signal()
	return n, 0, nil
}

// A conn is one end of a connection.
type conn struct {
	in, out *pipe
	name    string
}

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }

// Close ends both directions; the other end still gets what is under way.
func (c *conn) Close() error {
	c.out.close(io.EOF)
	c.in.close(io.ErrClosedPipe)
	c.in.link.forget(c.in) // the other direction is still read
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return address(c.name) }
func (c *conn) RemoteAddr() net.Addr { return address(c.name) }

// Deadlines are gRPC's guard of its handshake; it closes the connection as
// well when that takes too long.
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
