package rpc

import (
	"encoding/binary"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/share"
)

// gRPC keeps what has arrived of a request until all of it has: of 1,024 calls of a
// connection, each as large as a message may be. So the frames of HTTP/2 are counted as
// they come, and a connection ends whose peer sends more than its share and finishes none.

// freeBytes is what a connection may have of unfinished requests without being counted, and
// entryBytes what a call takes besides its bytes: gRPC's part, and the stack of a goroutine
// that waits for the request. Of 8,000 calls over 8 connections, with headers alone, each
// took 3.0 kB and 8.2 kB of these (gRPC 1.85, Go 1.26).
const (
	freeBytes  = 64 << 10
	entryBytes = 11 << 10
)

// errUnfinished ends a connection.
var errUnfinished = errs.New(errs.Unavailable, "", "too many bytes of requests that are not finished; the connection was closed, try again")

// counting are credentials whose connections count what arrives.
type counting struct {
	credentials.TransportCredentials
	budget  *share.Budget
	refused func(peer net.Addr)
}

// ServerHandshake begins a connection.
func (c counting) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return &countedConn{
		Conn: conn, budget: c.budget, refused: c.refused, peer: share.Host(conn.RemoteAddr()),
		in: frames{skip: len(http2.ClientPreface)}, unfinished: make(map[uint32]int64),
	}, info, nil
}

// Clone returns a copy.
func (c counting) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}

// A countedConn counts the bytes of calls whose requests are not finished.
type countedConn struct {
	net.Conn
	budget  *share.Budget
	refused func(peer net.Addr)
	peer    string
	in      frames // read by one goroutine, as gRPC does
	out     frames // written by one

	mu         sync.Mutex
	unfinished map[uint32]int64 // bytes, by stream
	bytes      int64            // of them all
	taken      int64            // of the budget
	closed     bool
}

// Read reads.
func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.in.next(b[:n], c.arrived)
	if !c.settle() {
		c.refused(c.RemoteAddr())
		return 0, errUnfinished
	}
	return n, err
}

// Write writes.
func (c *countedConn) Write(b []byte) (int, error) {
	c.out.next(b, func(f http2.FrameHeader) { // an answer ends the call, whatever has arrived of it
		if f.Type == http2.FrameRSTStream || f.Type == http2.FrameHeaders && f.Flags.Has(http2.FlagHeadersEndStream) {
			c.finish(f.StreamID)
			c.settle()
		}
	})
	return c.Conn.Write(b)
}

// Close closes the connection.
func (c *countedConn) Close() error {
	c.mu.Lock()
	c.closed, c.bytes = true, 0
	c.mu.Unlock()
	c.settle()
	return c.Conn.Close()
}

// arrived counts a frame.
func (c *countedConn) arrived(f http2.FrameHeader) {
	const end = http2.FlagDataEndStream // and FlagHeadersEndStream
	switch {
	case f.Type == http2.FrameRSTStream, (f.Type == http2.FrameData || f.Type == http2.FrameHeaders) && f.Flags.Has(end):
		c.finish(f.StreamID)
		return
	case f.Type != http2.FrameData && f.Type != http2.FrameHeaders && f.Type != http2.FrameContinuation:
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	counted, begun := c.unfinished[f.StreamID]
	if f.Type != http2.FrameHeaders && !begun { // the call is finished, or has an answer: gRPC drops what comes
		return
	}
	more := int64(f.Length)
	if !begun {
		more += entryBytes
	}
	c.unfinished[f.StreamID] = counted + more
	c.bytes += more
}

// finish ends what is counted for a stream.
func (c *countedConn) finish(stream uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes -= c.unfinished[stream]
	delete(c.unfinished, stream)
}

// settle takes of the budget what is counted, or gives it back. It reports whether there
// was room.
func (c *countedConn) settle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.bytes = 0
	}
	more := max(0, c.bytes-freeBytes) - c.taken
	if more > 0 {
		if taken, _, _ := c.budget.Take(c.peer, more); !taken {
			return false
		}
	} else if more < 0 {
		c.budget.GiveBack(c.peer, -more)
	}
	c.taken += more
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
