package rpc

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/understudy-store/understudy/internal/security/share"
)

// A replayed connection sends bytes in pieces of some sizes, again and again.
type replayed struct {
	net.Conn
	left  []byte
	sizes []byte
	at    int
}

// Read returns the next piece.
func (r *replayed) Read(b []byte) (int, error) {
	if len(r.left) == 0 {
		return 0, io.EOF
	}
	n := len(b)
	if len(r.sizes) > 0 {
		n = 1 + int(r.sizes[r.at%len(r.sizes)])
		r.at++
	}
	n = copy(b[:min(n, len(b))], r.left)
	r.left = r.left[n:]
	return n, nil
}

// Close closes nothing.
func (*replayed) Close() error { return nil }

// Write takes everything.
func (*replayed) Write(b []byte) (int, error) { return len(b), nil }

// RemoteAddr returns an address.
func (*replayed) RemoteAddr() net.Addr { return &net.UnixAddr{Name: "x"} }

// FuzzFrames sends and receives any bytes: what is counted does not depend on how they come
// in, is never below what there is, and nothing when the connection is closed.
func FuzzFrames(f *testing.F) {
	var b bytes.Buffer
	framer := http2.NewFramer(&b, nil)
	b.WriteString(http2.ClientPreface)
	_ = framer.WriteSettings()
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndHeaders: true})
	_ = framer.WriteData(1, false, make([]byte, 20_000))
	_ = framer.WriteData(3, false, make([]byte, 300))
	_ = framer.WriteData(1, true, nil)
	_ = framer.WriteRSTStream(3, http2.ErrCodeCancel)
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: []byte{0x82}})
	_ = framer.WriteContinuation(5, true, make([]byte, 5_000))
	_ = framer.WriteContinuation(7, true, make([]byte, 5_000))
	f.Add(b.Bytes(), []byte{0}, []byte{})
	f.Add(b.Bytes(), []byte{8, 0, 200}, b.Bytes()[len(http2.ClientPreface):])
	still := func() time.Duration { return 0 }
	f.Fuzz(func(t *testing.T, in, sizes, out []byte) {
		count := func(sizes []byte) string {
			budget := share.NewBudget(share.NewRule("bytes", "", 1<<20, 0.5, 1<<10))
			c := newCountedConn(&replayed{left: in, sizes: sizes}, counting{
				calls: newHolders(budget), requests: newHolders(budget), refused: func(net.Addr) {}, open: new(openConns),
				pacer: &pacer{clock: still, slots: share.NewSlots(still, 2), frames: newPaces(still, 1, 1<<60, 0), conns: newPaces(still, 1, 1<<60, 0)},
			})
			buf, err := make([]byte, 1<<10), error(nil)
			for err == nil {
				_, err = c.Read(buf)
			}
			_, _ = c.Write(out)
			c.settle()
			var sum call
			for _, of := range c.open {
				sum = sum.plus(of)
			}
			if kept := sum.kept + sum.waiting; kept != c.calls.bytes || sum.request != c.requests.bytes || min(kept, sum.request, c.calls.taken, c.requests.taken) < 0 {
				t.Fatalf("counted: got calls %+v and requests %+v, want the sum of all open calls, %+v, and nothing below 0", c.calls, c.requests, sum)
			}
			text := ""
			if err == io.EOF {
				text = fmt.Sprint(sum, c.calls.taken, c.requests.taken)
			}
			_ = c.Close()
			if !budget.Empty() {
				t.Fatal("a closed connection: got bytes that are counted, want none")
			}
			return text
		}
		if whole, pieces := count(nil), count(sizes); whole != pieces && whole != "" && pieces != "" {
			t.Fatalf("read in pieces: got %s, want what one piece gives: %s", pieces, whole)
		}
	})
}
