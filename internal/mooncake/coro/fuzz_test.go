package coro_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/bits"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-store/understudy/internal/mooncake/coro"
)

// Whatever comes, the server answers or closes, and goes on; what does not begin as its
// protocol goes elsewhere, whole. Connections are of
// the kind that a machine does not run out of.
func FuzzServer(f *testing.F) {
	whole := append(frame(1, echo, "abc", "d"), frame(2, refuse, "", "")...)
	f.Add(whole)
	f.Add(whole[:30])
	f.Add([]byte{coro.Magic})
	released, waiting := make(chan struct{}), make(chan struct{})
	close(released)
	go func() {
		for range waiting {
		}
	}()
	s := coro.NewServer(&coro.Server{
		Open: func(c *coro.Conn) coro.Handler {
			return &handler{conn: c, released: released, waiting: waiting, making: new(atomic.Int64), unit: 1}
		},
		Other: func(c net.Conn) {
			defer c.Close()
			if b, err := io.ReadAll(c); err == nil {
				_, _ = c.Write(b)
			}
		},
		Limits: coro.Limits{BodyBytes: 1 << 20, Frame: 20 * time.Second}, Loops: loops,
	})
	l, err := net.Listen("unix", filepath.Join(f.TempDir(), "s"))
	if err != nil {
		f.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	f.Cleanup(func() {
		if err := errors.Join(s.Stop(context.Background()), <-served); err != nil {
			f.Error(err)
		}
		close(waiting)
	})
	send := func(t *testing.T, b []byte) []byte {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Write(b); err == nil {
			_ = c.(*net.UnixConn).CloseWrite()
		}
		answer, err := io.ReadAll(c)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%x: got neither an answer nor an end within 20 s, want one of them", b)
		}
		return answer
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		if got := send(t, sent); len(sent) > 0 && sent[0] != coro.Magic && !bytes.Equal(got, sent) {
			t.Fatalf("another protocol's server got %x, want %x", got, sent)
		}
		if got := send(t, frame(7, echo, "fine", "")); len(got) != 20 || string(got[16:]) != "fine" {
			t.Fatalf("a good client got %x, want 20 entries and \"fine\"", got)
		}
	})
}

// Whatever comes, in whatever pieces, a loop answers the same as a goroutine.
func FuzzFragments(f *testing.F) {
	whole := append(append(frame(1, echo, "abc", "d"), frame(2, refuse, "", "")...), frame(3, pending, "e", "")...)
	f.Add(whole, uint64(0x1234567))
	f.Add(append(whole, whole[:30]...), uint64(1))
	f.Add(append(append(whole, frame(4, hangUp, "", "")...), whole...), uint64(77))
	f.Add(append(whole, frame(5, echo, strings.Repeat("x", 5000), "")...), uint64(1<<63-1))
	f.Add(append(whole, "GET / HTTP/1.1"...), uint64(9))
	released, waiting := make(chan struct{}), make(chan struct{})
	close(released)
	go func() {
		for range waiting {
		}
	}()
	dir := f.TempDir()
	var servers []*coro.Server
	served := make(chan error, 2)
	at := func(i int) string { return filepath.Join(dir, strconv.Itoa(i)) }
	for i, n := range []int{-1, 1} {
		s := coro.NewServer(&coro.Server{
			Open: func(c *coro.Conn) coro.Handler {
				return steady{&handler{conn: c, released: released, waiting: waiting, making: new(atomic.Int64), unit: 1}}
			},
			Limits: coro.Limits{BodyBytes: 1 << 20}, Loops: n,
		})
		l, err := net.Listen("unix", at(i))
		if err != nil {
			f.Fatal(err)
		}
		go func() { served <- s.Serve(l) }()
		servers = append(servers, s)
	}
	f.Cleanup(func() {
		for _, s := range servers {
			if err := errors.Join(s.Stop(context.Background()), <-served); err != nil {
				f.Error(err)
			}
		}
		close(waiting)
	})
	f.Fuzz(func(t *testing.T, sent []byte, cuts uint64) {
		var got [2][]byte
		for i := range got {
			c, err := net.Dial("unix", at(i))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			go inPieces(c.(*net.UnixConn), sent, cuts)
			if got[i], err = io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("%x: got neither an answer nor an end within 20 s, want one of them", sent)
			}
		}
		if !bytes.Equal(got[0], got[1]) {
			t.Fatalf("%x, cut by %x: got %x from a loop, want what a goroutine answers: %x", sent, cuts, got[1], got[0])
		}
	})
}

// A steady handler makes no answer that depends on when the peer closes, as unsized does.
type steady struct{ *handler }

func (h steady) Call(ctx context.Context, function uint32, body string, reply []byte) ([]byte, error) {
	if function == unsized {
		function = much
	}
	return h.handler.Call(ctx, function, body, reply)
}

// inPieces sends bytes in pieces of sizes that cuts says, and then the end.
func inPieces(c *net.UnixConn, b []byte, cuts uint64) {
	for len(b) > 0 {
		n := min(len(b), int(cuts&63)+1)
		cuts = bits.RotateLeft64(cuts, 7) + 1
		if _, err := c.Write(b[:n]); err != nil {
			return
		}
		b = b[n:]
		runtime.Gosched()
	}
	_ = c.CloseWrite()
}
