package coro

import (
	"errors"

	"github.com/understudy-store/understudy/journal/nowait"
)

const (
	// quickBody is the largest body of a request that a loop answers in place: some
	// twenty keys. What a call costs grows with it.
	quickBody = 1 << 10
	// turnCalls is how many requests a connection gets answered before others have
	// their turn.
	turnCalls = 64
)

// What a connection that a loop has given a turn needs next.
type turnEnd int

const (
	turnRests  turnEnd = iota // nothing: an event will come with its next request
	turnGoesOn                // another turn
	turnWaits                 // a goroutine: something takes longer
)

// A taken request was read from the network and is not answered yet.
type taken struct {
	request
	body string
	is   bool
}

// turn answers, on the loop's goroutine, what has come, as far as that takes neither
// waiting nor long. All else is for resume: the rest of a frame, large requests, calls
// that are not quick or turn out to have to wait, answers that the network does not
// take at once, and the end of the connection.
func (c *Conn) turn() turnEnd {
	if c.server.ending.Err() != nil {
		return turnWaits
	}
	c.inPlace = true
	defer func() { c.inPlace = false }()
	for range turnCalls {
		if !c.whole() {
			if c.socket.drained {
				return c.turned(turnRests)
			}
			switch err := c.fill(); {
			case errors.Is(err, errWouldBlock):
				return c.turned(turnRests)
			case err != nil:
				return c.turned(turnWaits) // the goroutine will meet the error again
			}
			continue
		}
		if len(c.out.ready) >= maxOut {
			break
		}
		if q := c.peek(); q.body > quickBody || q.attachment > 0 || !c.handler.Quick(q.function) {
			return c.turned(turnWaits)
		}
		q, body, err := c.read()
		if err == nil {
			err = c.call(q, body)
		}
		if errors.Is(err, nowait.Err) {
			c.taken = taken{q, body, true}
			return c.turned(turnWaits)
		}
		if c.err = err; err != nil {
			return c.turned(turnWaits)
		}
	}
	return c.turned(turnGoesOn)
}

// turned hands the answers of a turn to the network.
func (c *Conn) turned(end turnEnd) turnEnd {
	switch all, err := c.flush(); {
	case err != nil:
		c.err = errors.Join(c.err, err)
		return turnWaits
	case !all, end == turnRests && c.in.Buffered() > 0: // it has begun a frame
		return turnWaits
	}
	return end
}

// flush hands answers to the network as far as that takes no waiting, and reports
// whether those were all.
func (c *Conn) flush() (all bool, err error) {
	if len(c.out.ready) == 0 {
		return true, nil
	}
	all, sent, err := c.out.flush(c.socket)
	if !all {
		return false, nil
	}
	c.handler.Delivered(sent)
	if err != nil {
		c.complain(err)
		return false, err
	}
	return true, c.share.become(0)
}

// resume goes on with a connection that rested or had a turn, on a goroutine of its own.
func (c *Conn) resume() {
	c.arrived = c.server.clock()
	c.slot.Waited()
	c.serve()
}

// fill reads once what has come, without waiting: it may fail with errWouldBlock.
func (c *Conn) fill() error {
	defer func(was bool) { c.inPlace = was }(c.inPlace)
	c.inPlace = true
	_, err := c.in.Peek(c.in.Buffered() + 1)
	return err
}

// source is where a connection's bytes are read from.
type source struct{ *Conn }

// Read reads from the network, and waits for it, except in a turn of a loop.
func (s source) Read(b []byte) (int, error) {
	if s.inPlace {
		return s.socket.tryRead(b)
	}
	n, err := s.slot.Read(s.nc, b)
	if err == nil {
		s.slot.Wait(s.server.ending)
	}
	return n, err
}
