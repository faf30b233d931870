package mooncakeclient

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/mooncake"
)

const (
	// maxConns is how many connections a pool has, and so how many calls it makes at
	// once. Further ones wait.
	maxConns = 256
	// idleFor is how long an unused connection is kept, as in the original.
	idleFor     = 30 * time.Second
	dialTimeout = 2 * time.Second
)

var errClosed = errors.New("the transport is closed")

// A pool has the connections to one address. Each has one call at a time.
type pool struct {
	address    string
	generation *mooncake.Generation
	most       uint32 // bytes of a request
	dial       func(ctx context.Context, address string, g *mooncake.Generation) (*Conn, error)
	clock      clock.Clock
	slots      chan struct{} // one for each call in progress

	closing context.Context // ends with the pool
	cancel  context.CancelFunc

	mu     sync.Mutex // guards what follows
	idle   []idleConn // the newest last
	busy   map[*Conn]struct{}
	sweeps *time.Timer // nil while nothing is idle
}

type idleConn struct {
	*Conn
	since time.Duration
}

func newPool(t *Transport, address string, most int) *pool {
	p := &pool{
		address: address, generation: t.generation, most: uint32(min(uint64(most), math.MaxUint32)), dial: t.Connect, clock: clock.Boot(),
		slots: make(chan struct{}, maxConns), busy: make(map[*Conn]struct{}),
	}
	p.closing, p.cancel = context.WithCancel(context.Background())
	return p
}

// get returns a connection for one call, which put or drop must get back.
func (p *pool) get(ctx context.Context) (*Conn, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closing.Done():
		return nil, errClosed
	}
	if c := p.reuse(); c != nil {
		return c, nil
	}
	c, err := p.connect(ctx)
	if err == nil && !p.admit(c) {
		_ = c.Close()
		err = errClosed
	}
	if err != nil {
		<-p.slots
		return nil, err
	}
	return c, nil
}

// reuse returns the connection that was idle for the shortest time, nil if
// there is none.
func (p *pool) reuse() *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing.Err() != nil || len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	c := p.idle[last].Conn
	p.idle = p.idle[:last]
	p.busy[c] = struct{}{}
	return c
}

// admit takes a new connection in. It reports false if the pool is closed.
func (p *pool) admit(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing.Err() != nil {
		return false
	}
	p.busy[c] = struct{}{}
	return true
}

// connect makes a connection on which a serving node has answered.
func (p *pool) connect(ctx context.Context) (*Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.closing, cancel)()
	c, err := p.dial(ctx, p.address, p.generation)
	if err != nil {
		return nil, err
	}
	c.MaxBody = p.most
	var version mooncake.Result[string]
	if _, err := Do(ctx, c, p.generation.ServiceReady, new(mooncake.Args), &version); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// dialOnce is Dial, for dialTimeout at most.
func dialOnce(ctx context.Context, address string, g *mooncake.Generation) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return Dial(ctx, address, g)
}

// put takes back a connection that can be used again.
func (p *pool) put(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	<-p.slots
	delete(p.busy, c)
	if p.closing.Err() != nil {
		_ = c.Close()
		return
	}
	p.idle = append(p.idle, idleConn{c, p.clock()})
	if p.sweeps == nil {
		p.sweeps = time.AfterFunc(idleFor, p.sweep)
	}
}

// drop takes back a connection that has failed. A node that stops serving closes
// all of its connections, so drop closes the idle ones, too: a caller could not
// tell whether a call on a closed connection was applied.
func (p *pool) drop(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	<-p.slots
	delete(p.busy, c)
	_ = c.Close()
	p.closeIdleLocked(len(p.idle))
}

// sweep closes what was idle for too long.
func (p *pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := 0
	for old < len(p.idle) && p.clock()-p.idle[old].since >= idleFor {
		old++
	}
	p.closeIdleLocked(old)
	if p.sweeps = nil; len(p.idle) > 0 {
		p.sweeps = time.AfterFunc(p.idle[0].since+idleFor-p.clock(), p.sweep)
	}
}

// closeIdleLocked closes the n connections that have been idle for the longest.
func (p *pool) closeIdleLocked(n int) {
	for _, c := range p.idle[:n] {
		_ = c.Close()
	}
	p.idle = append(p.idle[:0], p.idle[n:]...)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancel()
	p.closeIdleLocked(len(p.idle))
	for c := range p.busy {
		_ = c.Close()
	}
	if p.sweeps != nil {
		p.sweeps.Stop()
	}
}
