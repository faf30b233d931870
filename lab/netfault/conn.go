package netfault

import (
	"errors"
	"io"
	"net"
	"time"
)

// A direction of a connection.
type direction int

const (
	up direction = iota
	down
)

// A conn is one connection through a proxy.
type conn struct {
	proxy          *Proxy
	dialer, target net.Conn // guarded by the proxy's mutex until both pass
	// Guarded by the proxy's mutex:
	lost    struct{ Up, Down bool } // bytes were dropped
	deaf    bool                    // all bytes are dropped, whatever the fault says
	carried int                     // bytes, in both directions
}

// reset ends both sides so that they get an error at once.
func (c *conn) reset() {
	reset(c.dialer)
	if c.target != nil {
		reset(c.target)
	}
}

func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

// A packet is bytes under way; an empty one is the end of the stream.
type packet struct {
	bytes []byte
	read  time.Duration // when they arrived
}

// pass reads bytes from one side and writes them to the other, when the fault allows it. It
// returns when one side is gone.
func (c *conn) pass(dst, src net.Conn, d direction) {
	queue := make(chan packet, maxChunks)
	gone := make(chan struct{})
	c.proxy.tasks.Go(func() {
		defer close(gone)
		if !c.deliver(dst, queue, d) {
			reset(src)
		}
	})
	defer func() { <-gone }()
	defer close(queue)
	for {
		buf := make([]byte, chunk)
		n, err := src.Read(buf)
		if n > 0 && !c.dropped(n, d) {
			select {
			case queue <- packet{buf[:n:n], c.proxy.now()}:
			case <-gone:
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			select {
			case queue <- packet{nil, c.proxy.now()}:
			case <-gone:
			}
			return
		case err != nil:
			reset(dst)
			return
		}
	}
}

// dropped reports whether the fault drops bytes, and counts them.
func (c *conn) dropped(n int, d direction) bool {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	c.carried += n
	if !c.deaf && !p.flow(d).Drop {
		return false
	}
	if d == up {
		c.lost.Up = true
		p.dropped.Up += int64(n)
	} else {
		c.lost.Down = true
		p.dropped.Down += int64(n)
	}
	return true
}

// flow is the fault's flow in a direction. The mutex must be held.
func (p *Proxy) flow(d direction) Flow {
	if d == up {
		return p.fault.Up
	}
	return p.fault.Down
}

// deliver writes each packet of the queue when it is due. It reports false if it could not
// write all of them.
func (c *conn) deliver(dst net.Conn, queue <-chan packet, d direction) bool {
	for p := range queue {
		if !c.await(p, d) {
			return false
		}
		if p.bytes == nil {
			_ = dst.(*net.TCPConn).CloseWrite()
			return true
		}
		if _, err := dst.Write(p.bytes); err != nil {
			return false
		}
	}
	return true
}

// await waits until a packet may go on. It reports false if the proxy ends.
func (c *conn) await(pk packet, d direction) bool {
	for {
		c.proxy.mu.Lock()
		flow, changed := c.proxy.flow(d), c.proxy.changed
		c.proxy.mu.Unlock()
		left := pk.read + flow.Delay - c.proxy.now()
		if !flow.Hold && left <= 0 {
			return true
		}
		var due <-chan time.Time
		if !flow.Hold {
			t := time.NewTimer(left)
			defer t.Stop() // in a loop, but a packet waits again only when the fault changes
			due = t.C
		}
		select {
		case <-due:
		case <-changed:
		case <-c.proxy.ctx.Done():
			return false
		}
	}
}
