package coro

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
)

// readBuffer is small: there may be hundreds of connections from each client
// process.
const readBuffer = 4 << 10

// waitWorth is how long a request must have waited for those before it to be
// given less time: shorter ones are not worth a deadline.
const waitWorth = 10 * time.Millisecond

// A Conn is one connection to a server.
type Conn struct {
	server  *Server
	nc      net.Conn
	in      *bufio.Reader
	out     *outbox
	arrived time.Duration // by the server's clock: when the network was last waited for
	handler Handler
	share   share
}

func newConn(s *Server, nc net.Conn) *Conn {
	return &Conn{server: s, nc: nc, out: newOutbox(nc, s.clock, s.Limits.Frame), share: s.Limits.Budget.share(nc)}
}

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// PeerGone reports whether the peer has closed the connection, as far as this
// machine knows: no answer will arrive.
func (c *Conn) PeerGone() bool {
	sc, ok := c.nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	var b [1]byte
	err = raw.Control(func(fd uintptr) { // Read would heed the deadline that ends the wait for requests
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		gone = n == 0 && err == nil || err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return gone || err != nil
}

// Reserve waits until this call may make an answer that can be large, though its request
// is not. A call may reserve once.
func (c *Conn) Reserve(ctx context.Context) error {
	return c.share.reserve(ctx, c.server.Limits.Frame)
}

// interrupt ends the wait for a next request.
func (c *Conn) interrupt() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

// run answers requests until the connection ends, or hands it to Server.Other.
func (c *Conn) run() {
	given := false
	defer func() {
		if !given {
			c.nc.Close()
		}
	}()
	c.in = bufio.NewReaderSize(c.nc, readBuffer)
	err := c.begin()
	if err != nil {
		c.complain(err)
		return
	}
	if first, _ := c.in.Peek(1); first[0] != Magic && c.server.Other != nil {
		given = true
		c.server.Other(c.rest())
		return
	}
	if c.handler = c.server.Open(c); c.handler == nil {
		return
	}
	defer c.handler.Close()
	defer c.out.stop()
	defer func() { _ = c.share.become(0) }()
	err = c.answerAll()
	if len(c.out.ready) > 0 {
		err = errors.Join(err, c.send())
	}
	c.handler.Delivered(err)
}

// begin waits for the first byte.
func (c *Conn) begin() error {
	if err := c.nc.SetReadDeadline(clock.Deadline(c.server.Limits.Frame)); err != nil {
		return err
	}
	if c.server.ending.Err() != nil {
		return io.EOF // interrupt may have come before the deadline was set
	}
	if _, err := c.in.Peek(1); err != nil {
		return err
	}
	c.arrived = c.server.clock()
	return c.nc.SetReadDeadline(time.Time{})
}

// rest returns the connection for another protocol, with what was read of it.
func (c *Conn) rest() net.Conn {
	read, _ := c.in.Peek(c.in.Buffered())
	return &prefixed{Conn: c.nc, prefix: read}
}

// complain logs what a peer did wrong, if an error of reading from it or of
// sending to it says so.
func (c *Conn) complain(err error) {
	timeout := errors.Is(err, os.ErrDeadlineExceeded) && c.server.ending.Err() == nil
	if errors.Is(err, errBusy) {
		c.server.Log.Warn("closed a connection; its client tries again", "peer", c.nc.RemoteAddr().String(), "error", err)
	}
	if timeout || errors.Is(err, ErrProtocol) || errors.Is(err, io.ErrUnexpectedEOF) {
		c.server.Log.Warn("closed a connection that does not speak as a Mooncake client should", "peer", c.nc.RemoteAddr().String(), "error", err)
	}
}

func (c *Conn) answerAll() error {
	for c.server.ending.Err() == nil {
		whole := c.whole()
		switch ready := len(c.out.ready); {
		case ready == 0:
		case whole && ready < maxOut:
			c.out.hold() // a peer that sends several at once gets several at once
		default:
			if err := c.send(); err != nil {
				return err
			}
		}
		q, body, err := c.next(whole)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			c.complain(err)
			return err
		}
		if err := c.call(q, body); err != nil {
			return err
		}
	}
	return nil
}

// next waits for the next request and reads it. Its error is io.EOF if there is
// none, and the connection ends as it should.
func (c *Conn) next(whole bool) (request, string, error) {
	if whole {
		return c.read()
	}
	if _, err := c.in.Peek(1); err != nil {
		return request{}, "", err
	}
	limited := !c.whole() // most are, and cost no deadline
	if limited {
		if err := c.nc.SetReadDeadline(clock.Deadline(c.server.Limits.Frame)); err != nil {
			return request{}, "", err
		}
	}
	q, body, err := c.read()
	if c.arrived = c.server.clock(); err == nil && limited {
		err = c.nc.SetReadDeadline(time.Time{})
	}
	return q, body, err
}

// whole reports whether the next frame is in the buffer.
func (c *Conn) whole() bool {
	n := c.in.Buffered()
	if n < requestHeader {
		return false
	}
	h, err := c.in.Peek(requestHeader)
	if err != nil {
		return false
	}
	q, err := parseRequest(h)
	return err == nil && uint64(n) >= requestHeader+uint64(q.body)+uint64(q.attachment)
}

// read reads a request that has begun.
func (c *Conn) read() (q request, body string, err error) {
	h, err := c.in.Peek(requestHeader)
	if err != nil {
		return q, "", cut(err)
	}
	if q, err = parseRequest(h); err != nil {
		return q, "", err
	}
	if most := c.server.Limits.BodyBytes; q.body > most || q.attachment > most {
		return q, "", fmt.Errorf("%w: a request has a body of %d bytes and an attachment of %d; at most %d each are taken", ErrProtocol, q.body, q.attachment, most)
	}
	if _, err = c.in.Discard(requestHeader); err != nil {
		return q, "", err
	}
	if q.body > readBuffer {
		if err = c.share.await(c.server.calls, q.body, c.server.Limits.Frame); err != nil {
			return q, "", err
		}
	}
	body, err = c.receive(q)
	return q, body, err
}

// call lets the handler answer a request and puts a header before that.
func (c *Conn) call(q request, body string) error {
	ctx := c.server.calls
	if waited := c.server.clock() - c.arrived; waited > waitWorth {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.server.Limits.Call-waited)
		defer cancel()
	}
	ready := c.out.ready
	at := len(ready)
	var room [responseHeader]byte
	answered := response{seq: q.seq}
	reply, err := c.handler.Call(ctx, q.function, body, append(ready, room[:]...))
	if err != nil {
		var refused *Error
		if !errors.As(err, &refused) {
			return err
		}
		answered.code = refused.Code
		reply = structpack.Pack(new(structpack.Writer), append(ready, room[:]...), errorMessage, &refused.Message)
	}
	waits := int64(len(reply)) // to be sent
	if waits <= maxOut {
		waits = 0
	}
	if err := c.share.become(waits); err != nil {
		c.complain(err)
		return err
	}
	answered.body = uint32(len(reply) - at - responseHeader)
	putResponse(reply[at:], answered)
	c.out.add(reply)
	return nil
}

// send hands the answers so far to the network.
func (c *Conn) send() error {
	if err := c.out.send(); err != nil {
		c.complain(err)
		return err
	}
	c.handler.Delivered(nil)
	return c.share.become(0)
}

// prefixed is a connection of which some bytes were read already.
type prefixed struct {
	net.Conn
	prefix []byte
}

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.prefix) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.prefix)
	p.prefix = p.prefix[n:]
	return n, nil
}
