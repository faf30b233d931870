package coro_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/journal/nowait"
)

// loops is how connections are served: by a goroutine each, or over an event loop.
var loops = 1

// twice runs all tests for both, but for fuzzing.
type twice struct{ *testing.M }

func (m twice) Run() int {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() == "" {
		loops = -1
		if code := m.M.Run(); code != 0 {
			return code
		}
		loops = 1
	}
	return m.M.Run()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(twice{m}) }

// Functions of the tests' handler; any other is not registered.
const (
	echo   = 1 // answers the body
	wait   = 2 // answers when the test says so
	refuse = 3 // answers with an error
	hangUp = 4 // closes the connection
	relay  = 5 // closes it as well, with the errors that a connection of its own may end with
	limit  = 6 // answers how long its context lasts, as a time.Duration; empty without an end
	much   = 7 // answers so many MiB as its body has bytes

	pending = 8 // is wait, and seems to be quick
	roomy   = 9 // is much when the test says so, if there is room, and answers else why there is none

	unsized = 10 // is much once its place is there, and answers else why there is none
)

// A handler answers one connection of a test.
type handler struct {
	conn      *coro.Conn
	released  chan struct{} // ends wait
	waiting   chan struct{} // gets one for each wait that has begun
	ends      []int         // of the answers that Delivered is still to come for
	delivered atomic.Int64  // answers that were handed to the network
	lost      atomic.Int64  // answers that were not
	closed    atomic.Bool
	calls     atomic.Int64
	making    *atomic.Int64 // bytes of roomy
	unit      int           // bytes that much and its like answer for each one of the body: a MiB but in fuzz targets
}

func (h *handler) Call(ctx context.Context, function uint32, body string, reply []byte) ([]byte, error) {
	answered, err := h.answer(ctx, function, body, reply)
	if err == nil || errors.As(err, new(*coro.Error)) {
		h.ends = append(h.ends, max(len(reply), len(answered)))
	}
	return answered, err
}

func (h *handler) answer(ctx context.Context, function uint32, body string, reply []byte) ([]byte, error) {
	if function == pending && nowait.Asked(ctx) {
		return nil, nowait.Err
	}
	h.calls.Add(1)
	switch function {
	case echo:
		return append(reply, body...), nil
	case wait, pending:
		h.waiting <- struct{}{}
		select {
		case <-h.released:
			return append(reply, body...), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case refuse:
		return nil, &coro.Error{Code: 7, Message: "no"}
	case hangUp:
		return nil, io.EOF
	case relay:
		return nil, errors.Join(coro.ErrProtocol, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded)
	case limit:
		if ends, ok := ctx.Deadline(); ok {
			reply = append(reply, time.Until(ends).String()...)
		}
		return reply, nil
	case much:
		return append(reply, make([]byte, len(body)*h.unit)...), nil
	case roomy:
		n := len(body) * h.unit
		if err := h.conn.Room(n); err != nil {
			return append(reply, err.Error()...), nil
		}
		h.making.Add(int64(n))
		h.waiting <- struct{}{}
		<-h.released
		return append(reply, make([]byte, n)...), nil
	case unsized:
		if err := h.conn.Reserve(ctx); err != nil {
			return append(reply, err.Error()...), nil
		}
		n := len(body) * h.unit
		h.making.Add(int64(n))
		return append(reply, make([]byte, n)...), nil
	}
	return nil, &coro.Error{Code: coro.CodeNotRegistered, Message: "the rpc function not registered"}
}

func (h *handler) Delivered(sent int) {
	for _, end := range h.ends {
		if end <= sent {
			h.delivered.Add(1)
		} else {
			h.lost.Add(1)
		}
	}
	h.ends = h.ends[:0]
}

func (h *handler) Quick(function uint32) bool {
	return function == echo || function == refuse || function == hangUp || function == pending
}

func (h *handler) Close() { h.closed.Store(true) }

// A rig is a server with a listener.
type rig struct {
	*coro.Server
	address  string
	log      *syncBuffer
	released chan struct{}
	waiting  chan struct{}

	mu       sync.Mutex
	handlers []*handler
	refuses  atomic.Bool
	making   atomic.Int64
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newRig(t *testing.T, limits coro.Limits, other func(net.Conn)) *rig {
	t.Helper()
	r := &rig{log: new(syncBuffer), released: make(chan struct{}), waiting: make(chan struct{}, 16)}
	r.Server = coro.NewServer(&coro.Server{
		Open: func(c *coro.Conn) coro.Handler {
			if r.refuses.Load() {
				return nil
			}
			h := &handler{conn: c, released: r.released, waiting: r.waiting, making: &r.making, unit: 1 << 20}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.handlers = append(r.handlers, h)
			return h
		},
		Other: other, Limits: limits, Loops: loops, Log: slog.New(slog.NewJSONHandler(r.log, nil)),
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- r.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = r.Stop(ctx)
		if err := <-served; err != nil {
			t.Errorf("Serve: got %v, want no error", err)
		}
	})
	return r
}

func (r *rig) handler(i int) *handler {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.handlers[i]
}

func (r *rig) dial(t *testing.T) *coro.Client {
	t.Helper()
	c, err := coro.Dial(t.Context(), r.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// raw connects without a client.
func (r *rig) raw(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func body(s string) func([]byte) []byte { return func(b []byte) []byte { return append(b, s...) } }

func frame(seq, function uint32, body, attachment string) []byte {
	b := []byte{coro.Magic, 0, 0, 0}
	for _, v := range []uint32{seq, function, uint32(len(body)), uint32(len(attachment))} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return append(append(b, body...), attachment...)
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) { // polls
		if time.Now().After(deadline) {
			t.Fatalf("after 20 s: got no change, want that %s", what)
		}
	}
}

func TestCalls(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	c := r.dial(t)
	for _, n := range []int{0, 1, 100, 4 << 10, 64 << 10, 64<<10 + 1, 3 << 20} {
		want := strings.Repeat("x", n)
		if got, _, err := c.Call(t.Context(), echo, body(want)); err != nil || got != want {
			t.Fatalf("%d bytes: %d, %v; want them back", n, len(got), err)
		}
	}
	for function, want := range map[uint32]coro.Error{
		refuse: {Code: 7, Message: "no"},
		99:     {Code: coro.CodeNotRegistered, Message: "the rpc function not registered"},
	} {
		var refused *coro.Error
		if _, sent, err := c.Call(t.Context(), function, body("")); !errors.As(err, &refused) || *refused != want || !sent {
			t.Errorf("function %d: %v; want %v for a call that was sent", function, err, want)
		}
	}
	if got, _, err := c.Call(t.Context(), echo, body("still there")); err != nil || got != "still there" {
		t.Errorf("after errors: got %q, %v; want \"still there\" and no error", got, err)
	}
	if _, sent, err := c.Call(t.Context(), hangUp, body("")); err == nil || !sent {
		t.Errorf("a connection that was closed: %v; want an error of a call that was sent", err)
	}
	until(t, "the handler is closed", func() bool { return r.handler(0).closed.Load() })
}

// The frames of one client, as it was captured, and the answer to it.
func TestCapturedFrames(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	c := r.raw(t)
	if _, err := c.Write(frame(15, 99, "", "")); err != nil {
		t.Fatal(err)
	}
	want := "\x15\x00\x0b\x00\x0f\x00\x00\x00\x24\x00\x00\x00\x00\x00\x00\x00\x76\xfa\xcf\x9d\x1fthe rpc function not registered"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Errorf("got %x, %v; want %x and no error", got, err, want)
	}
}

// Requests that come at once are answered in their order; attachments are read
// over, and frames may come in pieces.
func TestPipelining(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	c := r.raw(t)
	var all []byte
	for seq := range uint32(500) {
		all = append(all, frame(seq, echo, strings.Repeat("b", int(seq)), strings.Repeat("a", int(seq%7)))...)
	}
	go func() {
		for i := 0; i < len(all); i += 777 {
			if _, err := c.Write(all[i:min(i+777, len(all))]); err != nil {
				return
			}
		}
	}()
	for seq := range uint32(500) {
		h := make([]byte, 16)
		if _, err := io.ReadFull(c, h); err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint32(h[4:]); got != seq {
			t.Fatalf("answer %d, want %d", got, seq)
		}
		if n, err := io.CopyN(io.Discard, c, int64(binary.LittleEndian.Uint32(h[8:]))); err != nil || n != int64(seq) {
			t.Fatalf("answer %d has %d bytes: %v; want %d", seq, n, err, seq)
		}
	}
	until(t, "all are delivered", func() bool { return r.handler(0).delivered.Load() == 500 })
}

// closes reports whether the server closes a connection after some bytes.
func closes(t *testing.T, r *rig, send []byte) {
	t.Helper()
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write(send); err != nil {
		t.Error(err)
	}
	var netErr net.Error
	if n, err := c.Read(make([]byte, 1)); err == nil || errors.As(err, &netErr) && netErr.Timeout() {
		t.Errorf("%d bytes and %v for %x; want a connection that is closed", n, err, send[:min(len(send), 32)])
	}
}

func TestHostileFrames(t *testing.T) {
	r := newRig(t, coro.Limits{BodyBytes: 1000, Frame: 200 * time.Millisecond}, nil)
	whole := frame(1, echo, strings.Repeat("x", 200), "")
	huge := frame(1, echo, "", "")
	for _, at := range []int{12, 16} {
		h := bytes.Clone(huge)
		binary.LittleEndian.PutUint32(h[at:], 1<<32-1)
		closes(t, r, h)
		binary.LittleEndian.PutUint32(h[at:], 1001)
		closes(t, r, h)
	}
	closes(t, r, []byte("GET / HTTP/1.1\r\n\r\n"))
	closes(t, r, append([]byte{coro.Magic, 1}, whole[2:]...))
	closes(t, r, append([]byte{coro.Magic, 0, 1}, whole[3:]...))
	closes(t, r, nil) // says nothing
	var cut sync.WaitGroup
	for n := 1; n < len(whole); n++ {
		cut.Go(func() { closes(t, r, whole[:n]) }) // stops in the middle
	}
	cut.Wait()
	until(t, "it is said in the log", func() bool { return strings.Contains(r.log.String(), "does not speak as a Mooncake client should") })
	patiently(t, r, "a good client", func(c *coro.Client) error {
		got, _, err := c.Call(t.Context(), echo, body("fine"))
		if err == nil && got != "fine" {
			err = errors.New(got)
		}
		return err
	})
}

// A connection of another protocol goes to whom it is for, with all its bytes.
func TestOtherProtocol(t *testing.T) {
	others := make(chan net.Conn, 1)
	r := newRig(t, coro.Limits{}, func(c net.Conn) { others <- c })
	c := r.raw(t)
	if _, err := c.Write([]byte("PRI * HTTP/2.0")); err != nil {
		t.Fatal(err)
	}
	other := <-others
	defer other.Close()
	got := make([]byte, 14)
	if _, err := io.ReadFull(other, got); err != nil || string(got) != "PRI * HTTP/2.0" {
		t.Errorf("got %q, %v; want \"PRI * HTTP/2.0\" and no error", got, err)
	}
	if _, err := other.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got[:5]); err != nil || string(got[:5]) != "hello" {
		t.Errorf("got %q, %v; want \"hello\" and no error", got, err)
	}
}

func TestNotServing(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	r.refuses.Store(true)
	closes(t, r, frame(0, echo, "", ""))
}

func TestDisconnect(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	c := r.dial(t)
	if _, _, err := c.Call(t.Context(), echo, body("a")); err != nil {
		t.Fatal(err)
	}
	r.Disconnect()
	if _, _, err := c.Call(t.Context(), echo, body("a")); err == nil {
		t.Error("a call after Disconnect: got an answer, want an error")
	}
	if _, _, err := r.dial(t).Call(t.Context(), echo, body("a")); err != nil {
		t.Errorf("a new one: got %v, want no error", err)
	}
}

// PeerGone reports a peer that has gone during its call.
func TestPeerGone(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	c := r.dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	called := make(chan error, 1)
	go func() {
		_, _, err := c.Call(ctx, wait, body("a"))
		called <- err
	}()
	<-r.waiting
	h := r.handler(0)
	if h.conn.PeerGone() {
		t.Error("a peer that waits for its answer: got it called gone, want it there")
	}
	cancel()
	if err := <-called; !errors.Is(err, context.Canceled) {
		t.Errorf("the call: got %v, want context.Canceled", err)
	}
	c.Close()
	until(t, "the peer has gone", h.conn.PeerGone)
	close(r.released)
	until(t, "the connection ends", h.closed.Load)
}

// Stop lets a call in progress end, and its answer arrive.
func TestStop(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	c, idle := r.dial(t), r.dial(t)
	if _, _, err := idle.Call(t.Context(), echo, body("a")); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, _, err := c.Call(t.Context(), wait, body("a"))
		answered <- err
	}()
	<-r.waiting
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop(t.Context()) }()
	until(t, "idle connections end", func() bool { return r.handler(0).closed.Load() })
	close(r.released)
	if err := <-answered; err != nil {
		t.Errorf("the call in progress: got %v, want no error", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop: got %v, want no error", err)
	}
	if _, err := net.Dial("tcp", r.address); err == nil {
		t.Errorf("connect after Stop to %s: got a connection, want an error", r.address)
	}
}

func TestStopCutsOff(t *testing.T) {
	r := newRig(t, coro.Limits{}, nil)
	c := r.dial(t)
	answered := make(chan error, 1)
	go func() {
		_, _, err := c.Call(t.Context(), wait, body("a"))
		answered <- err
	}()
	<-r.waiting
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Stop: got %v, want context.Canceled", err)
	}
	if err := <-answered; err == nil {
		t.Error("a call under way at Stop's deadline: got an answer, want it cut off")
	}
}
