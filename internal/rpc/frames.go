package rpc

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/security/share"
)

// gRPC keeps the part of a request that has arrived until the whole request is there, and a
// call keeps its request until the call is over, for example while it waits for a commit. A
// connection may have 1,024 calls, each with a request as large as a message may be. gRPC also
// keeps the call itself, with its headers and a small answer, until the peer has taken the
// answer. So the frames of HTTP/2 are counted as they come and go. When a peer has more than
// its share of calls or of requests, its connection that holds the most is closed.

// freeBytes is what a connection may have of calls, and of requests, without being counted.
// A call takes openBytes besides its headers until its answer is sent: 2.2 kB in gRPC, and an
// answer of less than largeAnswer. Until its request has arrived whole it takes waitingBytes
// more, for the stack of a goroutine that waits. Measured with 8,000 calls over 8 connections
// (gRPC 1.85, Go 1.26): without their answers they took 2,168 bytes each, with headers alone
// 2,955, and 8,216 of stacks.
//
// A request of largeRequest and more counts until its call is over. A smaller one does not:
// calls under way are bounded as well.
const (
	freeBytes    = 64 << 10
	largeRequest = 4 << 10
	openBytes    = 2<<10 + largeAnswer
	waitingBytes = 5 << 10
)

// Errors that end a connection.
var (
	errUnfinished = errs.New(errs.Unavailable, "", "too many bytes of calls that are not finished; the connection was closed, try again")
	errIdentity   = errs.New(errs.Unavailable, "", "the identity that the certificate shows has as many connections as one may have")
)

// counting are credentials whose connections count what arrives, and are counted for whose they
// are.
type counting struct {
	credentials.TransportCredentials
	calls, requests *holders
	refused         func(peer net.Addr)
	open            *openConns
	callers         *access.Callers // nil without roles
	admit           func(identity string, from net.Addr) (leave func(), admitted bool)
	pacer           *pacer
}

func (c counting) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := c.pacer.admit(raw.RemoteAddr()); err != nil {
		return nil, nil, err
	}
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	if secure, ok := info.(credentials.TLSInfo); ok && c.admit != nil {
		if identity := c.callers.CountedAs(&secure.State); identity != "" {
			leave, admitted := c.admit(identity, raw.RemoteAddr())
			if !admitted {
				return nil, nil, errIdentity // gRPC closes the connection
			}
			raw.(*acceptedConn).onClose(leave) // of Server.Serve
		}
	}
	counted := newCountedConn(conn, c)
	c.open.of.Store(conn.RemoteAddr().String(), counted)
	return counted, info, nil
}

func (c counting) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}

// A countedConn counts the bytes of calls that are not over.
type countedConn struct {
	net.Conn
	refused func(peer net.Addr)
	among   *openConns
	peer    string
	in      frames // read by one goroutine, as gRPC does
	out     frames // written by one
	toll    *toll
	slot    *share.Slot // for a peer that sends without a pause

	mu       sync.Mutex
	open     map[uint32]call // by stream
	calls    account         // of calls, without their requests' bytes
	requests account
	closed   bool
	writing  bool // a write is under way: it waits if the peer reads nothing
	resets   int  // calls that the peer has reset since that write began
	reset    call // what these calls count together
}

// A call is what a call that is not over counts, in bytes.
type call struct {
	kept    int64 // until the call is over
	waiting int64 // until its request has arrived whole
	request int64 // of the request, as far as it has arrived; a large one counts until the call is over
}

func (c call) plus(o call) call {
	return call{c.kept + o.kept, c.waiting + o.waiting, c.request + o.request}
}

// An account is what a connection has of a budget.
type account struct {
	budget *holders
	bytes  int64 // all that is counted
	taken  int64 // what was taken from the budget
	size   int   // sizeOf taken, as the holders know it
}

func newCountedConn(conn net.Conn, c counting) *countedConn {
	return &countedConn{
		Conn: conn, refused: c.refused, among: c.open, peer: share.Host(conn.RemoteAddr()), in: frames{skip: len(http2.ClientPreface)},
		open: make(map[uint32]call), calls: account{budget: c.calls}, requests: account{budget: c.requests},
		toll: newToll(c.pacer, conn.RemoteAddr()), slot: c.pacer.slots.Of(share.Host(conn.RemoteAddr())),
	}
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.slot.Read(c.Conn, c.toll.bound(b))
	c.in.next(b[:n], c.arrived)
	if err := c.toll.settle(n); err != nil {
		return 0, err
	}
	for {
		short, room := c.settle()
		if room {
			return n, c.takeSlot(err)
		}
		var larger *countedConn
		if short != nil {
			larger = short.budget.larger(c.peer, c.sizeIn(short))
		}
		if larger == nil {
			c.refused(c.RemoteAddr())
			return 0, errUnfinished
		}
		larger.cut()
	}
}

// takeSlot waits for the connection's slot, if it needs one to handle what was read. It returns how
// the read ended.
func (c *countedConn) takeSlot(err error) error {
	if err != nil {
		return err
	}
	c.slot.Wait(c.toll.ending)
	select {
	case <-c.toll.ended: // before there was anything to give back
		c.slot.End()
	default:
	}
	return nil
}

// openConns are the connections that are open, by the address of their peer.
type openConns struct{ of sync.Map }

// handled notes that a call which gets many messages has read so many bytes of them, and keeps
// none. They no longer count: otherwise nothing larger than a host's share could be sent.
func (o *openConns) handled(ctx context.Context, bytes int) {
	if p, ok := peer.FromContext(ctx); ok {
		if c, ok := o.of.Load(p.Addr.String()); ok {
			c.(*countedConn).handled(int64(bytes))
		}
	}
}

// handled subtracts bytes from the call of which most has arrived: only one call of a host
// gets many messages.
func (c *countedConn) handled(bytes int64) {
	c.mu.Lock()
	most, from := bytes, uint32(0)
	for stream, of := range c.open {
		if of.request >= most {
			most, from = of.request, stream
		}
	}
	if of, there := c.open[from]; there { // else the call was given up, and counts no more
		of.request -= bytes
		c.open[from] = of
		c.drop(call{request: bytes})
	}
	c.mu.Unlock()
	c.settle()
}

// sizeIn returns the size of what the connection has from a budget, and of what it still
// needs from it.
func (c *countedConn) sizeIn(a *account) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sizeOf(max(0, a.bytes-freeBytes))
}

// cut ends the connection from outside, whatever its reader and writer wait for.
func (c *countedConn) cut() {
	c.end()
	c.refused(c.RemoteAddr())
	_ = c.SetDeadline(time.Unix(1, 0)) // gRPC closes it: over TLS that may wait for the peer
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.out.next(b, c.sent)
	c.write(true)
	n, err := c.Conn.Write(b)
	c.write(false)
	return n, err
}

func (c *countedConn) write(begins bool) {
	c.mu.Lock()
	c.writing = begins
	c.drop(c.reset)
	c.resets, c.reset = 0, call{}
	c.mu.Unlock()
	c.settle()
}

func (c *countedConn) Close() error {
	c.end()
	return c.Conn.Close()
}

// end gives back all that is counted, and counts nothing from now on.
func (c *countedConn) end() {
	c.among.of.CompareAndDelete(c.RemoteAddr().String(), c)
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.toll.ended)
	}
	c.mu.Unlock()
	c.slot.End()
	c.settle()
}

func (c *countedConn) arrived(f http2.FrameHeader) {
	switch f.Type {
	case http2.FrameHeaders, http2.FrameContinuation, http2.FrameData:
	case http2.FrameRSTStream:
		c.toll.arrived(f, c.giveUp(f.StreamID), false)
		return
	default:
		c.toll.arrived(f, false, false)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of, begun := c.open[f.StreamID]
	c.toll.arrived(f, begun, !begun && f.Type == http2.FrameHeaders)
	if !begun && f.Type != http2.FrameHeaders { // the call is over, and gRPC drops what comes
		return
	}
	var more call
	if !begun {
		more = call{kept: openBytes, waiting: waitingBytes}
	}
	if f.Type == http2.FrameData {
		more.request = int64(f.Length)
	} else {
		more.kept += int64(f.Length)
	}
	c.add(more)
	of = of.plus(more)
	if f.Type != http2.FrameContinuation && f.Flags.Has(http2.FlagDataEndStream) { // as FlagHeadersEndStream
		arrived := call{waiting: of.waiting}
		if of.request < largeRequest {
			arrived.request = of.request
		}
		c.drop(arrived)
		of = call{kept: of.kept, request: of.request - arrived.request}
	}
	c.open[f.StreamID] = of
}

// sent ends a call with the end of its answer, even if its request has not arrived whole.
func (c *countedConn) sent(f http2.FrameHeader) {
	c.toll.sent(f)
	if f.Type == http2.FrameRSTStream || f.Type == http2.FrameHeaders && f.Flags.Has(http2.FlagHeadersEndStream) {
		c.finish(f.StreamID)
	}
}

func (c *countedConn) finish(stream uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(c.open[stream])
	delete(c.open, stream)
}

// giveUp ends a call that its peer has reset. If a write is under way, the call's answer may
// wait behind it, so the call counts until the write has ended. It reports whether there was one.
func (c *countedConn) giveUp(stream uint32) (begun bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of, begun := c.open[stream]
	delete(c.open, stream)
	switch {
	case begun && c.writing:
		c.resets++
		c.reset = c.reset.plus(of)
	case begun:
		c.drop(of)
	}
	return begun
}

// add counts more of a call. The lock is held.
func (c *countedConn) add(more call) {
	c.calls.bytes += more.kept + more.waiting
	c.requests.bytes += more.request
}

// drop counts less. The lock is held.
func (c *countedConn) drop(less call) {
	c.calls.bytes -= less.kept + less.waiting
	c.requests.bytes -= less.request
}

// settle takes from the budgets what is counted, or gives it back. short is the account for
// which there was no room, if any. room is also false if the peer has reset more calls during
// one write than may be under way.
func (c *countedConn) settle() (short *account, room bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.calls.bytes, c.requests.bytes = 0, 0
	}
	switch calls, requests := c.calls.settle(c), c.requests.settle(c); {
	case !calls:
		short = &c.calls
	case !requests:
		short = &c.requests
	}
	return short, short == nil && c.resets <= maxStreams
}

// settle takes from the budget what a connection has above freeBytes, or gives it back.
func (a *account) settle(of *countedConn) (room bool) {
	more := max(0, a.bytes-freeBytes) - a.taken
	if more > 0 {
		if taken, _, _ := a.budget.Take(of.peer, more); !taken {
			return false
		}
	} else if more < 0 {
		a.budget.GiveBack(of.peer, -more)
	}
	a.taken += more
	if size := sizeOf(a.taken); size != a.size {
		a.budget.move(of, a.size, size)
		a.size = size
	}
	return true
}

// frameHeader is how many bytes begin a frame.
const frameHeader = 9

// frames finds the frames in the bytes of one direction of a connection.
type frames struct {
	skip   int // bytes that come before the next frame
	header [frameHeader]byte
	have   int // bytes of the header
}

// next goes on with the next bytes.
func (f *frames) next(b []byte, found func(http2.FrameHeader)) {
	for len(b) > 0 {
		n := min(f.skip, len(b))
		f.skip -= n
		b = b[n:]
		n = copy(f.header[f.have:], b)
		if f.have += n; f.have < frameHeader {
			return
		}
		b, f.have = b[n:], 0
		h := http2.FrameHeader{
			Length: uint32(f.header[0])<<16 | uint32(f.header[1])<<8 | uint32(f.header[2]), Type: http2.FrameType(f.header[3]),
			Flags: http2.Flags(f.header[4]), StreamID: binary.BigEndian.Uint32(f.header[5:]) &^ (1 << 31),
		}
		f.skip = int(h.Length)
		found(h)
	}
}
