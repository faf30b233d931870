//go:build !linux

package coro

import (
	"errors"
	"net"
)

// There are no loops here: each connection has a goroutine.

func loopCount() int { return 0 }

type loop struct{}

func newLoop(func(error)) (*loop, error) { return nil, errors.ErrUnsupported }

func (*loop) size() int { return 0 }
func (*loop) stop()     {}

type socket struct {
	net.Conn
	drained bool
}

var errWouldBlock = errors.ErrUnsupported

func newSocket(*Conn, net.Conn, *loop) *socket { return nil }

func (*socket) tryRead([]byte) (int, error)       { return 0, errWouldBlock }
func (*socket) tryWrite([]byte) (int, error)      { return 0, errWouldBlock }
func (*socket) rest() bool                        { return false }
func (*socket) interrupt()                        {}
func (*socket) release()                          {}
func (*socket) control(func(fd uintptr)) (_ bool) { return false }
