package rpc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/metadata"
)

// FuzzAdmin sends any bytes as requests of operators, with their tokens of pages: each call
// succeeds or fails with a kind of error that is no defect.
func FuzzAdmin(f *testing.F) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName("understudy.v1.AdminService")
	if err != nil {
		f.Fatal(err)
	}
	var methods []protoreflect.MethodDescriptor
	all := d.(protoreflect.ServiceDescriptor).Methods()
	for i := range all.Len() {
		methods = append(methods, all.Get(i))
	}
	n := newNode(f).mount()
	n.put("a", "b", "c/d")
	n.admin.status = func() (*pb.StatusResponse, error) { return new(pb.StatusResponse), nil }
	n.admin.backup = [][]byte{[]byte("state")}
	n.admin.events = func(_ context.Context, from metadata.Seq, _ bool, yield func(*pb.EventsResponse, error) bool) {
		yield(&pb.EventsResponse{Text: fmt.Sprint(from)}, nil)
	}
	n.admin.digest = func(_ context.Context, seq metadata.Seq) (metadata.Seq, metadata.Digest, error) { return seq, 0, nil }
	for i := range methods {
		f.Add(uint8(i), []byte(nil))
		for _, m := range []proto.Message{
			&pb.ListKeysRequest{Regex: "^a", PageSize: 1, IncludeUnreadable: true, Leased: true}, &pb.QueryKeyRequest{Key: "a"}, &pb.DigestRequest{Sequence: 3},
			&pb.HandoverRequest{Term: 1, TargetNodeId: "n"}, &pb.ListSegmentsRequest{Name: "host-a"},
		} {
			b, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), b)
		}
	}
	if page, err := n.ops.ListKeys(f.Context(), &pb.ListKeysRequest{PageSize: 1}); err == nil {
		b, _ := proto.Marshal(&pb.ListKeysRequest{PageSize: 1, PageToken: page.GetNextPageToken()})
		for i := range methods {
			f.Add(uint8(i), b)
		}
	}
	f.Fuzz(func(t *testing.T, i uint8, payload []byte) {
		m := methods[int(i)%len(methods)]
		typ, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
		if err != nil {
			t.Fatal(err)
		}
		request := typ.New().Interface()
		if proto.Unmarshal(payload, request) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = invokeAny(ctx, n.conn, m, request)
		if code := status.Code(err); code == codes.Internal || code == codes.Unknown {
			t.Fatalf("%s of %v: got %v, want success or a kind of error that is no defect", m.Name(), request, err)
		}
	})
}

// invokeAny makes a call and reads its answer, or the first ten messages of it.
func invokeAny(ctx context.Context, conn *grpc.ClientConn, m protoreflect.MethodDescriptor, request proto.Message) error {
	name := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
	if !m.IsStreamingClient() && !m.IsStreamingServer() {
		return conn.Invoke(ctx, name, request, new(emptypb.Empty))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: m.IsStreamingClient(), ServerStreams: m.IsStreamingServer()}, name)
	if err != nil {
		return err
	}
	_ = stream.SendMsg(request)
	_ = stream.CloseSend()
	for range 10 {
		if err := stream.RecvMsg(new(emptypb.Empty)); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
	return nil
}

// A sender is a connection whose other end sends the messages of a snapshot.
type sender struct {
	grpc.ClientConnInterface
	grpc.ClientStream
	messages [][]byte
}

// NewStream returns the stream.
func (s *sender) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return s, nil
}

// SendMsg takes the request.
func (*sender) SendMsg(any) error { return nil }

// CloseSend ends the request.
func (*sender) CloseSend() error { return nil }

// RecvMsg returns the next message.
func (s *sender) RecvMsg(m any) error {
	if len(s.messages) == 0 {
		return io.EOF
	}
	b := s.messages[0]
	s.messages = s.messages[1:]
	if err := proto.Unmarshal(b, m.(proto.Message)); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// FuzzSnapshotMessages has a sender send any messages in the place of one of a snapshot's, and
// leave out, repeat or move it. The state is complete or refused, and what is complete is
// what was sent.
func FuzzSnapshotMessages(f *testing.F) {
	n := newNode(f).mount()
	n.put("a", "b", "c")
	var whole [][]byte
	stream, err := pb.NewSnapshotServiceClient(n.conn).StreamSnapshot(f.Context(), &pb.StreamSnapshotRequest{ClusterId: cluster, NodeId: "x", Formats: []uint32{rpc.SnapshotFormat}})
	for err == nil {
		var m *pb.StreamSnapshotResponse
		if m, err = stream.Recv(); err == nil {
			b, _ := proto.Marshal(m)
			whole = append(whole, b)
		}
	}
	if err != io.EOF || len(whole) < 3 {
		f.Fatalf("a snapshot: got %d messages and %v, want at least 3 and the end of the stream", len(whole), err)
	}
	want := n.store.Position()
	f.Add(uint16(0), whole[0], uint8(0))
	f.Add(uint16(1), whole[1], uint8(1))
	f.Add(uint16(len(whole)-1), whole[len(whole)-1], uint8(2))
	f.Add(uint16(2), binary.LittleEndian.AppendUint64(nil, xxh3.Hash(nil)), uint8(3))
	f.Fuzz(func(t *testing.T, at uint16, message []byte, how uint8) {
		i := int(at) % len(whole)
		messages := append([][]byte(nil), whole[:i]...)
		switch how % 4 {
		case 0:
			messages = append(append(messages, message), whole[i+1:]...)
		case 1:
			messages = append(append(messages, message), whole[i:]...)
		case 2:
			messages = append(messages, whole[i+1:]...)
		case 3:
			messages = append(append(messages, whole[len(whole)-1-i]), whole[i+1:]...)
		}
		l := metadata.NewLoader(metadata.Options{})
		_, err := rpc.FetchSnapshot(context.Background(), &sender{messages: messages}, rpc.SnapshotRequest{ClusterID: cluster, NodeID: "x"}, l.Add)
		if err != nil {
			return
		}
		s, err := l.Finish()
		if err != nil {
			return
		}
		if got := s.Position(); got.Digest != want.Digest || got.Seq != want.Seq {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}
