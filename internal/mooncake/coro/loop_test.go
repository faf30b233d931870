package coro_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-store/understudy/internal/mooncake/coro"
)

// answers checks that a connection gets its answers.
func answers(t *testing.T, c *coro.Client, what string) {
	t.Helper()
	for i := range 100 {
		want := fmt.Sprint(what, i)
		if got, _, err := c.Call(t.Context(), echo, body(want)); err != nil || got != want {
			t.Fatalf("%s: got %q, %v; want %q and no error", what, got, err, want)
		}
	}
}

// A call that turns out to have to wait holds up its own connection only, and is not
// made twice as far as anybody can see.
func TestCallsThatWaitHoldUpNoOthers(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	live, c := r.dial(t), r.raw(t)
	answers(t, live, "before")
	for range 3 {
		write(t, c, frame(0, echo, "a", ""), frame(1, pending, "b", ""), frame(2, echo, "c", ""))
		<-r.waiting
		answers(t, live, "beside one that waits")
		if got := next(t, c); got != "a" {
			t.Fatalf("got %q, want \"a\"", got)
		}
		r.released <- struct{}{}
		if b, c := next(t, c), next(t, c); b != "b" || c != "c" {
			t.Fatalf("got %q, %q; want \"b\" and \"c\"", b, c)
		}
	}
}

// A peer that does not read, one in the middle of a frame, and one that sends without
// end hold up no others.
func TestSlowPeersHoldUpNoOthers(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	live, half, silent := r.dial(t), r.raw(t), r.raw(t)
	answers(t, live, "before")
	write(t, half, frame(0, echo, "half", "")[:21])
	opened := func(n int) func() bool {
		return func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.handlers) == n }
	}
	until(t, "it is open", opened(2))
	one := frame(0, echo, strings.Repeat("x", 1000), "")
	stuffed := make(chan struct{})
	go func() {
		defer close(stuffed)
		_ = silent.SetWriteDeadline(time.Now().Add(20 * time.Second))
		for {
			if _, err := silent.Write(one); err != nil { // it is closed
				return
			}
		}
	}()
	sent := func() int64 { return r.handler(2).calls.Load() }
	until(t, "its requests are answered", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.handlers) == 3 && r.handlers[2].calls.Load() > 100
	})
	for last := int64(-1); last != sent(); { // until nobody takes its answers any more
		last = sent()
		for range 20 {
			answers(t, live, "beside slow peers")
		}
	}
	write(t, half, frame(0, echo, "half", "")[21:])
	if got := next(t, half); got != "half" {
		t.Errorf("got %q, want \"half\"", got)
	}
	silent.Close()
	<-stuffed
	until(t, "it ends", r.handler(2).closed.Load)
	answers(t, live, "after")
}

// A frame may come byte by byte.
func TestByteByByte(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	live, c := r.dial(t), r.raw(t)
	for i := range 5 {
		want := fmt.Sprint("body ", i)
		for _, b := range frame(uint32(i), echo, want, "attached") {
			write(t, c, []byte{b})
		}
		if got := next(t, c); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		answers(t, live, "meanwhile")
	}
	until(t, "all are delivered", func() bool { h := r.handler(0); return h.delivered.Load() == h.calls.Load() })
}

// Stop lets what has begun end in order, whatever connections do: each gets answers to
// its first requests, whole, and then its end.
func TestStopAmongCalls(t *testing.T) {
	for range 5 {
		r := newRig(t, coro.Limits{}, nil)
		var all sync.WaitGroup
		for n := range 8 {
			c := r.raw(t)
			function := uint32(echo)
			if n == 0 {
				function = pending
			}
			all.Go(func() {
				for {
					if _, err := c.Write(frame(0, echo, "a", "")); err != nil {
						return
					}
					if _, err := c.Write(frame(1, function, "b", "")); err != nil {
						return
					}
					var got [2 * (16 + 1)]byte
					if n, err := io.ReadFull(c, got[:]); err != nil {
						if n != 0 && n != 17 {
							t.Errorf("got %d bytes and %v, want whole answers", n, err)
						}
						return
					}
				}
			})
		}
		<-r.waiting
		open := func() (opened, left int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, h := range r.handlers {
				if !h.closed.Load() {
					left++
				}
			}
			return len(r.handlers), left
		}
		until(t, "all are open", func() bool { opened, _ := open(); return opened == 8 })
		stopped := make(chan error, 1)
		go func() { stopped <- r.Stop(t.Context()) }()
		until(t, "the others end", func() bool { _, left := open(); return left == 1 })
		close(r.released)
		if err := <-stopped; err != nil {
			t.Fatalf("Stop: got %v, want no error", err)
		}
		all.Wait()
	}
}

// Connections that wait for a next request have no goroutines, and end all the same.
func TestIdleConnectionsOfALoop(t *testing.T) {
	if loops < 0 || runtime.GOOS != "linux" {
		t.Skip("only Linux has the event loop (epoll); this run tests a goroutine for each connection")
	}
	r := newRig(t, coro.Limits{}, nil)
	before := runtime.NumGoroutine()
	const connections = 100
	var idle []net.Conn
	for i := range connections {
		c := r.raw(t)
		write(t, c, frame(0, echo, "a", ""))
		if got := next(t, c); got != "a" {
			t.Fatalf("got %q, want \"a\"", got)
		}
		if i%2 == 0 { // once more, from the loop
			write(t, c, frame(0, pending, "b", ""))
			<-r.waiting
			r.released <- struct{}{}
			if got := next(t, c); got != "b" {
				t.Fatalf("got %q, want \"b\"", got)
			}
		}
		idle = append(idle, c)
	}
	until(t, "their goroutines end", func() bool { return runtime.NumGoroutine() < before+10 })
	for _, c := range idle[:connections/2] {
		c.Close()
	}
	until(t, "half of them end", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		closed := 0
		for _, h := range r.handlers {
			if h.closed.Load() {
				closed++
			}
		}
		return closed == connections/2
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		t.Errorf("Stop: got %v, want no error", err)
	}
}

// A peer that closes while its connection rests, with or without a request before, and
// one that closes its half and still reads.
func TestEndsOfRestingConnections(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	for i := range 20 {
		c := r.raw(t).(*net.TCPConn)
		write(t, c, frame(0, echo, "a", ""))
		if got := next(t, c); got != "a" {
			t.Fatalf("got %q, want \"a\"", got)
		}
		if i%2 == 0 {
			write(t, c, frame(1, echo, "b", ""))
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(c)
		if want := 17 * (1 - i%2); err != nil || len(rest) != want {
			t.Fatalf("got %d bytes and %v behind the end, want %d", len(rest), err, want)
		}
		until(t, "the connection ends", r.handler(i).closed.Load)
	}
}
