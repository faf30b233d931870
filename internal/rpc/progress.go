package rpc

import (
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/errs"
)

// errStalled ends a stream that nobody reads.
var errStalled = errs.New(errs.Unavailable, "", "nothing of this stream was read for too long; read it as it comes, or ask again")

// A readStream is a stream whose messages must be read within a limit: what it holds,
// such as a place among those who get a snapshot, is for somebody who works.
type readStream struct {
	grpc.ServerStream
	limit   time.Duration
	stalled chan struct{}
	once    sync.Once
}

// SendMsg waits until the network takes a message.
func (s *readStream) SendMsg(m any) error {
	late := time.AfterFunc(s.limit, func() { s.once.Do(func() { close(s.stalled) }) })
	defer late.Stop()
	return s.ServerStream.SendMsg(m)
}

// cutStalled ends a stream when a message of it is not read within Limits.Send.
func (s *Server) cutStalled(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	read := &readStream{ServerStream: stream, limit: s.Limits.Send, stalled: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- handler(srv, read) }() // ends with the stream, which ends when this returns
	select {
	case err := <-done:
		return err
	case <-read.stalled:
		return errStalled
	}
}
