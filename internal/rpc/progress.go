package rpc

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
)

// Reasons why a stream ends: its peer does not keep up.
var (
	errStalled = errs.New(errs.Unavailable, "", "nothing of this stream was read for too long; read it as it comes, or ask again")
	errSilent  = errs.New(errs.Unavailable, "", "nothing came on this stream for too long; send what it lacks at once, or ask again")
	errSlow    = errs.New(errs.Unavailable, "", "this stream went too slowly for too long, and others wait for its place; ask again over a faster network")
)

// thinkLimits is how many times Limits.Send a peer may think that asks one thing after the other.
const thinkLimits = 15

// A readStream is a stream whose messages must be read, or come, within a limit: an idle
// peer must not keep what the stream holds, such as a place for a snapshot.
type readStream struct {
	grpc.ServerStream
	limit   time.Duration
	asks    bool  // its peer may think before it sends a next message
	follows bool  // it has no end, so what went fast long ago makes up for no more than limit
	least   int64 // bytes that must go in a second of waiting for the peer, on average; 0 for any number
	clock   clock.Clock
	stalled chan error // gets why the stream ends

	mu     sync.Mutex // guards all below
	bytes  int64      // of messages that have gone
	waited time.Duration
}

// SendMsg waits until the network takes a message.
func (s *readStream) SendMsg(m any) error {
	return s.wait(m, s.limit, errStalled, s.ServerStream.SendMsg)
}

// RecvMsg waits until a message is there.
func (s *readStream) RecvMsg(m any) error {
	limit := s.limit
	if s.asks {
		limit *= thinkLimits
	}
	return s.wait(m, limit, errSilent, s.ServerStream.RecvMsg)
}

// wait lets a message go, and ends the stream if it takes too long.
func (s *readStream) wait(m any, limit time.Duration, why error, goes func(m any) error) error {
	if left, bound := s.left(); bound && left < limit {
		limit, why = left, errSlow
	}
	late := time.AfterFunc(limit, func() {
		select {
		case s.stalled <- why:
		default: // it ends already
		}
	})
	defer late.Stop()
	begun := s.clock()
	err := goes(m)
	s.note(m, s.clock()-begun)
	return err
}

// left returns for how long the stream may wait for its peer from now on, if that is bound.
func (s *readStream) left() (left time.Duration, bound bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.least == 0 {
		return 0, false
	}
	return s.limit + s.earned() - s.waited, true
}

// earned returns for how long the stream may wait for what has gone. It needs the lock.
func (s *readStream) earned() time.Duration {
	return time.Duration(float64(s.bytes) / float64(s.least) * float64(time.Second))
}

func (s *readStream) note(m any, took time.Duration) {
	message, ok := m.(proto.Message)
	if s.least == 0 || !ok {
		return
	}
	size := proto.Size(message)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += int64(size)
	s.waited += took
	if s.follows {
		s.waited = max(s.waited, s.earned()-s.limit)
	}
}

// cutStalled ends a stream when a message of it is not read, or does not come, within
// Limits.Send, or within thinkLimits times that from a peer that asks. It also ends a backup, a
// dump, a snapshot or an upload that is slower than Limits.Rate, and a stream of events that is
// read more slowly than Limits.EventRate while there are some.
func (s *Server) cutStalled(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	read := &readStream{
		ServerStream: stream, limit: s.Limits.Send, asks: info.IsClientStream && info.IsServerStream, clock: s.Clock, stalled: make(chan error, 1),
	}
	switch info.FullMethod {
	case pb.AdminService_Backup_FullMethodName, pb.AdminService_DumpRanges_FullMethodName, pb.AdminService_Refound_FullMethodName,
		pb.SnapshotService_StreamSnapshot_FullMethodName:
		read.least = s.Limits.Rate
	case pb.AdminService_Events_FullMethodName, pb.ObjectService_KvEvents_FullMethodName:
		read.least, read.follows = s.Limits.EventRate, true
	}
	done := make(chan error, 1)
	go func() { done <- handler(srv, read) }() // ends with the stream, which ends when this returns
	select {
	case err := <-done:
		return err
	case why := <-read.stalled:
		return why
	}
}
