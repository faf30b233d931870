package fakeetcd

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A Call is a request that has reached the server.
type Call struct {
	Client  string        // name of the link that it came over
	Request proto.Message // of etcdserverpb; not to be changed
}

// A Verdict says what becomes of a call.
type Verdict int

// The verdicts.
const (
	Serve  Verdict = iota // as it should be
	Refuse                // it is not applied, and the client is told Unavailable
	Break                 // it is applied, and the client is told Unavailable
	Lose                  // it is applied, and no answer ever comes
)

// Fault lets f decide what becomes of each call from now on; nil ends that. f
// must not block, and may be called from several goroutines at once.
func (s *Server) Fault(f func(Call) Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Hold tells the watches of a client nothing from now on, or ends that and tells
// them all: etcd makes no promise when a watch hears of a write that others
// read already.
func (s *Server) Hold(client string, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[client] = held
	s.signal()
}

// errUnavailable is what a client of etcd sees when its member goes.
var errUnavailable = status.Error(codes.Unavailable, "fakeetcd: unavailable")

// admit lets a call in, after its latency.
func (s *Server) admit(ctx context.Context, r proto.Message) error {
	if s.opts.Latency == nil {
		return nil
	}
	timer := time.NewTimer(s.opts.Latency(callOf(ctx, r)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func callOf(ctx context.Context, r proto.Message) Call { return Call{clientOf(ctx), r} }

// clientOf returns the name of the link that a call came over.
func clientOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// serve runs one call under the server's lock, unless a fault says otherwise.
func serve[R any](ctx context.Context, s *Server, r proto.Message, apply func() (R, error)) (resp R, err error) {
	if err := s.admit(ctx, r); err != nil {
		return resp, err
	}
	s.mu.Lock()
	verdict := Serve
	if s.fault != nil {
		verdict = s.fault(callOf(ctx, r))
	}
	// A client that has given the call up does not undo it: what reached etcd
	// counts.
	if s.down || verdict == Refuse {
		s.mu.Unlock()
		return resp, errUnavailable
	}
	resp, err = apply()
	s.mu.Unlock()
	switch verdict {
	case Break:
		return resp, errUnavailable
	case Lose:
		<-ctx.Done()
		return resp, ctx.Err()
	case Serve, Refuse: // Refuse was answered above
	}
	return resp, err
}
