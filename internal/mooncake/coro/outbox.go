package coro

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
)

const (
	// maxOut is how many bytes of answers may wait; and room for more is not kept.
	maxOut = 64 << 10
	// heldAtMost is how long an answer waits for those to requests that came
	// together with its own, which may take as long as a call can.
	heldAtMost = time.Millisecond
)

// An outbox has the answers of a connection that are not sent yet. Those to
// requests that came together go together, as long as none of these holds the
// others up.
type outbox struct {
	nc    net.Conn
	clock clock.Clock
	limit time.Duration // of sending

	mu     sync.Mutex // guards all below, but whoever adds answers may read them without
	ready  []byte     // whole answers
	sent   int        // bytes of ready that have gone already
	err    error      // why they cannot be sent
	waits  bool       // the timer runs
	held   bool       // late sends what is ready
	timer  *time.Timer
	sendBy time.Duration // by the clock: the write deadline that is set
}

// newOutbox returns an outbox. It must be stopped.
func newOutbox(nc net.Conn, clk clock.Clock, limit time.Duration) *outbox {
	o := &outbox{nc: nc, clock: clk, limit: limit}
	o.timer = time.AfterFunc(time.Hour, o.late)
	o.timer.Stop()
	return o
}

// add replaces the answers that are ready by the same ones with some appended.
func (o *outbox) add(ready []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ready = ready
}

// hold says that another answer follows soon. If it does not, those that are
// ready go without it.
func (o *outbox) hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held = true; !o.waits {
		o.waits = true
		o.timer.Reset(heldAtMost)
	}
}

// late, which the timer calls, sends what is ready, usually during a call. When answers
// are sent earlier the timer runs on: to stop it costs more than to let it fire.
func (o *outbox) late() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waits = false; o.held {
		o.writeLocked()
	}
}

// send hands the answers so far to the network. It returns how many bytes of them have gone.
func (o *outbox) send() (sent int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writeLocked()
	return o.sentLocked()
}

// flush is send as far as the network takes the answers at once. It reports whether there is
// no more to send.
func (o *outbox) flush(s *socket) (all bool, sent int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		var n int
		n, o.err = s.tryWrite(o.ready[o.sent:])
		o.sent += n
	}
	if o.err == nil && o.sent < len(o.ready) {
		return false, o.sent, nil
	}
	sent, err = o.sentLocked()
	return true, sent, err
}

// sentLocked makes room for further answers, when all are sent or cannot be.
func (o *outbox) sentLocked() (sent int, err error) {
	o.held, sent = false, o.sent
	if o.ready, o.sent = o.ready[:0], 0; cap(o.ready) > maxOut {
		o.ready = nil
	}
	if o.err != nil {
		return sent, fmt.Errorf("sending an answer: %w", o.err)
	}
	return sent, nil
}

func (o *outbox) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.timer.Stop()
}

func (o *outbox) writeLocked() {
	if o.err != nil || o.sent == len(o.ready) {
		return
	}
	// A deadline costs more than looking at the clock: one serves many answers.
	if now := o.clock(); o.sendBy-now < o.limit/2 {
		o.sendBy = now + o.limit
		if o.err = o.nc.SetWriteDeadline(clock.Deadline(o.limit)); o.err != nil {
			return
		}
	}
	var n int
	n, o.err = o.nc.Write(o.ready[o.sent:])
	o.sent += n
}
