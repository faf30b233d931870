package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/zeebo/xxh3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

const (
	// maxSnapshotMessage is the largest message of a snapshot: a chunk with what
	// is around it.
	maxSnapshotMessage = pb.MaxSnapshotChunkBytes + 64<<10
	// maxPartBytes bounds a part: a shard of a hundred million objects has less.
	maxPartBytes = 1 << 30
	// maxParts bounds how many parts are taken from a sender.
	maxParts = 1 << 20
	// progressTimeout is the default bound of the wait for each message of a
	// snapshot: a sender that is silent for longer has gone, or stands still.
	progressTimeout = 10 * time.Second
)

// ErrSnapshotBroken says that what a node sent is no whole snapshot: it was
// cut, damaged, or is of another cluster.
var ErrSnapshotBroken = errors.New("the snapshot is broken")

// A SnapshotRequest says who asks for a snapshot.
type SnapshotRequest struct {
	ClusterID string
	NodeID    string
	Patience  time.Duration // the longest wait for each message; 0 for 10 s
}

// A SnapshotInfo says what snapshot was received.
type SnapshotInfo struct {
	NodeID   string // of the sender
	Term     metadata.Term
	Start    metadata.Seq // at which the first part stands
	Revision int64        // of etcd, at which Start was committed; 0 for none
	Head     string       // value of the journal's head there; empty from an older version
	End      metadata.Seq // at which the last part stands
	Parts    int
	Bytes    uint64
}

// FetchSnapshot receives a snapshot. add gets each part, in order; the slice is
// its own only until it returns.
//
// The caller must not rely on the parts before FetchSnapshot returns without an
// error: only then was the stream whole. It fails with ErrSnapshotBroken if the
// stream is not whole, or if nothing comes for r.Patience; with the sender's error
// as an *errs.Error (a *service.NotLeaderError beneath it says who serves); or with
// the error of add.
func FetchSnapshot(ctx context.Context, conn grpc.ClientConnInterface, r SnapshotRequest, add func(part []byte) error) (SnapshotInfo, error) {
	patience := cmp.Or(r.Patience, progressTimeout)
	ctx, cancel := context.WithCancel(ctx) // ends the stream when we leave early
	defer cancel()
	silence := time.AfterFunc(patience, cancel)
	defer silence.Stop()
	stream, err := pb.NewSnapshotServiceClient(conn).StreamSnapshot(ctx, &pb.StreamSnapshotRequest{
		ClusterId: r.ClusterID, NodeId: r.NodeID, Formats: []uint32{SnapshotFormat},
	}, grpc.MaxCallRecvMsgSize(maxSnapshotMessage))
	switch {
	case err != nil && !silence.Stop():
		return SnapshotInfo{}, broken("nothing has come for %v", patience)
	case err != nil:
		return SnapshotInfo{}, received(err)
	}
	in := snapshotReceiver{stream: stream, clusterID: r.ClusterID, add: add, silence: silence, patience: patience}
	err = in.run()
	return in.info, err
}

// received is the error that a stream ended with, instead of a message.
func received(err error) error {
	if errors.Is(err, io.EOF) {
		return broken("it ends in the middle")
	}
	e, from := rpcerr.Parse(err)
	if e.Kind == errs.NotLeader {
		e.Err = &service.NotLeaderError{Hint: service.Hint{Term: from.Term, RPC: from.Leader}}
	}
	return e
}

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSnapshotBroken, fmt.Sprintf(format, args...))
}

// A snapshotReceiver checks one snapshot as it comes in.
type snapshotReceiver struct {
	stream    grpc.ServerStreamingClient[pb.StreamSnapshotResponse]
	clusterID string
	add       func([]byte) error
	silence   *time.Timer // ends the stream
	patience  time.Duration
	header    *pb.ResponseHeader // of the first message
	info      SnapshotInfo
	sum       xxh3.Hasher
}

func (s *snapshotReceiver) run() error {
	m, err := s.next()
	if err != nil {
		return err
	}
	start := m.GetStart()
	switch {
	case start == nil:
		return broken("it does not begin with its start")
	case start.GetFormat() != SnapshotFormat:
		return errs.New(errs.InvalidVersion, "FetchSnapshot", "node %s sends format %d, this node reads %d; upgrade it", s.info.NodeID, start.GetFormat(), SnapshotFormat)
	case start.GetParts() == 0 || start.GetParts() > maxParts:
		return broken("it has %d parts", start.GetParts())
	}
	s.info.Start, s.info.Revision = metadata.Seq(start.GetStartSequence()), start.GetStartRevision()
	s.info.Head = string(start.GetStartHead())
	var part []byte
	for s.info.Parts < int(start.GetParts()) {
		if part, err = s.part(part[:0]); err != nil {
			return err
		}
		if err := s.add(part); err != nil {
			return fmt.Errorf("part %d of a snapshot: %w", s.info.Parts, err)
		}
		s.info.Parts++
	}
	return s.end()
}

// part receives the next part, in the memory of buf.
func (s *snapshotReceiver) part(buf []byte) ([]byte, error) {
	for {
		m, err := s.next()
		if err != nil {
			return nil, err
		}
		chunk := m.GetChunk()
		switch {
		case chunk == nil:
			return nil, broken("there is no chunk where one of part %d belongs", s.info.Parts)
		case chunk.GetPart() != uint32(s.info.Parts):
			return nil, broken("a chunk of part %d stands in part %d", chunk.GetPart(), s.info.Parts)
		case len(chunk.GetData()) > pb.MaxSnapshotChunkBytes:
			return nil, broken("a chunk has %d bytes", len(chunk.GetData()))
		case len(chunk.GetData()) == 0 && !chunk.GetLast():
			return nil, broken("a chunk of part %d is empty", s.info.Parts)
		case len(buf)+len(chunk.GetData()) > maxPartBytes:
			return nil, broken("part %d has more than %d bytes", s.info.Parts, maxPartBytes)
		}
		buf = append(buf, chunk.GetData()...)
		s.info.Bytes += uint64(len(chunk.GetData()))
		if _, err := s.sum.Write(chunk.GetData()); err != nil {
			return nil, fmt.Errorf("summing up a chunk: %w", err)
		}
		if chunk.GetLast() {
			return buf, nil
		}
	}
}

// end receives the end, and nothing behind it.
func (s *snapshotReceiver) end() error {
	m, err := s.next()
	if err != nil {
		return err
	}
	end := m.GetEnd()
	switch {
	case end == nil:
		return broken("there is no end behind its last part")
	case end.GetBytes() != s.info.Bytes:
		return broken("%d bytes have come, %d were sent", s.info.Bytes, end.GetBytes())
	case end.GetChecksum() != s.sum.Sum64():
		return broken("the checksum of its parts is wrong")
	case end.GetEndSequence() < uint64(s.info.Start):
		return broken("it ends at sequence %d and begins at %d", end.GetEndSequence(), s.info.Start)
	}
	s.info.End = metadata.Seq(end.GetEndSequence())
	switch _, err := s.receive(); {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return broken("something follows its end")
	default:
		return err
	}
}

// receive waits for a message, but not for long.
func (s *snapshotReceiver) receive() (*pb.StreamSnapshotResponse, error) {
	s.silence.Reset(s.patience)
	m, err := s.stream.Recv()
	inTime := s.silence.Stop() // what follows may take its time
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return m, err
	case !inTime:
		return nil, broken("nothing has come for %v", s.patience)
	default:
		return nil, received(err)
	}
}

// next receives a message, which must come from the sender of the first one,
// in the same term.
func (s *snapshotReceiver) next() (*pb.StreamSnapshotResponse, error) {
	m, err := s.receive()
	if errors.Is(err, io.EOF) {
		return nil, broken("it ends in the middle")
	}
	if err != nil {
		return nil, err
	}
	switch h := m.GetHeader(); {
	case h.GetClusterId() != s.clusterID:
		return nil, broken("node %q belongs to cluster %q, not to %q", h.GetNodeId(), h.GetClusterId(), s.clusterID)
	case h.GetTerm() == 0 || h.GetTerm() > metadata.MaxTerm:
		return nil, broken("it is of term %d", h.GetTerm())
	case s.header == nil:
		s.header = h
		s.info.NodeID, s.info.Term = h.GetNodeId(), metadata.Term(h.GetTerm())
	case !proto.Equal(h, s.header):
		return nil, broken("it began as %v and goes on as %v", s.header, h)
	}
	return m, nil
}
