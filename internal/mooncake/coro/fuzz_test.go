package coro_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
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
		Open: func(c *coro.Conn) coro.Handler { return &handler{conn: c, released: released, waiting: waiting} },
		Other: func(c net.Conn) {
			defer c.Close()
			if b, err := io.ReadAll(c); err == nil {
				_, _ = c.Write(b)
			}
		},
		Limits: coro.Limits{BodyBytes: 1 << 20, Frame: time.Second},
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
			t.Fatalf("%x: neither an answer nor an end", b)
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
