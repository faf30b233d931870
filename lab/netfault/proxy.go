// Package netfault breaks the network between two parties on purpose. It is a TCP proxy
// that passes, delays, holds or drops bytes, separately in each direction, or cuts
// connections. The fault can be changed at any time.
//
// It is for fault drills on one machine. It does not interpret the bytes, and must never
// change them or their order: a connection that lost bytes is never used again.
package netfault

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
)

// A Fault is what a proxy does to connections and their bytes. The zero Fault passes all.
type Fault struct {
	// Cut resets all connections, and each new one at once.
	Cut bool
	// Up is the flow of bytes from the dialer to the target, Down the flow back.
	Up, Down Flow
}

// A Flow is what happens to one direction.
type Flow struct {
	// Delay is how much later each byte arrives.
	Delay time.Duration
	// Hold keeps bytes until the fault ends; then they arrive, none missing.
	Hold bool
	// Drop drops bytes. A connection that lost some is reset when the fault ends, since
	// later bytes would make no sense.
	Drop bool
}

// Faults with a name.
var (
	// Cut resets open and new connections.
	Cut = Fault{Cut: true}
	// Stall accepts connections and passes nothing, like a machine that hangs.
	Stall = Fault{Up: Flow{Hold: true}, Down: Flow{Hold: true}}
	// LoseAnswers passes requests and drops answers.
	LoseAnswers = Fault{Down: Flow{Drop: true}}
	// LoseRequests drops requests.
	LoseRequests = Fault{Up: Flow{Drop: true}}
)

// SlowAnswers delays answers.
func SlowAnswers(d time.Duration) Fault { return Fault{Down: Flow{Delay: d}} }

const (
	// maxConns bounds the connections of a proxy; further ones are reset.
	maxConns = 1024
	// chunk and maxChunks bound the bytes that one direction of a connection holds to
	// 16 MiB. If it is full, the sender must wait.
	chunk     = 64 << 10
	maxChunks = 256
	// dialTimeout bounds how long dialing the target takes.
	dialTimeout = 5 * time.Second
)

// A Proxy forwards connections from an address of its own to a target. Its methods may be
// called from any goroutine.
type Proxy struct {
	listener net.Listener
	now      clock.Clock
	ctx      context.Context // ends with the proxy
	cancel   context.CancelFunc
	tasks    sync.WaitGroup

	mu      sync.Mutex // guards what follows
	target  string     // empty: connections are refused
	fault   Fault
	changed chan struct{} // closed when the fault changes
	conns   map[*conn]struct{}
	dropped Bytes
}

// Bytes counts bytes in each direction.
type Bytes struct{ Up, Down int64 }

// Listen returns a proxy on a free loopback port. The target is a host:port, or
// empty while there is none.
func Listen(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, now: clock.Boot(), target: target, changed: make(chan struct{}), conns: make(map[*conn]struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.tasks.Go(p.accept)
	return p, nil
}

// Addr returns the host:port of the proxy. It never changes.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetTarget sets where new connections go to, empty for nowhere.
func (p *Proxy) SetTarget(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = address
}

// Set sets the fault for all connections, open and new ones.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
	for c := range p.conns {
		if f.Cut || c.deaf || c.lost.Up && !f.Up.Drop || c.lost.Down && !f.Down.Drop {
			c.reset()
		}
	}
}

// LoseBusiest drops all bytes, in both directions, of the connection that has carried most
// so far, like a router that has forgotten it. Other connections, and new ones, still pass.
// The next Set resets the connection.
func (p *Proxy) LoseBusiest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var busiest *conn
	for c := range p.conns {
		if busiest == nil || c.carried > busiest.carried {
			busiest = c
		}
	}
	if busiest != nil {
		busiest.deaf = true
	}
}

// Heal passes everything again.
func (p *Proxy) Heal() { p.Set(Fault{}) }

// Dropped counts the bytes that were lost so far.
func (p *Proxy) Dropped() Bytes {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// Close resets all connections and waits until all goroutines of the proxy have ended.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.listener.Close()
	p.Set(Cut)
	p.tasks.Wait()
}

func (p *Proxy) accept() {
	for {
		dialer, err := p.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			continue // the connection died while it waited
		}
		p.tasks.Go(func() { p.serve(dialer) })
	}
}

// serve joins a dialer with the target until one of them is gone.
func (p *Proxy) serve(dialer net.Conn) {
	c := &conn{proxy: p, dialer: dialer}
	target, ok := p.admit(c)
	if !ok {
		reset(dialer)
		return
	}
	defer p.forget(c)
	ctx, cancel := context.WithTimeout(p.ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	t, err := d.DialContext(ctx, "tcp", target)
	if err != nil || !p.join(c, t) {
		c.reset()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { c.pass(t, dialer, up) })
	both.Go(func() { c.pass(dialer, t, down) })
	both.Wait()
}

// admit registers a connection, and reports whether it may have a target.
func (p *Proxy) admit(c *conn) (target string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault.Cut || p.target == "" || len(p.conns) >= maxConns {
		return "", false
	}
	p.conns[c] = struct{}{}
	return p.target, true
}

// join gives a connection its target. It reports false if the proxy was cut in the meantime.
func (p *Proxy) join(c *conn, target net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault.Cut {
		reset(target)
		return false
	}
	c.target = target
	return true
}

func (p *Proxy) forget(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.dialer.Close()
	if c.target != nil {
		_ = c.target.Close()
	}
}
