package sim

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A Link is one client's connection to the server. Its faults hit what is under
// way on it, and what is to come.
type Link struct {
	name   string
	server *Server

	mu      sync.Mutex // guards all below; never held while something is waited for
	state   linkState
	cut     bool
	down    bool          // the server is
	there   time.Duration // that requests take
	back    time.Duration // that answers take
	broken  time.Duration // by the server's clock: when the connection broke
	redial  *time.Timer   // nil unless the client is about to connect again
	changed chan struct{} // closed and replaced when the state changes
}

// A linkState is what messages under way depend on.
type linkState struct {
	connection int  // counts connections: what belongs to another one is lost
	connected  bool // there is a connection
	stalled    bool
	held       bool          // watches are
	resumed    time.Duration // by the server's clock: when it was stalled last
	released   time.Duration // by the server's clock: when watches were held last
}

// Link returns a new link to the server. Calls over it carry its name.
func (s *Server) Link(name string) *Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &Link{name: name, server: s, down: s.down, changed: make(chan struct{})}
	l.state.connected = !s.down
	s.links = append(s.links, l)
	return l
}

// Cut breaks the connection, with all that is under way on it, and refuses new
// ones, until Heal.
func (l *Link) Cut() { l.change(func() { l.cut = true }) }

// Heal ends Cut. The client connects again when it next tries to.
func (l *Link) Heal() { l.change(func() { l.cut = false }) }

// Stall holds back all messages of both directions, until Resume: as with a
// peer that hangs. Nothing is lost.
func (l *Link) Stall() { l.change(func() { l.state.stalled = true }) }

// Resume ends Stall. What was held back arrives now.
func (l *Link) Resume() {
	l.change(func() {
		if l.state.stalled {
			l.state.stalled, l.state.resumed = false, l.server.clock()
		}
	})
}

// HoldWatches holds back what the server sends to watches, until ReleaseWatches:
// etcd does not promise that a watch has a write before another client reads it.
func (l *Link) HoldWatches() { l.change(func() { l.state.held = true }) }

// ReleaseWatches ends HoldWatches.
func (l *Link) ReleaseWatches() {
	l.change(func() {
		if l.state.held {
			l.state.held, l.state.released = false, l.server.clock()
		}
	})
}

// Delay makes requests, and answers, take so much time from now on.
func (l *Link) Delay(there, back time.Duration) { l.change(func() { l.there, l.back = there, back }) }

func (l *Link) serverDown(down bool) { l.change(func() { l.down = down }) }

// change changes the link and lets what is under way see it.
func (l *Link) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	refused := l.cut || l.down
	switch {
	case refused && l.redial != nil:
		l.redial.Stop()
		l.redial = nil
	case refused && l.state.connected:
		l.state.connected, l.broken = false, l.server.clock()
		l.state.connection++
	case !refused && !l.state.connected && l.redial == nil:
		l.redial = time.AfterFunc(untilRetry(l.server.clock()-l.broken), l.connect)
	}
	l.signalLocked()
}

// connect is the client's attempt that succeeds.
func (l *Link) connect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.redial == nil {
		return // it was cut at this very instant
	}
	l.redial, l.state.connected = nil, true
	l.signalLocked()
}

func (l *Link) signalLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// How a client spaces its attempts to connect: as internal/etcd/etcdclient has it,
// but without jitter.
const (
	firstRetry  = 50 * time.Millisecond
	retryFactor = 1.5
	lastRetry   = 500 * time.Millisecond
)

// untilRetry returns how long it is until a client tries next that lost its
// connection so long ago.
func untilRetry(since time.Duration) time.Duration {
	next, pause := time.Duration(0), firstRetry
	for next < since {
		next += pause
		pause = min(time.Duration(float64(pause)*retryFactor), lastRetry)
	}
	return next - since
}

// look returns the link's state, and a channel that is closed when it changes.
func (l *Link) look() (linkState, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.changed
}

// connected returns the number of the connection there is. Without one it fails,
// as gRPC does, or waits if it is told to.
func (l *Link) connected(ctx context.Context, wait bool) (connection int, err error) {
	for {
		state, changed := l.look()
		switch {
		case ctx.Err() != nil:
			return 0, left(ctx)
		case state.connected:
			return state.connection, nil
		case !wait:
			return 0, errUnavailable
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// errUnavailable is what a client of etcd gets when its member goes.
var errUnavailable = status.Error(codes.Unavailable, "sim: etcd: unavailable")

// left is the error of a client that has given up.
func left(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }

// A trip is one message under way over a connection.
type trip struct {
	link       *Link
	connection int
	watch      bool          // it is for a watch
	arrives    time.Duration // by the server's clock
	latency    time.Duration
}

// request sends a message to the server, answer one back: what it says counts
// for its latency only.
func (l *Link) request(connection int, m proto.Message) trip { return l.send(connection, m, false) }
func (l *Link) answer(connection int, m proto.Message) trip  { return l.send(connection, m, true) }

func (l *Link) send(connection int, m proto.Message, back bool) trip {
	t := trip{link: l, connection: connection}
	if l.server.opts.Latency != nil {
		t.latency = l.server.opts.Latency(l.name, m)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delay := l.there
	if back {
		delay = l.back
	}
	t.arrives = l.server.clock() + t.latency + delay
	return t
}

// remains returns how long a message is still under way, given the link's
// state. What was held back takes its latency again, so that not all of it
// arrives at one instant.
func (t trip) remains(state linkState) time.Duration {
	if state.stalled || t.watch && state.held {
		return forever
	}
	if state.resumed > 0 {
		t.arrives = max(t.arrives, state.resumed+t.latency)
	}
	if t.watch && state.released > 0 {
		t.arrives = max(t.arrives, state.released+t.latency)
	}
	return max(t.arrives-t.link.server.clock(), 0)
}

const forever time.Duration = 1<<63 - 1

// wait waits until the message has arrived. It fails if the message is lost
// with its connection, or if the context ends; then it is still under way.
func (t trip) wait(ctx context.Context) error {
	for {
		state, changed := t.link.look()
		remains := t.remains(state)
		switch {
		case state.connection != t.connection:
			return errUnavailable
		case remains == 0:
			return nil
		case ctx.Err() != nil:
			return left(ctx)
		}
		var arrived <-chan time.Time
		if remains < forever {
			timer := time.NewTimer(remains)
			defer timer.Stop()
			arrived = timer.C
		}
		select {
		case <-arrived:
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// lost waits for a message that never arrives.
func (l *Link) lost(ctx context.Context, connection int) error {
	return trip{link: l, connection: connection, arrives: forever}.wait(ctx)
}
