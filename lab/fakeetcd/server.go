package fakeetcd

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/understudy-store/understudy/internal/clock"
)

// Options are the settings of a Server. The zero value is an etcd as it comes.
type Options struct {
	// MinLeaseTTL is what shorter TTLs are silently raised to. Default 2 s, as
	// with etcd's own ticks.
	MinLeaseTTL time.Duration
	// QuotaBytes caps the history; past it etcd raises NOSPACE. Default 2 GiB.
	QuotaBytes int64
	// ProgressEvery is how often an idle watch that asked for it is told the
	// revision. Default 10 min, as in etcd.
	ProgressEvery time.Duration
	// Latency is how long a message of a client is under way: a request, then
	// the answer to that request, or the answer to a watch; nil for no time at
	// all. With a distinct one for each, no two arrive at one instant of virtual
	// time, and their order does not depend on the scheduler.
	Latency func(client string, message proto.Message) time.Duration
}

// A Server is an etcd of one member. Its methods may be called from any
// goroutine.
type Server struct {
	opts  Options
	clock clock.Clock
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu        sync.Mutex // guards all below; never held while something is waited for
	store     store
	leases    map[int64]*lease
	lastLease int64
	size      int64           // of the database, with what is free in it
	full      bool            // NOSPACE is raised
	down      bool            // no call is served
	held      map[string]bool // clients whose watches are told nothing
	fault     func(Call) Verdict
	links     []*Link
	changed   chan struct{} // closed and replaced at each write
}

// New starts a server. Close must be called in the same synctest bubble.
func New(opts Options) *Server {
	if opts.MinLeaseTTL == 0 {
		opts.MinLeaseTTL = 2 * time.Second
	}
	if opts.QuotaBytes == 0 {
		opts.QuotaBytes = 2 << 30
	}
	if opts.ProgressEvery == 0 {
		opts.ProgressEvery = 10 * time.Minute
	}
	forgetNever()
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		opts: opts, clock: clock.Runtime(), stop: stop,
		store: store{revision: 1}, leases: make(map[int64]*lease), held: make(map[string]bool), changed: make(chan struct{}),
	}
	s.tasks.Go(func() { s.expire(ctx) })
	return s
}

// Close ends the server and all connections to it. Clients must be closed
// before, or be done.
func (s *Server) Close() {
	s.stop()
	s.mu.Lock()
	links := s.links
	s.mu.Unlock()
	for _, l := range links {
		l.Cut()
	}
	s.tasks.Wait()
}

// Revision returns the revision of the last write.
func (s *Server) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.revision
}

// Compact forgets all history up to the last write.
func (s *Server) Compact() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.compact(s.store.revision)
}

// Down stops the etcd: connections break and new ones are refused. Its data
// stays. Up ends it.
func (s *Server) Down() {
	s.mu.Lock()
	s.down = true
	links := s.links
	s.mu.Unlock()
	for _, l := range links {
		l.serverDown(true)
	}
}

// Up ends Down. Every lease has its full TTL again, as after a restart of etcd.
func (s *Server) Up() {
	s.mu.Lock()
	s.down = false
	s.extendAll()
	links := s.links
	s.mu.Unlock()
	for _, l := range links {
		l.serverDown(false)
	}
}

// header needs mu.
func (s *Server) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 1, MemberId: 1, RaftTerm: 1, Revision: s.store.revision}
}

// signal wakes the watches. Needs mu.
func (s *Server) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// changes returns a channel that is closed at the next write.
func (s *Server) changes() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}
