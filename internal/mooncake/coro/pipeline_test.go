package coro_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/internal/mooncake/coro"
)

// next reads an answer to a request of the tests' handler.
func next(t *testing.T, c net.Conn) string {
	t.Helper()
	h := make([]byte, 16)
	if _, err := io.ReadFull(c, h); err != nil {
		t.Fatalf("no answer: got %v, want no error", err)
	}
	answer := make([]byte, h[8]) // short ones only
	if _, err := io.ReadFull(c, answer); err != nil {
		t.Fatalf("half an answer: got %v, want no error", err)
	}
	return string(answer)
}

func write(t *testing.T, c net.Conn, frames ...[]byte) {
	t.Helper()
	var all []byte
	for _, f := range frames {
		all = append(all, f...)
	}
	if _, err := c.Write(all); err != nil {
		t.Fatal(err)
	}
}

// patiently makes a call over a new connection, and once more if that took longer than
// the server waits for a frame: a busy machine may stop this process meanwhile.
func patiently(t *testing.T, r *rig, what string, call func(*coro.Client) error) {
	t.Helper()
	for range 20 {
		begun := time.Now()
		err := call(r.dial(t))
		if err == nil {
			return
		}
		if took := time.Since(begun); took < r.Limits.Frame {
			t.Errorf("%s: got %v after %v, want no error", what, err, took)
			return
		}
	}
	t.Errorf("%s: got no answer twice within %v, want one", what, r.Limits.Frame)
}

// Answers that are ready go while the next of the requests that came together
// is being answered, as often as it takes.
func TestReadyAnswersAreNotHeldBack(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	c := r.raw(t)
	write(t, c, frame(0, echo, "ready", ""), frame(1, wait, "slow", ""), frame(2, echo, "too", ""), frame(3, wait, "slower", ""), frame(4, echo, "last", ""))
	for _, want := range [][]string{{"ready"}, {"slow", "too"}} {
		<-r.waiting
		for _, w := range want {
			if got := next(t, c); got != w {
				t.Fatalf("%q, want %q", got, w)
			}
		}
		r.released <- struct{}{}
	}
	for _, w := range []string{"slower", "last"} {
		if got := next(t, c); got != w {
			t.Fatalf("%q, want %q", got, w)
		}
	}
	until(t, "all are delivered", func() bool { return r.handler(0).delivered.Load() == 5 })
}

// Nor do they wait for the rest of a frame.
func TestReadyAnswersAreNotHeldBackByAFrame(t *testing.T) {
	for _, begun := range []int{1, 19, 20, 22} {
		r := newRig(t, coro.Limits{}, nil)
		c := r.raw(t)
		second := frame(1, echo, "0123456789", "")
		write(t, c, frame(0, echo, "ready", ""), second[:begun])
		if got := next(t, c); got != "ready" {
			t.Fatalf("got %q, want \"ready\"", got)
		}
		write(t, c, second[begun:])
		if got := next(t, c); got != "0123456789" {
			t.Fatalf("got %q, want \"0123456789\"", got)
		}
	}
}

// A connection on which answers were sent early ends in order.
func TestAnswersBeforeAHangUp(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	c := r.raw(t)
	write(t, c, frame(0, echo, "a", ""), frame(1, wait, "b", ""), frame(2, echo, "c", ""), frame(3, hangUp, "", ""))
	<-r.waiting
	if got := next(t, c); got != "a" {
		t.Fatalf("got %q, want \"a\"", got)
	}
	close(r.released)
	if b, c := next(t, c), next(t, c); b != "b" || c != "c" {
		t.Fatalf("got %q, %q; want \"b\" and \"c\"", b, c)
	}
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v behind the last answer; want nothing and no error", rest, err)
	}
}

// A peer that has gone is noticed by a call that takes long although the answer
// before was sent meanwhile, and by the connection after it.
func TestPeerGoesWhileOthersWait(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	c := r.raw(t)
	write(t, c, frame(0, wait, "first", ""), frame(1, wait, "second", ""))
	<-r.waiting
	r.released <- struct{}{}
	<-r.waiting
	if got := next(t, c); got != "first" {
		t.Fatalf("got %q, want \"first\"", got)
	}
	c.Close()
	until(t, "the peer has gone", r.handler(0).conn.PeerGone)
	close(r.released)
	until(t, "the connection ends", r.handler(0).closed.Load)
}

// An answer that was sent during a later call counts as delivered, however the connection
// ends; one that cannot be sent any more does not.
func TestAnswersThatWentAreDelivered(t *testing.T) {
	for _, resets := range []bool{false, true} {
		r := newRig(t, coro.Limits{}, nil)
		c := r.raw(t)
		write(t, c, frame(0, echo, "first", ""), frame(1, wait, "second", ""), frame(2, hangUp, "", ""))
		<-r.waiting
		if got := next(t, c); got != "first" {
			t.Fatalf("got %q, want \"first\"", got)
		}
		h, delivered, lost := r.handler(0), int64(2), int64(0)
		if tcp, ok := c.(*net.TCPConn); ok && resets {
			delivered, lost = 1, 1
			_ = tcp.SetLinger(0) // so that sending fails
			c.Close()
			until(t, "the peer has gone", h.conn.PeerGone)
		}
		close(r.released)
		until(t, "the connection ends", h.closed.Load)
		if got, not := h.delivered.Load(), h.lost.Load(); got != delivered || not != lost {
			t.Errorf("%d answers count as delivered and %d as lost, want %d and %d", got, not, delivered, lost)
		}
	}
}

// A request that had to wait for those before it has less time than others.
func TestTimeRunsFromTheArrival(t *testing.T) {
	r := newRig(t, coro.Limits{Call: 10 * time.Minute}, nil)
	c := r.raw(t)
	write(t, c, frame(0, limit, "", ""), frame(1, wait, "", ""), frame(2, limit, "", ""), frame(3, limit, "", ""))
	<-r.waiting
	const held = 50 * time.Millisecond
	<-time.After(held)
	close(r.released)
	if got := next(t, c) + next(t, c); got != "" {
		t.Errorf("the first has %s, want \"\"", got)
	}
	for range 2 {
		left, err := time.ParseDuration(next(t, c))
		if err != nil || left > 10*time.Minute-held || left < 8*time.Minute {
			t.Errorf("one that waited has %v, %vleft; want 8 minutes at least, and less than when it came", left, err)
		}
	}
	for name, c := range map[string]net.Conn{"one that came later": c, "the first of a connection": r.raw(t)} {
		write(t, c, frame(4, limit, "", ""))
		if got := next(t, c); got != "" {
			t.Errorf("%s has %s, want \"\"", name, got)
		}
	}
}

// What ends a handler's call is not the peer's doing, whatever it looks like.
func TestHandlersErrorsAreNotThePeers(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	closes(t, r, frame(0, relay, "", ""))
	until(t, "the connection ends", r.handler(0).closed.Load)
	if log := r.log.String(); log != "" {
		t.Errorf("it says %s, want nothing", log)
	}
	closes(t, r, []byte("GET /index.html HTTP/1.1\r\n\r\n"))
	until(t, "a real fault is said", func() bool { return strings.Contains(r.log.String(), "this is not coro_rpc") })
}

// A deadline that has passed says nothing about the peer: neither that of a
// frame, nor the one that ends the wait for further requests.
func TestPeerStaysWhateverTheDeadlines(t *testing.T) {
	t.Parallel()
	const frameLimit = 4 * time.Second
	r := newRig(t, coro.Limits{Frame: frameLimit}, nil)
	c := r.raw(t)
	write(t, c, frame(0, wait, strings.Repeat("x", 8<<10), "")) // more than is ever there as a whole
	<-r.waiting
	h := r.handler(0)
	<-time.After(frameLimit + frameLimit/4)
	if h.conn.PeerGone() {
		t.Error("a peer after its frame's deadline: got it called gone, want it there: its frame has come")
	}
	patiently(t, r, "another one", func(c *coro.Client) error {
		_, _, err := c.Call(t.Context(), echo, body(""))
		return err
	})
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop(t.Context()) }()
	until(t, "the server stops", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.handlers[len(r.handlers)-1].closed.Load()
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Serve(listener); err == nil { // waits until all have been interrupted
		t.Error("Serve after Stop: got no error, want one")
	}
	if h.conn.PeerGone() {
		t.Error("a peer while the server stops: got it called gone, want it there")
	}
	c.Close()
	until(t, "it has gone", h.conn.PeerGone)
	close(r.released)
	if err := <-stopped; err != nil {
		t.Errorf("Stop: got %v, want no error", err)
	}
}
