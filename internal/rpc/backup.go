package rpc

import (
	"bytes"

	"google.golang.org/grpc"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

func (s *adminService) Backup(_ *pb.BackupRequest, stream grpc.ServerStreamingServer[pb.BackupResponse]) error {
	giveBack, err := s.copying.take(stream.Context())
	if err != nil {
		return err
	}
	defer giveBack()
	header := s.here()
	return s.Node.Backup(stream.Context(), sendWriter(func(data []byte) error {
		return stream.Send(&pb.BackupResponse{Header: header, Data: data})
	}))
}

// A sendWriter sends what is written to it, in chunks.
type sendWriter func(data []byte) error

func (send sendWriter) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), pb.MaxSnapshotChunkBytes)
		if err := send(bytes.Clone(rest[:n])); err != nil { // gRPC may hold on to what it was given
			return len(b) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(b), nil
}

func (s *adminService) Refound(stream grpc.ClientStreamingServer[pb.RefoundRequest, pb.RefoundResponse]) error {
	giveBack, err := s.refounding.take(stream.Context())
	if err != nil {
		return err
	}
	defer giveBack()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	var file *Upload
	if first.GetFromFile() {
		giveBack, err := s.uploading.take(stream.Context())
		if err != nil {
			return err
		}
		defer giveBack()
		file = &Upload{Reader: &receiveReader{stream: stream, open: s.open}, Bytes: first.GetFileBytes(), Head: first.GetFileHead()}
	}
	term, seq, err := s.Node.Refound(stream.Context(), first.GetGiveUp(), file)
	if err != nil {
		return err
	}
	return stream.SendAndClose(&pb.RefoundResponse{Header: s.header(term), Sequence: uint64(seq)})
}

// A receiveReader reads the file that a caller sends.
type receiveReader struct {
	stream grpc.ClientStreamingServer[pb.RefoundRequest, pb.RefoundResponse]
	open   *openConns
	rest   []byte
}

func (r *receiveReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		next, err := r.stream.Recv()
		if err != nil { // io.EOF at the end
			return 0, err
		}
		r.rest = next.GetData()
		r.open.handled(r.stream.Context(), len(r.rest))
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
