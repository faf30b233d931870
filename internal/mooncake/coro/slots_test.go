package coro_test

import (
	"context"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-store/understudy/internal/mooncake/coro"
)

// pipes is a listener of connections in memory.
type pipes struct {
	accepts chan net.Conn
	closed  chan struct{}
}

func (p pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.accepts <- server
	return client
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepts:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A timed handler counts calls that are answered at the same time, except the first of each
// connection. Each takes 2 ms.
type timed struct {
	handler
	now, most *atomic.Int64
}

func (h *timed) Call(_ context.Context, function uint32, _ string, reply []byte) ([]byte, error) {
	if h.calls.Add(1) > 1 {
		for n := h.now.Add(1); ; {
			if m := h.most.Load(); n <= m || h.most.CompareAndSwap(m, n) {
				break
			}
		}
		defer h.now.Add(-1)
	}
	if time.Sleep(2 * time.Millisecond); function == hangUp && h.calls.Load() > 3 {
		return nil, io.EOF
	}
	return reply, nil
}

// Of the connections of one host that send quick requests without a pause no more are served at a time than
// there are slots; calls that may wait for a commit take none.
func TestFloodsTakeTurns(t *testing.T) {
	half := int64(max(1, runtime.GOMAXPROCS(0)/2))
	flooding := 2 * int(half+1)
	for what, tc := range map[string]struct {
		function uint32
		want     int64
	}{"quick": {echo, half}, "closed soon": {hangUp, half}, "a change": {wait, int64(flooding)}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var now, most atomic.Int64
				s := coro.NewServer(&coro.Server{Loops: -1, Open: func(*coro.Conn) coro.Handler { return &timed{now: &now, most: &most} }})
				l := pipes{make(chan net.Conn), make(chan struct{})}
				served := make(chan error, 1)
				go func() { served <- s.Serve(l) }()
				for i := range flooding {
					c := l.dial()
					defer c.Close()
					answers := io.Reader(c)
					if int64(i) < half && tc.want == half { // it is held up, and must hold up nobody
						answers = io.LimitReader(c, 100)
					}
					go func() { _, _ = io.Copy(io.Discard, answers) }()
					go func() {
						for seq := uint32(0); ; seq++ {
							if _, err := c.Write(frame(seq, tc.function, "", "")); err != nil {
								return
							}
						}
					}()
				}
				time.Sleep(5 * time.Second) // of virtual time
				if got := most.Load(); got != tc.want {
					t.Errorf("calls at the same time: got %d, want %d", got, tc.want)
				}
				if err := s.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				if err := <-served; err != nil {
					t.Error(err)
				}
				if !s.NoSlots() {
					t.Error("all connections have ended: got a slot still taken, want all free")
				}
			})
		})
	}
}

// A handler that counts large requests, and those of them for which its connection had a slot.
type noting struct {
	handler
	large, had *atomic.Int64
}

func (h *noting) Call(_ context.Context, _ uint32, body string, reply []byte) ([]byte, error) {
	if len(body) > readBuffer {
		h.large.Add(1)
		if h.conn.HasSlot() {
			h.had.Add(1)
		}
	}
	return append(reply, body...), nil
}

// readBuffer is that of a connection.
const readBuffer = 4 << 10

// A peer that waits for its answers needs no slot, with a loop and without, for requests of any
// size: but for a few, when the machine is so busy that the next request is there at once.
func TestClientsNeedNoSlots(t *testing.T) {
	var large, had atomic.Int64
	s := coro.NewServer(&coro.Server{Loops: loops, Open: func(c *coro.Conn) coro.Handler { return &noting{handler{conn: c}, &large, &had} }})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c, err := coro.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 20*time.Millisecond; {
		for _, n := range []int{10, 2 * readBuffer} {
			if _, _, err := c.Call(t.Context(), echo, func(b []byte) []byte { return append(b, make([]byte, n)...) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = c.Close()
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if all, got := large.Load(), had.Load(); all == 0 || got > all/2 {
		t.Errorf("large requests of a client that waits for its answers, with a slot: got %d of %d, want few", got, all)
	}
}
