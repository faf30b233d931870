package rpc

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/net/http2"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/share"
)

// A peer that sends frames of 9 bytes without a call, or resets its calls at once, takes far more
// processor time here than of its own. So frames, and reads that bring few bytes, have a price.
// Calls that are answered pay for it in advance, with room for all that clients send besides
// them, and each connection has a little for nothing. The rest is taken from what its host has
// (see share.Host), and when that is gone the connection is not read for a while: TCP then
// slows the peer down. Frames that begin calls, and bring requests, are free: calls have bounds
// of their own.
const (
	framePrice = 4  // of a frame that carries no call, and of a read that brings fewer than fewRead bytes
	resetPrice = 12 // of a call that its peer resets before it is answered
	fewRead    = 64
	largeData  = 1 << 10 // a DATA frame of a call with so many bytes pays for one frame
	// An answer with a message pays answerPays, each further part of it too: clients send window
	// updates and a ping, each in a read of its own. One without a message, and a frame that
	// clients acknowledge, pays ackPays. A connection keeps mostPaid of it.
	answerPays = 40
	ackPays    = 2 * framePrice
	mostPaid   = 16 << 10
	// A connection has freePace a second for nothing, and mostFree at first.
	freePace = 16
	mostFree = 256
	// A host has framePace a second for all its connections, and mostFrames at first. It may owe
	// mostOwed seconds of it: no connection waits for longer.
	framePace  = 10_000
	mostFrames = 20_000
	mostOwed   = 10 * time.Second
	// A connection that has waited for longestPause in all, while not one of its calls was answered
	// in between, is closed.
	longestPause = 20 * time.Second
	// unpaidRead is what is read at once from a connection that has nothing paid.
	unpaidRead = 1 << 10
	// A host may open connPace connections a second, and mostConns at once, that bring no call
	// which is answered with a message.
	connPace  = 200
	mostConns = 2000
)

var errFlood = errs.New(errs.Unavailable, "", "too many frames that carry no call; the connection was closed, try again")

// paces are what hosts have of something that comes back with time. They are safe for concurrent
// use.
type paces struct {
	clock       clock.Clock
	rate, most  float64 // a second, and at first
	longestDebt time.Duration

	mu    sync.Mutex
	of    map[string]pace // without those that have all
	swept time.Duration
}

type pace struct {
	has float64 // negative if it owes
	at  time.Duration
}

func newPaces(c clock.Clock, rate, most float64, longestDebt time.Duration) *paces {
	return &paces{clock: c, rate: rate, most: most, longestDebt: longestDebt, of: make(map[string]pace)}
}

// take takes n from a host, and returns how long it must wait until it owes nothing.
func (p *paces) take(host string, n float64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	if now-p.swept > time.Minute { // hosts come and go
		p.swept = now
		for h := range p.of {
			if p.now(h, now) >= p.most {
				delete(p.of, h)
			}
		}
	}
	has := max(p.now(host, now)-n, -p.rate*p.longestDebt.Seconds())
	p.of[host] = pace{has, now}
	return time.Duration(max(0, -has) / p.rate * float64(time.Second))
}

func (p *paces) giveBack(host string, n float64) { p.take(host, -n) }

// now returns what a host has. The lock is held.
func (p *paces) now(host string, at time.Duration) float64 {
	of, known := p.of[host]
	if !known {
		return p.most
	}
	return min(p.most, of.has+(at-of.at).Seconds()*p.rate)
}

// A pacer has the paces of a server's connections.
type pacer struct {
	clock         clock.Clock
	frames, conns *paces
	ending        context.Context
	slots         *share.Slots
	slowed        func(peer net.Addr)
	closed        func(peer net.Addr)
}

// newPacer returns a pacer that logs few lines, so that other lines of what peers cause have room.
func (s *Server) newPacer() *pacer {
	log := s.Log.Sample(&zerolog.BurstSampler{Burst: 5, Period: time.Minute})
	return &pacer{
		clock: s.Clock, ending: s.ending, slots: share.NewSlots(clock.Runtime(), runtime.GOMAXPROCS(0)),
		frames: newPaces(s.Clock, framePace, mostFrames, mostOwed), conns: newPaces(s.Clock, connPace, mostConns, mostOwed/2),
		slowed: func(peer net.Addr) {
			s.countSlowed(false)
			log.Warn().Stringer("peer", peer).Msg("a connection is slowed down: its host sends many frames without calls, or opens many connections without calls")
		},
		closed: func(peer net.Addr) {
			s.countSlowed(true)
			log.Warn().Stringer("peer", peer).Msg("closed a connection: it sent too many frames without calls")
		},
	}
}

func (s *Server) countSlowed(closed bool) {
	if s.Observer != nil {
		s.Observer.Slowed(closed)
	}
}

// admit waits until a host may open one more connection, or the server ends.
func (p *pacer) admit(peer net.Addr) error {
	wait := p.conns.take(share.Host(peer), 1)
	if wait <= 0 {
		return nil
	}
	p.slowed(peer)
	return clock.Sleep(p.ending, wait)
}

// A toll is what a connection owes for what it sends, and what is paid in advance.
type toll struct {
	*pacer
	peer net.Addr
	host string

	paid     atomic.Int64 // by answers
	answered atomic.Bool  // a call was, with a message, since the last read
	ended    chan struct{}

	// Of the reader alone.
	owed    int64 // for what has arrived in this read
	useful  bool  // this read has brought a frame of a call
	free    float64
	freeAt  time.Duration
	waited  time.Duration // since an answer
	slow    bool          // it has waited
	welcome bool          // a call was answered
}

func newToll(p *pacer, peer net.Addr) *toll {
	return &toll{pacer: p, peer: peer, host: share.Host(peer), ended: make(chan struct{}), free: mostFree, freeAt: p.clock()}
}

// bound returns the part of a buffer that may be read into at once.
func (t *toll) bound(b []byte) []byte {
	// The shortest frame has 9 bytes.
	return b[:min(len(b), max(unpaidRead, int(t.paid.Load())*frameHeader/framePrice))]
}

// arrived notes a frame that has arrived. Its call is open, or is begun by it, or neither.
func (t *toll) arrived(f http2.FrameHeader, open, begins bool) {
	switch {
	case begins:
		t.useful = true
	case f.Type == http2.FrameData && open && f.Length >= largeData:
		t.useful = true
		t.pay(framePrice)
	case f.Type == http2.FrameData && open && f.Flags.Has(http2.FlagDataEndStream):
		t.useful = true
	case f.Type == http2.FrameRSTStream && open:
		t.owed += resetPrice
	default:
		t.owed += framePrice
	}
}

func (t *toll) sent(f http2.FrameHeader) {
	switch {
	case f.Type == http2.FrameData && f.Length > 0:
		t.pay(answerPays)
		t.answered.Store(true)
	case f.Type == http2.FrameHeaders && f.Flags.Has(http2.FlagHeadersEndStream):
		t.pay(ackPays)
	case (f.Type == http2.FramePing || f.Type == http2.FrameSettings) && !f.Flags.Has(http2.FlagPingAck): // as FlagSettingsAck
		t.pay(ackPays)
	}
}

func (t *toll) pay(n int64) {
	if t.paid.Load() < mostPaid {
		t.paid.Add(n)
	}
}

// settle pays for a read that brought n bytes. If there is not enough it waits, at most until the
// connection ends. It fails if the connection has waited for too long.
func (t *toll) settle(n int) error {
	if n > 0 && n < fewRead && !t.useful {
		t.owed += framePrice
	}
	owed := t.owed
	t.owed, t.useful = 0, false
	if t.answered.Load() {
		t.answered.Store(false)
		if t.waited = 0; !t.welcome {
			t.welcome = true
			t.conns.giveBack(t.host, 1)
		}
	}
	if owed == 0 {
		return nil
	}
	if paid := min(owed, t.paid.Load()); paid > 0 {
		t.paid.Add(-paid)
		owed -= paid
	}
	wait := t.take(float64(owed))
	if wait <= 0 {
		return nil
	}
	if !t.slow {
		t.slow = true
		t.slowed(t.peer)
	}
	if t.waited += wait; t.waited > longestPause {
		t.closed(t.peer)
		return errFlood
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-t.ended:
	case <-t.ending.Done(): // the server stops
	}
	return net.ErrClosed
}

// take takes from what is free, and then from what the host has. It returns how long to wait.
func (t *toll) take(owed float64) time.Duration {
	if owed <= 0 {
		return 0
	}
	now := t.clock()
	t.free = min(mostFree, t.free+(now-t.freeAt).Seconds()*freePace)
	t.freeAt = now
	free := min(owed, t.free)
	if t.free -= free; owed == free {
		return 0
	}
	return t.frames.take(t.host, owed-free)
}
