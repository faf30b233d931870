package coro

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	peers "github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/journal/nowait"
)

// A Handler answers the requests of one connection. They come one after the
// other.
type Handler interface {
	// Call appends the answer's body to reply and returns all of it. An *Error
	// is sent instead of an answer; with any other error the connection is
	// closed without one. The context ends when the server is stopped and calls
	// have had their time, and with Limits.Call. Call must not touch what reply
	// has already: the network may be sending it.
	Call(ctx context.Context, function uint32, body string, reply []byte) ([]byte, error)
	// Delivered is called when the answers so far have been handed to the
	// network, or cannot be, and when the connection ends. sent is how many bytes
	// of reply, as Call returned it, have gone: an answer that ends behind them
	// reaches nobody. Some may have gone long before, during a later call.
	Delivered(sent int)
	// Quick reports whether small calls of a function take microseconds, and fail with
	// nowait.Err if they would have to wait in a context that forbids that (package
	// nowait). Such a call is made on the loop, which serves many connections. If it fails
	// with that error, it must have changed nothing: it is made again on a goroutine.
	Quick(function uint32) bool
	// Close is called last.
	Close()
}

// Limits bound what a peer can use. A zero field means its default.
type Limits struct {
	// BodyBytes is the largest body or attachment of a request: 16 MiB.
	BodyBytes uint32
	// Budget is of large requests and answers: one of the server's own, of 64 MiB.
	Budget *Budget
	// Frame is how long a new connection may take for its first byte, the rest of a
	// frame after its beginning, and a peer to read answers: 30 s, as long as a client
	// waits for a call. Between frames it may be idle for as long as it likes, as
	// clients keep pools.
	Frame time.Duration
	// Call bounds the answer to a request that had to wait for those before it, from its
	// arrival on: DefaultCall. Handlers bound all other requests. A request that came
	// while the buffer was full counts as arrived when there is room for it.
	Call time.Duration
}

// DefaultCall ends a call a little before its client gives up, after 30 s.
const DefaultCall = 25 * time.Second

func (l Limits) withDefaults() Limits {
	l.BodyBytes = cmp.Or(l.BodyBytes, 16<<20)
	if l.Budget == nil {
		l.Budget = NewBudget(BudgetBytes)
	}
	l.Frame = cmp.Or(l.Frame, 30*time.Second)
	l.Call = cmp.Or(l.Call, DefaultCall)
	return l
}

// A Server answers requests on any number of listeners.
type Server struct {
	// Open returns the handler of a new connection, or nil if none is taken now:
	// then it is closed at once.
	Open func(*Conn) Handler
	// Other takes over connections whose first byte is not Magic; Stop does not wait
	// for them. Without it they are closed.
	Other  func(net.Conn)
	Limits Limits
	// Loops is how many event loops connections are spread over, where there are such
	// (Linux): 0 for one for each two processors, fewer for none. Without a loop each
	// connection has a goroutine of its own.
	Loops int
	Log   *slog.Logger // of what peers do wrong; its handler must limit the rate

	ending context.Context // ends when the server begins to stop
	end    context.CancelFunc
	calls  context.Context // ends when calls are cut off
	quick  context.Context // the same, for calls in place
	cut    context.CancelFunc
	all    sync.WaitGroup // connections
	clock  clock.Clock
	slots  *peers.Slots

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*Conn]struct{}
	loops     []*loop
}

// ErrStopped is what Serve returns after Stop.
var ErrStopped = errors.New("the server was stopped")

// NewServer completes a server whose exported fields are set, and returns it; it
// answers once Serve is called.
func NewServer(s *Server) *Server {
	s.Limits = s.Limits.withDefaults()
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	s.clock, s.listeners, s.conns = clock.Runtime(), make(map[net.Listener]struct{}), make(map[*Conn]struct{})
	s.slots = peers.NewSlots(s.clock, runtime.GOMAXPROCS(0))
	s.ending, s.end = context.WithCancel(context.Background())
	s.calls, s.cut = context.WithCancel(context.Background())
	s.quick = nowait.Context(s.calls)
	s.Loops = cmp.Or(s.Loops, loopCount())
	return s
}

// Serve answers requests that come through a listener until Stop is called,
// and then returns nil. It closes the listener.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	if !s.listen(l) {
		return ErrStopped
	}
	pause := time.Duration(0)
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.accept(nc)
		case s.ending.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("serving coro_rpc at %v: %w", l.Addr(), err)
		default: // out of files, for example: others may end
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.Log.Error("cannot take a connection", "error", err)
			_ = clock.Sleep(s.ending, pause)
		}
	}
}

func (s *Server) listen(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending.Err() != nil {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

// accept begins a connection, or closes it if the server stops. The listener bounds how
// many there may be.
func (s *Server) accept(nc net.Conn) {
	s.mu.Lock()
	if s.ending.Err() != nil {
		s.mu.Unlock()
		nc.Close()
		return
	}
	c := newConn(s, nc)
	s.conns[c] = struct{}{}
	s.all.Add(1)
	s.mu.Unlock()
	go c.run()
}

// forget ends the server's part in a connection.
func (s *Server) forget(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.all.Done()
}

// toLoop gives a connection to the loop that has the fewest, if there are loops. The
// caller still has it.
func (s *Server) toLoop(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.loops) < s.Loops {
		l, err := newLoop(func(err error) { s.Log.Error("an event loop has ended", "error", err) })
		if err != nil {
			s.Log.Warn("cannot start an event loop; a connection gets a goroutine in its place", "error", err)
			return
		}
		s.loops = append(s.loops, l)
	}
	if len(s.loops) == 0 {
		return
	}
	least := slices.MinFunc(s.loops, func(a, b *loop) int { return cmp.Compare(a.size(), b.size()) })
	if socket := newSocket(c, c.nc, least); socket != nil {
		c.nc, c.out.nc, c.socket = socket, socket, socket
	}
}

// endLoops ends the loops, which have no connections.
func (s *Server) endLoops() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.loops {
		l.stop()
	}
	s.loops = nil
}

// Disconnect closes all present connections, in the middle of what they do.
func (s *Server) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.nc.Close()
	}
}

// Stop takes no more connections and requests, and waits for the calls in
// progress and their answers. When the context ends first it cuts them off and
// returns its error.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.end()
	for l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		c.interrupt()
	}
	s.mu.Unlock()
	defer s.cut()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.all.Wait()
		s.endLoops()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.cut()
		s.Disconnect()
		<-done
		return fmt.Errorf("stopping coro_rpc: calls were cut off: %w", context.Cause(ctx))
	}
}
