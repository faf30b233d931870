package fakeetcd

import (
	"context"
	"fmt"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// noJitter is a fraction that is too small to change a pause; 0 stands for
// etcd's default.
const noJitter = 1e-300

// Client returns a client over the link: the real clientv3, which has no
// connection, as the innermost interceptors hand its calls to the link.
func (l *Link) Client() (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:             []string{l.name},
		Logger:                zap.NewNop(),
		BackoffJitterFraction: noJitter,
		DialOptions:           []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.unary), grpc.WithChainStreamInterceptor(l.stream)},
	})
	if err != nil {
		return nil, fmt.Errorf("a client of the fake etcd for %s: %w", l.name, err)
	}
	client.Watcher = newWatcher(client)
	return client, nil
}

// unary is a grpc.UnaryClientInterceptor that ends at the server.
func (l *Link) unary(ctx context.Context, _ string, r, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	answer, err := l.call(ctx, r.(proto.Message), waits(opts))
	if err != nil {
		return err
	}
	to := reply.(proto.Message).ProtoReflect()
	answer.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.Set(field, v)
		return true
	})
	return nil
}

// waits reports whether a call waits for a connection if there is none.
func waits(opts []grpc.CallOption) (wait bool) {
	for _, o := range opts {
		if f, ok := o.(grpc.FailFastCallOption); ok {
			wait = !f.FailFast
		}
	}
	return wait
}

// stream is a grpc.StreamClientInterceptor that ends at the server.
func (l *Link) stream(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	connection, err := l.connected(ctx, waits(opts))
	if err != nil {
		return nil, err
	}
	base := stream{ctx: ctx, link: l, connection: connection}
	switch method {
	case pb.Watch_Watch_FullMethodName:
		return newWatchStream(base), nil
	case pb.Lease_LeaseKeepAlive_FullMethodName:
		return &keepAliveStream{stream: base, requests: make(chan *pb.LeaseKeepAliveRequest, keepAlivesUnderWay)}, nil
	}
	return nil, notOffered(method)
}

// A stream is what all client's ends of streams have in common.
type stream struct {
	ctx        context.Context //nolint:containedctx // the stream's, as in gRPC
	link       *Link
	connection int
}

func (s stream) Header() (metadata.MD, error) { return metadata.MD{}, nil }
func (s stream) Trailer() metadata.MD         { return metadata.MD{} }
func (s stream) Context() context.Context     { return s.ctx }

// A keepAliveStream asks for leases to begin anew, one after another.
type keepAliveStream struct {
	stream
	requests chan *pb.LeaseKeepAliveRequest // closed by the client when it sends no more
}

// keepAlivesUnderWay bounds the requests without an answer on one stream.
const keepAlivesUnderWay = 16

// SendMsg sends a request.
func (s *keepAliveStream) SendMsg(m any) error {
	select {
	case s.requests <- m.(*pb.LeaseKeepAliveRequest):
		return nil
	case <-s.ctx.Done():
		return left(s.ctx)
	}
}

// CloseSend says that no requests follow.
func (s *keepAliveStream) CloseSend() error {
	close(s.requests)
	return nil
}

// RecvMsg returns the answer to the next request.
func (s *keepAliveStream) RecvMsg(m any) error {
	for {
		state, changed := s.link.look()
		if state.connection != s.connection {
			return errUnavailable
		}
		select {
		case r, more := <-s.requests:
			if !more {
				return io.EOF
			}
			answer, err := s.link.callOver(s.ctx, s.connection, r)
			if err != nil {
				return err
			}
			resp, to := answer.(*pb.LeaseKeepAliveResponse), m.(*pb.LeaseKeepAliveResponse)
			to.Header, to.ID, to.TTL = resp.Header, resp.ID, resp.TTL
			return nil
		case <-changed:
		case <-s.ctx.Done():
			return left(s.ctx)
		}
	}
}
