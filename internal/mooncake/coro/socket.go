package coro

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/understudy-store/understudy/internal/clock"
)

// A socket is a connection that a loop waits for, in place of the runtime. It
// rests while no goroutine has it: then the loop may use it. A goroutine that has it
// reads and writes as with any net.Conn, and waits until the loop says that there is more.
type socket struct {
	conn   *Conn
	loop   *loop
	fd     int
	number int32    // among the loop's sockets of all time
	place  net.Conn // the original one, closed, but still counted among its listener's connections
	local  net.Addr
	peer   net.Addr

	drained bool  // there was no more to read, and no event since; for whoever has the socket
	failed  error // of reading; for whoever has the socket

	readable, writable chan struct{} // one signal at most: it is worth another try

	mu              sync.Mutex // guards all below
	rests           bool
	interrupted     bool // it must not rest any more
	hungUp          bool // the peer's end, or an error, may be next
	closed          bool // by Close
	released        bool // fd may be another's
	readBy, writeBy time.Time
}

// newSocket moves a connection from the runtime's poller to a loop. The caller has it then.
// It returns nil for a connection of another kind, or if there is no file descriptor left.
func newSocket(c *Conn, nc net.Conn, l *loop) *socket {
	inner := nc
	if wrapper, ok := nc.(interface{ NetConn() net.Conn }); ok {
		inner = wrapper.NetConn()
	}
	fd := -1
	switch inner := inner.(type) {
	case *net.TCPConn:
		fd = duplicate(inner)
	case *net.UnixConn:
		fd = duplicate(inner)
	}
	if fd < 0 {
		return nil
	}
	s := &socket{
		conn: c, loop: l, fd: fd, place: nc, local: nc.LocalAddr(), peer: nc.RemoteAddr(),
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
	}
	if l.add(s) != nil {
		_ = unix.Close(fd)
		return nil
	}
	_ = inner.Close() // the duplicate lives on
	return s
}

// duplicate returns a descriptor of a connection's own, or -1.
func duplicate(nc syscall.Conn) int {
	fd := -1
	raw, err := nc.SyscallConn()
	if err != nil {
		return fd
	}
	_ = raw.Control(func(of uintptr) {
		if fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0); err != nil {
			fd = -1
		}
	})
	return fd
}

// happened notes an event. It reports whether the socket rested, and is the caller's
// now; else whoever has it learns of the event.
func (s *socket) happened(events uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hungUp = s.hungUp || events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
	if s.rests {
		s.rests, s.drained = false, false
		return true
	}
	if events&^unix.EPOLLOUT != 0 {
		signal(s.readable)
	}
	if events&^(unix.EPOLLIN|unix.EPOLLRDHUP) != 0 {
		signal(s.writable)
	}
	return false
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// rest gives a socket that was read empty back to the loop. It reports false if that
// must not be: there may be more to read, or the server stops.
func (s *socket) rest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.readable:
		s.drained = false
	default:
	}
	s.rests = s.drained && !s.hungUp && !s.interrupted
	return s.rests
}

// interrupt ends the wait for a next request. A connection that rests gets a
// goroutine, which ends it.
func (s *socket) interrupt() {
	s.mu.Lock()
	rested := s.rests
	s.rests, s.interrupted = false, true
	s.mu.Unlock()
	if rested {
		go s.conn.resume()
		return
	}
	_ = s.SetReadDeadline(time.Unix(1, 0))
}

// errWouldBlock means that a socket has nothing to read now.
var errWouldBlock = errors.New("there is nothing to read yet")

// tryRead is Read without waiting: it fails with errWouldBlock.
func (s *socket) tryRead(b []byte) (int, error) {
	if s.failed != nil {
		return 0, s.failed
	}
	for {
		n, err := unix.Read(s.fd, b)
		switch {
		case err == nil && n > 0:
			s.drained = n < len(b)
			return n, nil
		case errors.Is(err, unix.EAGAIN):
			s.drained = true
			return 0, errWouldBlock
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil:
			s.failed = io.EOF
		default:
			s.failed = os.NewSyscallError("read", err)
		}
		return 0, s.failed
	}
}

// tryWrite writes what the network takes without waiting.
func (s *socket) tryWrite(b []byte) (written int, err error) {
	for written < len(b) {
		n, err := unix.Write(s.fd, b[written:])
		switch {
		case err == nil:
			written += n
		case errors.Is(err, unix.EAGAIN):
			return written, nil
		case !errors.Is(err, unix.EINTR):
			return written, os.NewSyscallError("write", err)
		}
	}
	return written, nil
}

func (s *socket) Read(b []byte) (int, error) {
	for {
		if _, err := s.left(&s.readBy); err != nil {
			return 0, err
		}
		n, err := s.tryRead(b)
		if !errors.Is(err, errWouldBlock) {
			return n, err
		}
		if err := s.wait(s.readable, &s.readBy); err != nil {
			return 0, err
		}
	}
}

func (s *socket) Write(b []byte) (written int, err error) {
	for {
		if _, err := s.left(&s.writeBy); err != nil {
			return written, err
		}
		n, err := s.tryWrite(b[written:])
		if written += n; err != nil || written == len(b) {
			return written, err
		}
		if err := s.wait(s.writable, &s.writeBy); err != nil {
			return written, err
		}
	}
}

// wait waits for a signal, at most until a deadline. A change of the deadline is a
// signal too.
func (s *socket) wait(ready <-chan struct{}, by *time.Time) error {
	left, err := s.left(by)
	if err != nil {
		return err
	}
	if left == 0 {
		<-ready
		return nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ready:
	case <-timer.C:
	}
	return nil
}

// left returns the time until a deadline, 0 for no end, or why nothing may be waited for.
func (s *socket) left(by *time.Time) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return 0, net.ErrClosed
	case by.IsZero():
		return 0, nil
	}
	if left := by.Sub(clock.Deadline(0)); left > 0 {
		return left, nil
	}
	return 0, os.ErrDeadlineExceeded
}

func (s *socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readBy = t
	signal(s.readable)
	return nil
}

func (s *socket) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeBy = t
	signal(s.writable)
	return nil
}

func (s *socket) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// Close ends the connection, and what waits for it. It may be called at any time;
// whoever has the connection then releases it.
func (s *socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // which is an event
	}
	signal(s.readable)
	signal(s.writable)
	return nil
}

// release gives the descriptor and the connection's place back. It comes last.
func (s *socket) release() {
	_ = s.Close()
	s.loop.remove(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	_ = unix.Close(s.fd)
	_ = s.place.Close()
}

// control calls f with the descriptor, unless that is released. It reports whether it did.
func (s *socket) control(f func(fd uintptr)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released {
		return false
	}
	f(uintptr(s.fd))
	return true
}

func (s *socket) LocalAddr() net.Addr { return s.local }

func (s *socket) RemoteAddr() net.Addr { return s.peer }

// hungUp reports whether the peer has closed its connection, whatever has come before that.
func hungUp(fd int) bool {
	look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(look, 0)
	return err == nil && n > 0
}
