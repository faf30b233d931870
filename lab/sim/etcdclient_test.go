package sim

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
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
		return nil, fmt.Errorf("sim: etcd: a client for %s: %w", l.name, err)
	}
	client.Watcher = newWatcher(client)
	return client, nil
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

// unary is a grpc.UnaryClientInterceptor that ends at the server.
func (l *Link) unary(ctx context.Context, method string, r, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	connection, err := l.connected(ctx, waits(opts))
	if err != nil {
		return err
	}
	request := r.(proto.Message)
	trip := l.request(connection, request)
	if err := trip.wait(ctx); err != nil {
		if ctx.Err() != nil {
			// What is under way arrives, although its client has left.
			l.server.tasks.Go(func() {
				if trip.wait(context.Background()) == nil {
					_, _, _ = l.call(method, request)
				}
			})
		}
		return err
	}
	answer, answered, err := l.call(method, request)
	if !answered {
		return l.lost(ctx, connection)
	}
	if err := l.answer(connection, request).wait(ctx); err != nil {
		return err
	}
	if err == nil {
		proto.Merge(reply.(proto.Message), answer)
	}
	return err
}

// call lets the server answer a request that has arrived, unless a fault says
// otherwise.
func (l *Link) call(method string, request proto.Message) (answer proto.Message, answered bool, err error) {
	verdict := l.server.verdict(l.name, request)
	if verdict == Serve || verdict == Break || verdict == Lose {
		answer, err = l.server.unary(method, request)
	}
	if verdict == Refuse || verdict == Break {
		err = errUnavailable
	}
	return answer, verdict != Drop && verdict != Lose, err
}
