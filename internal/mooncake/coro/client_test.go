package coro_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/mooncake/coro"
)

// An answer that is announced as larger than any is refused before room is made
// for it.
func TestTooLargeAnAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		answer := []byte{coro.Magic, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0x40, 0, 0, 0, 0} // a body of MaxAnswer + 1 bytes
		_, _ = io.CopyN(io.Discard, nc, 4)
		_, _ = nc.Write(answer)
		_, _ = io.Copy(io.Discard, nc) // until the client closes
	}()
	c, err := coro.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, sent, err := c.Call(t.Context(), echo, body("x")); !errors.Is(err, coro.ErrProtocol) || !sent || !strings.Contains(err.Error(), "at most") {
		t.Errorf("sent %t, %v; want ErrProtocol with the bound, for a call that was sent", sent, err)
	}
}

// Large answers are read, up to MaxAnswer.
func TestLargeAnswer(t *testing.T) {
	c := newRig(t, coro.Limits{}, nil).dial(t)
	got, _, err := c.Call(t.Context(), much, body(strings.Repeat("x", 72)))
	if err != nil || len(got) != 72<<20 {
		t.Errorf("%d bytes, %v; want %d", len(got), err, 72<<20)
	}
}

// Room for a large answer is asked for before it is read, and one that has none ends the
// call. Small ones need none.
func TestAnswersAreAppended(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	c := r.dial(t)
	asked := 0
	room := func(n int) error {
		if asked += n; n > 1<<20 {
			return io.ErrNoProgress
		}
		return nil
	}
	before := []byte("before")
	if all, sent, err := c.Append(t.Context(), echo, body("small"), before, room); string(all) != "beforesmall" || !sent || err != nil || asked != 0 {
		t.Errorf("a small answer: got %q, sent %t, %v, and room for %d was asked for; want it appended, and none", all, sent, err, asked)
	}
	if all, _, err := c.Append(t.Context(), much, body("x"), before, room); len(all) != len(before)+1<<20 || err != nil || asked != 1<<20 {
		t.Errorf("a large answer: got %d bytes, %v, and room for %d was asked for; want %d, and 1 MiB", len(all), err, asked, len(before)+1<<20)
	}
	if all, sent, err := c.Append(t.Context(), much, body("xx"), before, room); all != nil || !sent || !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("an answer without room: got %d bytes, sent %t, %v; want the error", len(all), sent, err)
	}
}

// A request that is too large is not sent, and costs nothing else.
func TestTooLargeARequest(t *testing.T) {
	r := newRig(t, coro.Limits{BodyBytes: 1000}, nil)
	c := r.dial(t)
	c.MaxBody = 1000
	for range 2 {
		var large *coro.TooLargeError
		_, sent, err := c.Call(t.Context(), echo, body(strings.Repeat("x", 1001)))
		if !errors.As(err, &large) || *large != (coro.TooLargeError{Bytes: 1001, Most: 1000}) || sent {
			t.Errorf("sent %v, %v; want TooLargeError of 1001 bytes, before anything was sent", sent, err)
		}
		if got, _, err := c.Call(t.Context(), echo, body(strings.Repeat("x", 1000))); err != nil || len(got) != 1000 {
			t.Errorf("after that: got %d bytes, %v; want 1000 and no error", len(got), err)
		}
	}
}

// Idle connections keep no room of large messages, on neither side.
func TestIdleConnectionsAreSmall(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const conns, size = 8, 4 << 20
	large := strings.Repeat("x", size)
	before := heap()
	for range conns {
		c := r.dial(t)
		c.MaxBody = size
		if got, _, err := c.Call(t.Context(), echo, body(large)); err != nil || len(got) != size {
			t.Fatalf("%d bytes, %v; want %d", len(got), err, size)
		}
		if _, _, err := c.Call(t.Context(), echo, body(large+"x")); err == nil {
			t.Fatalf("a request of %d bytes, with room for %d: got no error, want one", size+1, size)
		}
	}
	until(t, "little is left", func() bool { return heap() < before+conns*size/4 })
}

// A context that ends as its call is answered does no harm to the next call.
func TestContextThatEndsWithItsCall(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	c := r.dial(t)
	large := body(strings.Repeat("x", coro.SmallAnswer+1)) // room for its answer is asked for, just before the end
	for answered, tries := 0, 0; answered < 50 && tries < 1000; tries++ {
		ctx, cancel := context.WithCancel(t.Context())
		_, _, err := c.Append(ctx, echo, large, nil, func(int) error {
			go cancel()
			return nil
		})
		if err != nil {
			_ = c.Close()
			c = r.dial(t)
			continue
		}
		answered++
		if _, _, err := c.Call(t.Context(), echo, body("x")); err != nil {
			t.Fatalf("the call after %d that were answered: got %v, want no error", answered, err)
		}
	}
}
