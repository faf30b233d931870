package coro

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/mooncake/structpack"
)

// MaxAnswer is how many bytes of an answer's body, and of its attachment, are
// read. Room for them is made as they come. The largest answers there are, lists
// of 100,000 objects with long keys, have some hundred MiB.
const MaxAnswer = 1 << 30

// eagerBody is up to which size room for an answer is made before it has come.
const eagerBody = 64 << 10

// A Client is one connection to a server, for one call at a time. It is not safe
// for concurrent use.
type Client struct {
	// MaxBody is how many bytes a request's body may have: at most, and by
	// default, 2^32-1. It may be changed between calls.
	MaxBody uint32

	nc  net.Conn
	in  *bufio.Reader
	out []byte
	seq uint32

	mu       sync.Mutex // guards what follows, against a context that ends
	calls    uint64     // so far, of those that a context may end
	underWay uint64     // the number of such a call, 0 for none
	wasCut   bool       // the connection has a deadline, which is over
}

// A TooLargeError means that a request was not sent, because of its size. The
// connection is as good as before.
type TooLargeError struct {
	Bytes uint64 // of its body
	Most  uint32 // that it may have
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("a request has a body of %d bytes, and at most %d are sent", e.Bytes, e.Most)
}

// Dial connects to a server. The context ends the attempt.
func Dial(ctx context.Context, address string) (*Client, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	return &Client{nc: nc, in: bufio.NewReaderSize(nc, readBuffer), MaxBody: math.MaxUint32}, nil
}

// Close ends the connection. It may be called during a call, which then
// fails.
func (c *Client) Close() error { return c.nc.Close() }

// Call sends a request whose body pack appends, and returns the body of its
// answer. sent reports whether the server may have got any of it. After an error
// the connection is of no use, with two exceptions: a *TooLargeError, and an
// *Error, after which the original client closes it all the same.
func (c *Client) Call(ctx context.Context, function uint32, pack func(b []byte) []byte) (answer string, sent bool, err error) {
	sent, err = c.call(ctx, function, pack, func(n uint32) (err error) {
		answer, err = readBody(c.in, n, eagerBody)
		return err
	})
	if err != nil {
		return "", sent, err
	}
	return answer, sent, nil
}

// Append is Call for an answer whose body is appended to reply. Before more than SmallAnswer
// bytes of it are read, room is asked for them; its error ends the call.
func (c *Client) Append(ctx context.Context, function uint32, pack func(b []byte) []byte, reply []byte, room func(bytes int) error) (all []byte, sent bool, err error) {
	sent, err = c.call(ctx, function, pack, func(n uint32) (err error) {
		if n > SmallAnswer {
			err = room(int(n))
		}
		if err == nil {
			reply, err = appendBody(c.in, reply, n)
		}
		return err
	})
	if err != nil {
		return nil, sent, err
	}
	return reply, sent, nil
}

// call makes a call. read reads the body of its answer.
func (c *Client) call(ctx context.Context, function uint32, pack func(b []byte) []byte, read func(n uint32) error) (sent bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, context.Cause(ctx)
	}
	if ctx.Done() == nil {
		return c.exchange(function, pack, read)
	}
	number := c.began()
	stop := context.AfterFunc(ctx, func() { c.cut(number) })
	sent, err = c.exchange(function, pack, read)
	stop()
	c.over(err)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return sent, err
}

// began begins a call that a context may end, and returns its number.
func (c *Client) began() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	c.underWay = c.calls
	return c.calls
}

// cut ends a call, unless it is over.
func (c *Client) cut(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.underWay == number {
		c.wasCut = true
		_ = c.nc.SetDeadline(time.Unix(1, 0))
	}
}

// over ends the time in which a call can be cut. If a cut came too late to end the
// call, the connection is as good as before.
func (c *Client) over(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.underWay = 0; c.wasCut && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.wasCut = false
		_ = c.nc.SetDeadline(time.Time{})
	}
}

func (c *Client) exchange(function uint32, pack func(b []byte) []byte, read func(n uint32) error) (sent bool, err error) {
	var room [requestHeader]byte
	c.out = pack(append(c.out[:0], room[:]...))
	defer c.shrink()
	size := uint64(len(c.out) - requestHeader)
	if size > uint64(c.MaxBody) {
		return false, &TooLargeError{size, c.MaxBody}
	}
	q := request{seq: c.seq, function: function, body: uint32(size)}
	c.seq++
	appendRequest(c.out[:0], q)
	if n, err := c.nc.Write(c.out); err != nil {
		return n > 0, fmt.Errorf("sending a request: %w", err)
	}
	h, err := c.in.Peek(responseHeader)
	if err != nil {
		return true, fmt.Errorf("waiting for an answer: %w", cut(err))
	}
	p, err := parseResponse(h)
	if err != nil {
		return true, err
	}
	if p.seq != q.seq || p.body > MaxAnswer || p.attachment > MaxAnswer {
		return true, fmt.Errorf("%w: request %d got answer %d of %d bytes, at most %d are read", ErrProtocol, q.seq, p.seq, p.body, MaxAnswer)
	}
	if _, err := c.in.Discard(responseHeader); err != nil {
		return true, err
	}
	text := ""
	if p.code == 0 {
		err = read(p.body)
	} else {
		text, err = readBody(c.in, p.body, eagerBody)
	}
	if err == nil {
		err = skip(c.in, p.attachment)
	}
	if err != nil {
		return true, fmt.Errorf("reading an answer: %w", err)
	}
	if p.code == 0 {
		return true, nil
	}
	refused := &Error{Code: p.code}
	if err := structpack.Unpack(new(structpack.Reader), text, errorMessage, &refused.Message); err != nil {
		refused.Message = "its text cannot be read: " + err.Error()
	}
	return true, refused
}

// shrink keeps no room of large requests: there may be thousands of connections,
// and most are idle.
func (c *Client) shrink() {
	if cap(c.out) > maxOut {
		c.out = nil
	}
}
