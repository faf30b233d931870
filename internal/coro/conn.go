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
	"github.com/understudy-store/understudy/internal/structpack"
)

// Sizes of a connection's buffers. There may be hundreds of connections from
// each client process.
const (
	readBuffer = 4 << 10
	maxOut     = 64 << 10 // answers are sent when there are so many bytes, and such room is not kept
)

// A Conn is one connection to a server.
type Conn struct {
	server  *Server
	nc      net.Conn
	in      *bufio.Reader
	out     []byte        // answers that are not sent yet
	sendBy  time.Duration // by the server's clock: the write deadline that is set
	handler Handler
}

func newConn(s *Server, nc net.Conn) *Conn { return &Conn{server: s, nc: nc} }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// PeerGone reports whether the peer has closed the connection, as far as this
// machine has heard: nobody will get an answer.
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
	err = raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		gone = n == 0 && err == nil || err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
		return true
	})
	return gone || err != nil
}

// interrupt ends the wait for a next request.
func (c *Conn) interrupt() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

// run answers requests until the connection ends, or gives it to whom it is for.
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
	err = c.answerAll()
	if len(c.out) > 0 {
		err = errors.Join(err, c.send())
	}
	c.handler.Delivered(err)
	c.complain(err)
}

// begin waits for the first byte.
func (c *Conn) begin() error {
	if err := c.nc.SetReadDeadline(clock.Deadline(c.server.Limits.Silence)); err != nil {
		return err
	}
	if c.server.ending.Err() != nil {
		return io.EOF // the deadline of interrupt may be overwritten
	}
	if _, err := c.in.Peek(1); err != nil {
		return err
	}
	return c.nc.SetReadDeadline(time.Time{})
}

// rest returns the connection for another protocol, with what was read of it.
func (c *Conn) rest() net.Conn {
	read, _ := c.in.Peek(c.in.Buffered())
	return &prefixed{Conn: c.nc, prefix: read}
}

// complain logs what a peer did wrong.
func (c *Conn) complain(err error) {
	timeout := errors.Is(err, os.ErrDeadlineExceeded) && c.server.ending.Err() == nil
	if timeout || errors.Is(err, ErrProtocol) || errors.Is(err, io.ErrUnexpectedEOF) {
		c.server.Log.Warn().Stringer("peer", c.nc.RemoteAddr()).Err(err).Msg("closed a connection that does not speak as a Mooncake client should")
	}
}

func (c *Conn) answerAll() error {
	for limited := false; c.server.ending.Err() == nil; {
		if _, err := c.in.Peek(1); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		// Most frames are there as a whole, and cost no deadline.
		if !c.whole() {
			if err := c.nc.SetReadDeadline(clock.Deadline(c.server.Limits.Frame)); err != nil {
				return err
			}
			limited = true
		}
		if err := c.answer(c.server.calls); err != nil {
			return err
		}
		if limited {
			limited = false
			if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
		}
		if c.in.Buffered() >= requestHeader && len(c.out) < maxOut {
			continue // a peer that sends several at once gets several at once
		}
		if err := c.send(); err != nil {
			return err
		}
	}
	return nil
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

// answer reads one request and appends its answer.
func (c *Conn) answer(ctx context.Context) error {
	h, err := c.in.Peek(requestHeader)
	if err != nil {
		return cut(err)
	}
	q, err := parseRequest(h)
	if err != nil {
		return err
	}
	if most := c.server.Limits.BodyBytes; q.body > most || q.attachment > most {
		return fmt.Errorf("%w: a request has a body of %d bytes and an attachment of %d; at most %d each are taken", ErrProtocol, q.body, q.attachment, most)
	}
	if _, err := c.in.Discard(requestHeader); err != nil {
		return err
	}
	body, err := readBody(c.in, q.body)
	if err != nil {
		return err
	}
	if err := skip(c.in, q.attachment); err != nil {
		return err
	}
	return c.call(ctx, q, body)
}

// call lets the handler answer a request and puts a header before that.
func (c *Conn) call(ctx context.Context, q request, body string) error {
	at := len(c.out)
	var room [responseHeader]byte
	answered := response{seq: q.seq}
	reply, err := c.handler.Call(ctx, q.function, body, append(c.out, room[:]...))
	if err != nil {
		var refused *Error
		if !errors.As(err, &refused) {
			return err
		}
		answered.code = refused.Code
		reply = structpack.Pack(new(structpack.Writer), append(c.out, room[:]...), errorMessage(), &refused.Message)
	}
	answered.body = uint32(len(reply) - at - responseHeader)
	putResponse(reply[at:], answered)
	c.out = reply
	return nil
}

// send hands the answers so far to the network.
func (c *Conn) send() error {
	// A deadline costs more than looking at the clock: one serves many answers.
	if now := c.server.clock(); c.sendBy-now < c.server.Limits.Frame/2 {
		c.sendBy = now + c.server.Limits.Frame
		if err := c.nc.SetWriteDeadline(clock.Deadline(c.server.Limits.Frame)); err != nil {
			return err
		}
	}
	_, err := c.nc.Write(c.out)
	if c.out = c.out[:0]; cap(c.out) > maxOut {
		c.out = nil
	}
	if err != nil {
		return fmt.Errorf("sending an answer: %w", err)
	}
	c.handler.Delivered(nil)
	return nil
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
