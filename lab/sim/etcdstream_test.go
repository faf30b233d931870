package sim

import (
	"context"
	"io"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// stream is a grpc.StreamClientInterceptor that ends at the server.
func (l *Link) stream(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	connection, err := l.connected(ctx, waits(opts))
	if err != nil {
		return nil, err
	}
	s := &stream{ctx: ctx, link: l, connection: connection, watch: method == pb.Watch_Watch_FullMethodName}
	s.requests.pushed, s.answers.pushed = make(chan struct{}, 1), make(chan struct{}, 1)
	l.server.tasks.Go(func() {
		err := l.server.stream(method, &serverEnd{stream: s})
		if err == nil {
			err = io.EOF
		}
		s.answers.push(item{trip: trip{link: l, connection: connection, watch: s.watch}, err: err})
	})
	return &clientEnd{s}, nil
}

// A stream is one stream of calls over a connection.
type stream struct {
	ctx        context.Context //nolint:containedctx // the stream's, as in gRPC
	link       *Link
	connection int
	watch      bool
	requests   queue
	answers    queue
}

func (s *stream) Context() context.Context { return s.ctx }

// receive returns what arrives next of a queue.
func (s *stream) receive(q *queue) (proto.Message, error) {
	for {
		state, changed := s.link.look()
		switch {
		case s.ctx.Err() != nil:
			return nil, left(s.ctx)
		case state.connection != s.connection:
			return nil, errUnavailable
		}
		if first, ok := q.first(); ok {
			if err := first.wait(s.ctx); err != nil {
				return nil, err
			}
			q.pop()
			return first.message, first.err
		}
		select {
		case <-q.pushed:
		case <-changed:
		case <-s.ctx.Done():
		}
	}
}

type clientEnd struct{ *stream }

func (*clientEnd) Header() (metadata.MD, error) { return metadata.MD{}, nil }
func (*clientEnd) Trailer() metadata.MD         { return metadata.MD{} }

// SendMsg sends a request.
func (c *clientEnd) SendMsg(m any) error {
	request := proto.Clone(m.(proto.Message))
	c.requests.push(item{trip: c.link.request(c.connection, request), message: request})
	return nil
}

// CloseSend says that no requests follow.
func (c *clientEnd) CloseSend() error {
	c.requests.push(item{trip: trip{link: c.link, connection: c.connection}, err: io.EOF})
	return nil
}

// RecvMsg receives the next answer.
func (c *clientEnd) RecvMsg(m any) error {
	answer, err := c.receive(&c.answers)
	if err == nil {
		proto.Merge(m.(proto.Message), answer)
	}
	return err
}

// A serverEnd is a grpc.ServerStream.
type serverEnd struct {
	*stream

	mu   sync.Mutex // guards next
	next Verdict    // on the next answer
}

func (*serverEnd) SetHeader(metadata.MD) error  { return nil }
func (*serverEnd) SendHeader(metadata.MD) error { return nil }
func (*serverEnd) SetTrailer(metadata.MD)       {}

// RecvMsg receives the next request, unless a fault says otherwise.
func (s *serverEnd) RecvMsg(m any) error {
	for {
		request, err := s.receive(&s.requests)
		if err != nil {
			return err
		}
		switch verdict := s.link.server.verdict(s.link.name, request); verdict {
		case Drop:
		case Refuse:
			return errUnavailable
		case Serve, Break, Lose:
			s.mu.Lock()
			s.next = verdict
			s.mu.Unlock()
			proto.Merge(m.(proto.Message), request)
			return nil
		}
	}
}

// SendMsg sends an answer, unless a fault says otherwise.
func (s *serverEnd) SendMsg(m any) error {
	answer := m.(proto.Message)
	s.link.server.leases.observe(answer)
	s.mu.Lock()
	verdict := s.next
	s.next = Serve
	s.mu.Unlock()
	sent := item{trip: s.link.answer(s.connection, answer), message: answer}
	sent.watch = s.watch
	switch verdict {
	case Lose:
		return nil
	case Break:
		sent.err = errUnavailable
	case Serve, Refuse, Drop: // the latter two end with the request
	}
	s.answers.push(sent)
	return nil
}

// An item is a message under way, or the error that ends its direction of a
// stream.
type item struct {
	trip
	message proto.Message
	err     error
}

// A queue is one direction of a stream. What it holds arrives in order.
type queue struct {
	pushed chan struct{} // has a token when there may be something new

	mu    sync.Mutex // guards items
	items []item
}

func (q *queue) push(i item) {
	q.mu.Lock()
	q.items = append(q.items, i)
	q.mu.Unlock()
	select {
	case q.pushed <- struct{}{}:
	default:
	}
}

func (q *queue) first() (i item, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return item{}, false
	}
	return q.items[0], true
}

func (q *queue) pop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = q.items[1:]
}
