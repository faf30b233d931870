package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/understudy-store/understudy/internal/clock"
)

// newTestPacer returns a pacer in virtual time, and counts of what it reports.
func newTestPacer() (p *pacer, slowed, closed *atomic.Int64) {
	slowed, closed = new(atomic.Int64), new(atomic.Int64)
	now := clock.Runtime()
	return &pacer{
		clock: now, ending: context.Background(), frames: newPaces(now, framePace, mostFrames, mostOwed), conns: newPaces(now, connPace, mostConns, mostOwed/2),
		slowed: func(net.Addr) { slowed.Add(1) }, closed: func(net.Addr) { closed.Add(1) },
	}, slowed, closed
}

func addressOf(host int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(host)), Port: 1} }

// settings, calls and resets are read by a toll.
var testFrames = struct{ settings, begin, reset, answer http2.FrameHeader }{
	settings: http2.FrameHeader{Type: http2.FrameSettings},
	begin:    http2.FrameHeader{Type: http2.FrameHeaders, StreamID: 1},
	reset:    http2.FrameHeader{Type: http2.FrameRSTStream, StreamID: 1},
	answer:   http2.FrameHeader{Type: http2.FrameData, StreamID: 1, Length: 10},
}

// A flood is what a peer sends again and again, each for a price.
type flood struct {
	what  string
	price int
	send  func(l *toll) // nil for single bytes
}

// flood sends n of it.
func (f flood) flood(l *toll, n int) error {
	if f.send != nil {
		for range n {
			f.send(l)
		}
		return l.settle(1000)
	}
	for range n {
		if err := l.settle(1); err != nil {
			return err
		}
	}
	return nil
}

// A host's frames without calls come at its pace, over however many connections, and a connection
// that brings nothing else is closed after 20 s of waiting. Another host does not notice.
func TestFloodsHaveAPace(t *testing.T) {
	for _, tc := range []flood{
		{"settings", framePrice, func(l *toll) { l.arrived(testFrames.settings, false, false) }},
		{"resets", resetPrice, func(l *toll) {
			l.arrived(testFrames.begin, false, true)
			l.arrived(testFrames.reset, true, false)
		}},
		{"single bytes", framePrice, nil},
	} {
		t.Run(tc.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const conns, atOnce = 20, 100
				p, _, closed := newTestPacer()
				got := make(chan int)
				for range conns {
					go func() {
						l, n := newToll(p, addressOf(1)), 0
						for err := error(nil); err == nil; n += atOnce {
							err = tc.flood(l, atOnce)
						}
						got <- n
					}()
				}
				began, all := p.clock(), 0
				for range conns {
					all += <-got
				}
				took := (p.clock() - began).Seconds()
				if took < 15 || closed.Load() != conns {
					t.Errorf("%d of %d connections were closed after %.0f s, want all after some 20 s", closed.Load(), conns, took)
				}
				if most := int(mostFrames+framePace*(took+mostOwed.Seconds()))/tc.price + conns*(mostFree+100)/tc.price; all > most {
					t.Errorf("a flood: got %d let through in %.0f s, want at most %d", all, took, most)
				}
				l, before := newToll(p, addressOf(2)), p.clock()
				if err := tc.flood(l, atOnce); err != nil || p.clock() != before {
					t.Errorf("another host beside a flood: got a wait of %v, error %v, want neither", p.clock()-before, err)
				}
			})
		})
	}
}

// A client that takes answers sends window updates and pings, and resets some of its calls. It
// does not wait, even beside a flood of its own host.
func TestClientsPayInAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, slowed, _ := newTestPacer()
		p.frames.take("10.0.0.1", 1e9)
		l := newToll(p, addressOf(1))
		for i := range 100_000 {
			l.arrived(testFrames.begin, false, true)
			if i%20 == 0 {
				l.arrived(testFrames.reset, true, false)
			} else {
				l.sent(testFrames.answer)
				l.arrived(testFrames.settings, false, false)
				l.arrived(testFrames.settings, false, false)
			}
			if err := l.settle(200); err != nil {
				t.Fatal(err)
			}
		}
		if slowed.Load() > 0 {
			t.Errorf("a client that takes its answers: got %d waits, want none", slowed.Load())
		}
	})
}

// A connection that waits ends at once when it is closed.
func TestPausesEndWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newTestPacer()
		l, began := newToll(p, addressOf(1)), p.clock()
		time.AfterFunc(time.Second, func() { close(l.ended) })
		l.owed = 1e9
		if err := l.settle(1000); !errors.Is(err, net.ErrClosed) || p.clock()-began != time.Second {
			t.Errorf("got %v after %v, want %v after 1 s", err, p.clock()-began, net.ErrClosed)
		}
	})
}

// Connections that bring no answered call come at a pace; those that bring one do not count.
func TestConnectionsHaveAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newTestPacer()
		open := func(n int, use bool) time.Duration {
			began := p.clock()
			for range n {
				if err := p.admit(addressOf(1)); err != nil {
					t.Fatal(err)
				}
				l := newToll(p, addressOf(1))
				if use {
					l.sent(testFrames.answer)
					_ = l.settle(100)
				}
			}
			return p.clock() - began
		}
		if took := open(10*mostConns, true); took > 0 {
			t.Errorf("%d connections with calls: got a wait of %v, want none", 10*mostConns, took)
		}
		if took := open(mostConns, false); took > 0 {
			t.Errorf("the first %d connections without calls: got a wait of %v, want none", mostConns, took)
		}
		if took := open(10*connPace, false); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("%d more took %v, want 10 s", 10*connPace, took)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		p.ending = ctx
		if err := p.admit(addressOf(1)); err == nil {
			t.Error("a connection while the server ends: got it admitted, want an error")
		}
	})
}

// Hosts that have all they may have are forgotten.
func TestPacesForgetHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newTestPacer()
		for i := range 1000 {
			p.frames.take(fmt.Sprint(i), 10)
		}
		time.Sleep(2 * time.Minute)
		p.frames.take("last", 10)
		if n := len(p.frames.of); n != 1 {
			t.Errorf("%d hosts are known, want 1", n)
		}
	})
}
