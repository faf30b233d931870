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

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	peers "github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/journal/nowait"
)

// readBuffer is small: there may be hundreds of connections from each client
// process.
const readBuffer = 4 << 10

// waitWorth is how long a request must have waited for those before it to be
// given less time: shorter waits are not worth a deadline.
const waitWorth = 10 * time.Millisecond

// A Conn is one connection to a server.
type Conn struct {
	server  *Server
	nc      net.Conn
	socket  *socket // that nc is, of a loop; nil without one
	in      *bufio.Reader
	out     *outbox
	arrived time.Duration // by the server's clock: when a wait for the network last ended
	handler Handler
	share   share
	slot    *peers.Slot // for a peer that sends without a pause
	inPlace bool        // a loop has it: see turn
	taken   taken       // that a turn has left to resume
	err     error       // with which the connection ends, if a turn has ended it
}

func newConn(s *Server, nc net.Conn) *Conn {
	return &Conn{
		server: s, nc: nc, out: newOutbox(nc, s.clock, s.Limits.Frame), share: s.Limits.Budget.share(nc),
		slot: s.slots.Of(peers.Host(nc.RemoteAddr())),
	}
}

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// PeerGone reports whether the peer has closed the connection, as far as this
// machine knows: no answer will arrive.
func (c *Conn) PeerGone() bool {
	gone := false
	look := func(fd uintptr) { gone = hungUp(int(fd)) } // Read would heed the deadline that ends the wait for requests
	if c.socket != nil {
		return !c.socket.control(look) || gone
	}
	sc, ok := c.nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(look)
	return gone || err != nil
}

// SmallAnswer is how many bytes of an answer, about, need no room.
const SmallAnswer = maxOut

// Room takes the memory that this call needs for an answer of about n bytes. It may be called
// again as the answer grows. Errors: ErrLargeAnswer; nowait.Err on a loop, where only small
// answers are made; ErrBusy while others have the memory.
func (c *Conn) Room(n int) error {
	if n <= SmallAnswer {
		return nil
	}
	if c.inPlace {
		return nowait.Err
	}
	return c.share.grow(int64(len(c.out.ready) + responseHeader + n))
}

// Reserve waits until this call may make an answer of unknown size. A call may reserve once.
// Errors: ErrBusy; net.ErrClosed if the peer has gone meanwhile, and nobody would read it.
func (c *Conn) Reserve(ctx context.Context) error {
	if err := c.share.reserve(ctx, c.server.Limits.Frame); err != nil {
		return err
	}
	if c.PeerGone() {
		return net.ErrClosed
	}
	return nil
}

// interrupt ends the wait for a next request.
func (c *Conn) interrupt() {
	if c.socket != nil {
		c.socket.interrupt()
		return
	}
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
}

// run begins a connection and answers requests, or hands it to Server.Other.
func (c *Conn) run() {
	c.in = bufio.NewReaderSize(source{c}, readBuffer)
	if err := c.begin(); err != nil {
		c.complain(err)
		c.leave()
		return
	}
	if first, _ := c.in.Peek(1); first[0] != Magic && c.server.Other != nil {
		c.server.Other(c.rest())
		c.server.forget(c)
		return
	}
	if c.handler = c.server.Open(c); c.handler == nil {
		c.leave()
		return
	}
	c.server.toLoop(c)
	c.serve()
}

// serve answers requests until there are none for now, so that the loop waits for more, or
// until the connection ends.
func (c *Conn) serve() {
	if errors.Is(c.answerAll(), errRests) {
		return
	}
	if len(c.out.ready) > 0 {
		_ = c.send()
	}
	c.handler.Delivered(0) // a call that failed has no answer
	_ = c.share.become(0)
	c.slot.End()
	c.out.stop()
	c.handler.Close()
	c.leave()
}

func (c *Conn) leave() {
	if c.socket != nil {
		c.socket.release()
	} else {
		c.nc.Close()
	}
	c.server.forget(c)
}

// begin waits for the first byte.
func (c *Conn) begin() error {
	c.slot.Waited() // for a processor, so that the first byte may be there already
	defer c.slot.End()
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
	if errors.Is(err, ErrBusy) {
		c.server.Log.Warn("closed a connection; its client tries again", "peer", c.nc.RemoteAddr().String(), "error", err)
	}
	if timeout || errors.Is(err, ErrProtocol) || errors.Is(err, io.ErrUnexpectedEOF) {
		c.server.Log.Warn("closed a connection that does not speak as a Mooncake client should", "peer", c.nc.RemoteAddr().String(), "error", err)
	}
}

// errRests means that a connection waits for a next request without a goroutine.
var errRests = errors.New("the loop waits for the next request")

func (c *Conn) answerAll() error {
	if err := c.err; err != nil {
		return err
	}
	if t := c.taken; t.is {
		c.taken = taken{}
		if err := c.call(t.request, t.body); err != nil {
			return err
		}
	}
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
		if !whole && c.rests() {
			return errRests
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

// rests gives the connection to the loop, if there is one and nothing to do.
func (c *Conn) rests() bool {
	if c.socket == nil {
		return false
	}
	c.slot.End()
	for c.in.Buffered() == 0 {
		if !c.socket.drained && !errors.Is(c.fill(), errWouldBlock) {
			return false
		}
		if c.socket.rest() {
			return true
		}
		if c.socket.drained { // it must end
			return false
		}
	}
	return false
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

// peek returns the header of the next frame, which must be in the buffer as a whole.
func (c *Conn) peek() request {
	h, _ := c.in.Peek(requestHeader)
	q, _ := parseRequest(h)
	return q
}

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
		c.slot.End()
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
	if c.inPlace {
		ctx = c.server.quick
	} else if waited := c.server.clock() - c.arrived; waited > waitWorth {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.server.Limits.Call-waited)
		defer cancel()
	}
	if c.slot.Has() && !c.handler.Quick(q.function) { // it may wait for a commit
		c.slot.End()
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
	c.slot.End()
	sent, err := c.out.send()
	c.handler.Delivered(sent)
	if err != nil {
		c.complain(err)
		return err
	}
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
