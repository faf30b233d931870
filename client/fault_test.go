package client_test

import (
	"context"
	"net"
	"path"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// errLost is the error of gRPC for a lost answer, without an ErrorDetail.
var errLost = status.Error(codes.Unavailable, "error reading from server: EOF")

// errUnimplemented is the answer of any other gRPC server.
var errUnimplemented = status.Error(codes.Unimplemented, "unknown service")

// A front forwards calls to a node. It can lose or change the answers, after the node has
// executed the calls.
type front struct {
	address  string
	upstream *grpc.ClientConn

	mu     sync.Mutex
	answer func(method string, req, resp proto.Message, err error) (proto.Message, error)
	calls  map[string][]proto.Message // what was asked, by method
}

func newFront(t testing.TB, upstream string, options ...grpc.ServerOption) *front {
	t.Helper()
	conn, err := grpc.NewClient(upstream, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(pb.DefaultMaxMessageBytes)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{address: l.Addr().String(), upstream: conn, calls: make(map[string][]proto.Message)}
	s := grpc.NewServer(append(options, grpc.UnaryInterceptor(f.pass), grpc.MaxRecvMsgSize(pb.DefaultMaxMessageBytes))...)
	pb.RegisterObjectServiceServer(s, pb.UnimplementedObjectServiceServer{})
	pb.RegisterClientServiceServer(s, pb.UnimplementedClientServiceServer{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
		_ = conn.Close()
	})
	return f
}

func (f *front) pass(ctx context.Context, req any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
	service, method := path.Split(info.FullMethod)
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(path.Base(service)))
	if err != nil {
		return nil, err
	}
	output := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(method)).Output()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(output.FullName())
	if err != nil {
		return nil, err
	}
	resp := kind.New().Interface()
	err = f.upstream.Invoke(ctx, info.FullMethod, req, resp)
	f.mu.Lock()
	f.calls[method] = append(f.calls[method], req.(proto.Message))
	answer := f.answer
	f.mu.Unlock()
	if answer != nil {
		return answer(method, req.(proto.Message), resp, err)
	}
	return resp, err
}

// asked returns the requests of a method so far.
func (f *front) asked(method string) []proto.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// answering sets the function that decides which answer the client gets.
func (f *front) answering(answer func(method string, req, resp proto.Message, err error) (proto.Message, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// losing loses the next few answers to a method.
func (f *front) losing(method string, n int) {
	var mu sync.Mutex
	f.answering(func(m string, _, resp proto.Message, err error) (proto.Message, error) {
		mu.Lock()
		defer mu.Unlock()
		if m == method && n > 0 {
			n--
			return nil, errLost
		}
		return resp, err
	})
}

// A link forwards connections to an address. While it is frozen, they stay open and no byte
// passes.
type link struct {
	address string

	mu     sync.Mutex
	to     string // of new connections
	conns  map[net.Conn]struct{}
	frozen chan struct{} // nil unless it is frozen; closed by the thaw
	closed bool
	held   atomic.Int64 // bytes that have arrived since the freeze
}

func newLink(t testing.TB, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{address: listener.Addr().String(), to: to, conns: make(map[net.Conn]struct{})}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { l.carry(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		l.thaw()
		l.cut()
		running.Wait()
	})
	return l
}

func (l *link) carry(near net.Conn) {
	l.mu.Lock()
	to := l.to
	l.mu.Unlock()
	far, err := net.Dial("tcp", to)
	if err != nil {
		_ = near.Close()
		return
	}
	l.mu.Lock()
	if l.closed {
		_, _ = near.Close(), far.Close()
	}
	l.conns[near], l.conns[far] = struct{}{}, struct{}{}
	l.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.copy(far, near) })
	both.Go(func() { l.copy(near, far) })
	both.Wait()
	l.mu.Lock()
	delete(l.conns, near)
	delete(l.conns, far)
	l.mu.Unlock()
}

// copy goes on reading while the link is frozen, so that held counts
// what would have gone through.
func (l *link) copy(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	pieces := make(chan []byte, 64)
	var writing sync.WaitGroup
	defer writing.Wait()
	defer close(pieces)
	writing.Go(func() {
		for p := range pieces {
			if frozen := l.freezing(); frozen != nil {
				<-frozen
			}
			if _, err := to.Write(p); err != nil {
				_ = from.Close()
			}
		}
	})
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		if l.freezing() != nil {
			l.held.Add(int64(n))
		}
		if n > 0 {
			pieces <- buf[:n]
		}
		if err != nil {
			return
		}
	}
}

// turn leads new connections to another address.
func (l *link) turn(to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

// freezing returns a channel that closes when the link thaws; nil if it is not frozen.
func (l *link) freezing() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.frozen
}

func (l *link) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen == nil {
		l.frozen = make(chan struct{})
	}
}

func (l *link) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen != nil {
		close(l.frozen)
		l.frozen = nil
	}
}

// cut ends all connections.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}
