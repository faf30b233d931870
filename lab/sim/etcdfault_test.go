package sim

import "google.golang.org/protobuf/proto"

// A Call is a request that has reached the server: that of a unary call, or one
// message of a stream.
type Call struct {
	Client  string        // name of the link that it came over
	Request proto.Message // of etcdserverpb; not to be changed
}

// A Verdict says what becomes of a call.
type Verdict int

// The verdicts. One on a message of a stream is about the stream's next answer,
// and an error ends the stream.
const (
	Serve  Verdict = iota // as it should be
	Refuse                // it is not applied, and the client gets Unavailable
	Break                 // it is applied, and the client gets Unavailable
	Drop                  // it is not applied, and no answer ever comes
	Lose                  // it is applied, and no answer ever comes
)

// Fault lets f decide what becomes of each call from now on; nil ends that. f
// must not block, and may be called from several goroutines at once.
func (s *Server) Fault(f func(Call) Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

func (s *Server) verdict(client string, r proto.Message) Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == nil {
		return Serve
	}
	return s.fault(Call{client, r})
}
