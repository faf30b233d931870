package rpcbench

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A thinker is the pause of a client between two calls. It waits on a kernel timer of
// its own (timerfd), which wakes the worker through epoll, as an answer would. It does
// not spin, since that would take CPU time from the master that real clients, on other
// machines, do not take. It does not use the runtime's timers, which round to a
// millisecond when nothing else runs. The wait is some microseconds longer than asked
// for, since the worker must be woken up; cells report its average length.
type thinker struct {
	fd   int // of file, which stays open
	file *os.File
	time time.Duration
}

func newThinker(d time.Duration) (*thinker, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("a timer for the time between two calls: %w", err)
	}
	return &thinker{fd, os.NewFile(uintptr(fd), "timer"), d}, nil
}

// pause waits once. Close ends it.
func (t *thinker) pause() error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(t.time.Nanoseconds())}
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		return fmt.Errorf("setting the timer: %w", err)
	}
	var expired [8]byte
	if _, err := t.file.Read(expired[:]); err != nil {
		return fmt.Errorf("waiting for the timer: %w", err)
	}
	return nil
}

func (t *thinker) Close() error { return t.file.Close() }
