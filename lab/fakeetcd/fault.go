package fakeetcd

import "google.golang.org/protobuf/proto"

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

// An answer is what the server says to a call.
type answer struct {
	message proto.Message
	err     error
	after   <-chan struct{} // it is given when this is closed; nil for at once
}

// serve lets a call take effect, unless a fault says otherwise. A client that
// has given it up does not undo it: what reached etcd counts.
func (s *Server) serve(client string, r proto.Message) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	verdict := Serve
	if s.fault != nil {
		verdict = s.fault(Call{client, r})
	}
	if s.down || verdict == Refuse {
		return answer{err: errUnavailable}
	}
	a := s.handle(r)
	switch verdict {
	case Break:
		a.err = errUnavailable
	case Lose:
		a.after = make(chan struct{})
	case Serve, Refuse: // Refuse was answered above
	}
	return a
}
