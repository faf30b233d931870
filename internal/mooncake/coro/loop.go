package coro

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// turnEvents is how many connections a loop learns of at once.
const turnEvents = 128

// A loop is one goroutine that waits, with an epoll of its own, for the
// connections that nobody else waits for. It answers in place what takes
// microseconds, without another goroutine or the runtime's scheduler; see
// Conn.turn. A connection that needs more than that gets a goroutine, and comes
// back when that has nothing to do.
type loop struct {
	epoll int
	ends  int // an eventfd, readable when the loop must end
	ended chan struct{}
	fail  func(error)

	mu      sync.Mutex // guards sockets and added
	sockets map[int32]*socket
	added   int32 // sockets so far; it may wrap around

	again []*socket // these have more to read, though no event will say so; only the loop uses it
}

// loopCount returns how many loops a server has: one for each two processors. A loop
// can keep one of them busy, and the other is left for all else: the runtime gives a
// processor that waits in epoll to others only after a while.
func loopCount() int { return runtime.GOMAXPROCS(0) / 2 }

// newLoop starts a loop. fail is called when it cannot go on, which no peer can
// cause.
func newLoop(fail func(error)) (l *loop, err error) {
	l = &loop{epoll: -1, ends: -1, ended: make(chan struct{}), fail: fail, sockets: make(map[int32]*socket)}
	defer func() {
		if err != nil {
			l.closeFiles()
		}
	}()
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("creating an epoll: %w", err)
	}
	if l.ends, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("creating an eventfd: %w", err)
	}
	if err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, l.ends, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(l.ends)}); err != nil {
		return nil, fmt.Errorf("watching an eventfd: %w", err)
	}
	go l.run()
	return l, nil
}

// stop ends a loop without connections.
func (l *loop) stop() {
	_, _ = unix.Write(l.ends, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-l.ended
}

func (l *loop) closeFiles() {
	for _, fd := range []int{l.epoll, l.ends} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (l *loop) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sockets)
}

// add begins to watch a socket, for changes only: whoever reads and writes goes on
// until the socket has no more.
func (l *loop) add(s *socket) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.added++
	s.number = l.added
	err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(s.fd), Pad: s.number,
	})
	if err != nil {
		return fmt.Errorf("watching a connection: %w", err)
	}
	l.sockets[int32(s.fd)] = s
	return nil
}

// remove ends watching a socket. It must come before the socket is closed.
func (l *loop) remove(s *socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sockets, int32(s.fd))
}

func (l *loop) run() {
	defer close(l.ended)
	defer l.closeFiles()
	events := make([]unix.EpollEvent, turnEvents)
	ready := make([]*socket, turnEvents)
	for {
		timeout := -1
		if len(l.again) > 0 {
			timeout = 0
		}
		n, err := unix.EpollWait(l.epoll, events, timeout)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			l.fail(fmt.Errorf("waiting for connections: %w", err))
			l.interrupt()
			return
		}
		if l.find(events[:n], ready) {
			return
		}
		again := l.again
		l.again = nil
		handed := false
		for i, s := range ready[:n] {
			if s != nil && (!s.happened(events[i].Events) || l.turn(s)) {
				handed = true
			}
		}
		for _, s := range again {
			handed = l.turn(s) || handed
		}
		if handed {
			runtime.Gosched()
		}
	}
}

func (l *loop) interrupt() {
	l.mu.Lock()
	sockets := slices.Collect(maps.Values(l.sockets))
	l.mu.Unlock()
	for _, s := range sockets {
		s.interrupt()
	}
}

// find looks up the sockets of events. It reports whether the loop must end. An event
// may be of a socket that was closed since, whose descriptor another one has by now.
func (l *loop) find(events []unix.EpollEvent, ready []*socket) (ends bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range events {
		if ready[i] = l.sockets[events[i].Fd]; ready[i] != nil && ready[i].number != events[i].Pad {
			ready[i] = nil
		}
		ends = ends || int(events[i].Fd) == l.ends
	}
	return ends
}

// turn lets a connection that has no goroutine answer what has come. It reports whether it
// has given the connection one.
func (l *loop) turn(s *socket) (handed bool) {
	switch s.conn.turn() {
	case turnRests:
		if s.rest() {
			return false
		}
		if !s.drained { // there is more to read by now
			l.again = append(l.again, s)
			return false
		}
	case turnGoesOn:
		l.again = append(l.again, s)
		return false
	case turnWaits:
	}
	go s.conn.resume()
	return true
}
