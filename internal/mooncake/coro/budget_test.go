package coro_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/internal/mooncake/coro"
)

// A large request waits for memory before it is read, and no longer than a frame may
// take. Small ones go on.
func TestLargeRequestsAreBounded(t *testing.T) {
	t.Parallel()
	const large = 256 << 10
	r := newRig(t, coro.Limits{Budget: coro.NewBudget(large), Frame: 4 * time.Second}, nil)
	write(t, r.raw(t), frame(0, wait, strings.Repeat("x", large), ""))
	<-r.waiting // and has all that there is
	good := r.dial(t)
	if got, _, err := good.Call(t.Context(), echo, body("small")); err != nil || got != "small" {
		t.Errorf("a small request beside it: got %q, %v; want \"small\" and no error", got, err)
	}
	closes(t, r, frame(0, echo, strings.Repeat("y", large), ""))
	if !strings.Contains(r.log.String(), "too many large requests and answers") {
		t.Errorf("the log says %q, want why", r.log.String())
	}
	close(r.released)
	want := strings.Repeat("y", large)
	if got, _, err := good.Call(t.Context(), echo, body(want)); err != nil || got != want {
		t.Errorf("a large request after it: got %d bytes, %v; want %d and no error", len(got), err, large)
	}
}

// Answers that nobody reads take no more memory than there is for them: who asks for
// more is cut off.
func TestUnreadAnswersAreBounded(t *testing.T) {
	const large = 16 // MiB, more than the system takes without a reader
	r := newRig(t, coro.Limits{Budget: coro.NewBudget(large << 20)}, nil)
	request := frame(0, much, strings.Repeat("x", large), "")
	silent := r.raw(t)
	if _, err := silent.Write(request); err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Read(make([]byte, 1)); err != nil { // the answer is there
		t.Fatal(err)
	}
	closes(t, r, request)
	if !strings.Contains(r.log.String(), "too many large requests and answers") {
		t.Errorf("the log says %q, want why", r.log.String())
	}
	if got, _, err := r.dial(t).Call(t.Context(), much, body("")); err != nil || got != "" {
		t.Errorf("a small answer beside large ones that nobody reads: got %q, error %v, want an empty one", got, err)
	}
	silent.Close()
	until(t, "there is room again", func() bool {
		got, _, err := r.dial(t).Call(t.Context(), much, body(strings.Repeat("x", large)))
		return err == nil && len(got) == large<<20
	})
}

// While a host leaves such answers unread, no further ones of unknown size are made for it.
func TestUnreadAnswersStopThoseOfUnknownSize(t *testing.T) {
	const large = 16 // MiB, more than the system takes without a reader
	r := newRig(t, coro.Limits{Budget: coro.NewBudget(large << 20)}, nil)
	silent := r.raw(t)
	write(t, silent, frame(0, unsized, strings.Repeat("x", large), ""))
	if _, err := silent.Read(make([]byte, 1)); err != nil { // the answer is there
		t.Fatal(err)
	}
	made, c := r.making.Load(), r.dial(t)
	if _, _, err := c.Call(t.Context(), echo, body("small")); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		got, _, err := c.Call(t.Context(), unsized, body("x"))
		if err == nil && len(got) != 1<<20 {
			err = errors.New(got)
		}
		answered <- err
	}()
	until(t, "a call waits", func() bool { return r.handler(1).calls.Load() == 2 })
	if got := r.making.Load() - made; got > 0 {
		t.Errorf("%d bytes were made beside an unread answer, want none", got)
	}
	silent.Close()
	if err := <-answered; err != nil {
		t.Errorf("when that is gone: got %v, want 1 MiB", err)
	}
}

// Nor are they for a peer that has gone while it waited, with further requests under way.
func TestNothingIsMadeForAPeerThatHasGone(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	c := r.raw(t)
	write(t, c, frame(0, wait, "", ""), frame(1, unsized, "x", ""), frame(2, unsized, "x", ""))
	<-r.waiting
	c.Close()
	until(t, "the peer has gone", r.handler(0).conn.PeerGone)
	close(r.released)
	until(t, "the connection ends", r.handler(0).closed.Load)
	if got := r.making.Load(); got > 0 {
		t.Errorf("%d bytes were made for it, want none", got)
	}
}

// What many short requests ask for at once is no more than there is memory for, and nobody
// makes what no host may have.
func TestAnswersAreBoundedBeforeTheyAreMade(t *testing.T) {
	const budget, conns = 8 << 20, 20
	r := newRig(t, coro.Limits{Budget: coro.NewBudget(budget)}, nil)
	call := func(size int, answers chan<- string) {
		c := r.dial(t)
		go func() {
			answer, _, err := c.Call(t.Context(), roomy, body(strings.Repeat("x", size)))
			if err != nil {
				t.Error(err)
			}
			answers <- answer
		}()
	}
	// all returns the answers, but for those that are being made.
	all := func(answers <-chan string) (refused []string, making int) {
		for len(refused)+making < conns {
			select {
			case answer := <-answers:
				refused = append(refused, answer)
			case <-r.waiting:
				making++
			}
		}
		return refused, making
	}
	answers := make(chan string, conns)
	for range conns {
		call(64, answers)
	}
	refused, _ := all(answers)
	if got := r.making.Load(); got > 0 {
		t.Errorf("%d bytes are made at once, of answers larger than the budget; want none", got)
	}
	for _, why := range refused {
		if why != coro.ErrLargeAnswer.Error() {
			t.Errorf("got %q, want ErrLargeAnswer", why)
		}
	}
	for range conns {
		call(1, answers)
	}
	refused, making := all(answers)
	if got := r.making.Load(); got == 0 || got > budget/2 {
		t.Errorf("%d bytes are made at once, want some, and no more than half of the budget for one host", got)
	}
	for _, why := range refused {
		if why != coro.ErrBusy.Error() {
			t.Errorf("got %q, want ErrBusy", why)
		}
	}
	close(r.released)
	for range making {
		if answer := <-answers; len(answer) != 1<<20 {
			t.Errorf("got %d bytes, want 1 MiB", len(answer))
		}
	}
}

// stall has a host announce many requests that it does not send, which take its share.
func stall(t *testing.T, large int, frameLimit time.Duration) (*rig, []net.Conn) {
	t.Helper()
	r := newRig(t, coro.Limits{Budget: coro.NewBudget(int64(large)), Frame: frameLimit}, nil)
	announced := frame(0, echo, strings.Repeat("x", large/2), "")
	var stalled []net.Conn
	for range 8 {
		c := r.raw(t)
		write(t, c, announced[:1000])
		stalled = append(stalled, c)
	}
	until(t, "they have their share", func() bool {
		c, err := coro.Dial(t.Context(), r.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, _, err = c.Call(soon, echo, body(strings.Repeat("y", 8<<10)))
		return err != nil
	})
	return r, stalled
}

// One host that announces much and sends nothing leaves half to others,
func TestStalledRequestsLeaveRoom(t *testing.T) {
	const large = 4 << 20
	r, _ := stall(t, large, 10*time.Minute)
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	other, err := from.DialContext(t.Context(), "tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_ = other.SetDeadline(time.Now().Add(20 * time.Second)) // long before the first of them ends
	write(t, other, frame(0, echo, strings.Repeat("z", large/4), ""))
	if _, err := other.Read(make([]byte, 1)); err != nil {
		t.Errorf("a large request of another host: got error %v, want an answer: the first leaves half of the room", err)
	}
}

// and soon all: a request that stalls ends long before a slow one has to.
func TestStalledRequestsEndSoon(t *testing.T) {
	t.Parallel()
	_, stalled := stall(t, 4<<20, 24*time.Second)
	ends := make(chan error, len(stalled)) // the first that was read has its share, which need not be the first that was sent
	for _, c := range stalled {
		_ = c.SetReadDeadline(time.Now().Add(16 * time.Second)) // before a frame must have come
		go func() {
			_, err := c.Read(make([]byte, 1))
			ends <- err
		}()
	}
	if err := <-ends; err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a request that stalls: got %v, want the end of its connection", err)
	}
}
