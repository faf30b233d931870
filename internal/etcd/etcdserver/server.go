package etcdserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// closeTimeout bounds Close. What etcd waits for itself is bounded by 5 s and
// two election timeouts, and happens only when a disk hangs.
const closeTimeout = 15 * time.Second

// A Server is one running etcd.
type Server struct {
	Settings // with defaults and the real port
	etcd     *embed.Etcd
	unlock   func() error
	muted    atomic.Bool // drops etcd's log entries; set while it is closed
	direct   *directCalls
	stale    chan string // yields once what raft found if the data are an old copy
	hangs    atomic.Bool // set then: raft has ended, and the server would wait for it

	// registered yields etcd's gRPC server when the member is ready and about
	// to accept clients.
	registered chan *grpc.Server
	clients    *front
	peers      *peerPort // nil for a lone server
	socketDir  *os.File  // leads to the directory of the socket, if its path is long; else nil
	tempDir    string    // has the socket, and is to be removed; empty for none

	closing   chan struct{}
	closeOnce func() error
	errc      chan error
	watching  sync.WaitGroup
}

// Start runs an etcd and returns when it serves. It works on a new data directory
// and on one left behind by any end of an earlier process.
//
// The error says what to do if the directory is in use (ErrLocked), not
// writable, damaged or that of a member of a cluster, or if the port is taken
// (syscall.EADDRINUSE). ctx bounds the start only.
func Start(ctx context.Context, settings Settings) (*Server, error) {
	s, err := Launch(settings)
	if err != nil {
		return nil, err
	}
	if err := s.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Launch is Start without the wait: the server listens, but may not serve
// yet. Follow it by WaitReady.
func Launch(settings Settings) (*Server, error) {
	settings.ClientAddr = cmp.Or(settings.ClientAddr, "127.0.0.1:0")
	if err := settings.validate(); err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	unlock, err := lockDir(settings.DataDir)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	s := &Server{
		Settings:   settings,
		unlock:     unlock,
		direct:     newDirectCalls(),
		registered: make(chan *grpc.Server, 1),
		closing:    make(chan struct{}),
		stale:      make(chan string, 1),
		errc:       make(chan error, 1),
	}
	s.closeOnce = sync.OnceValue(s.close)
	err = s.checkAddress()
	if err == nil {
		err = s.listen()
	}
	if err == nil {
		err = s.startEtcd()
	}
	if err != nil {
		s.closeFronts()
		return nil, errors.Join(fmt.Errorf("embedded etcd: %w", err), unlock())
	}
	s.watching.Go(s.watch)
	s.serveFronts()
	if err := s.checkMembers(s.etcd.Server.Cluster().Members()); err != nil {
		return nil, errors.Join(fmt.Errorf("embedded etcd: %w", err), s.Close())
	}
	return s, nil
}

func (s *Server) startEtcd() (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fatalError(s.DataDir, cause)
		}
	}()
	c := s.embedConfig()
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapLogger(s.Logger, &s.muted, s.isStale))
	c.ServiceRegister = func(g *grpc.Server) { s.registered <- g }
	s.etcd, err = embed.StartEtcd(c)
	return err
}

// WaitReady returns when the server serves.
func (s *Server) WaitReady(ctx context.Context) error {
	select {
	case g := <-s.registered:
		s.registered <- g // for Close
		return nil
	case err, ok := <-s.errc:
		if !ok {
			return fmt.Errorf("embedded etcd in %s was closed before it was ready", s.DataDir)
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("embedded etcd in %s is not ready, it has no leader: %w", s.DataDir, context.Cause(ctx))
	}
}

// Endpoints returns the addresses for clients, as host:port, or as a URL with TLS.
func (s *Server) Endpoints() []string {
	u := s.etcd.Config().AdvertiseClientUrls[0]
	if s.TLS.Cert != "" {
		return []string{u.String()}
	}
	return []string{u.Host}
}

// HasLeader reports whether the server knows who leads, without which it answers hardly
// anything.
func (s *Server) HasLeader() bool { return s.etcd.Server.Leader() != 0 }

// Embedded returns the etcd itself, for the laboratory and tests, which look
// inside or make it fail.
func (s *Server) Embedded() *embed.Etcd { return s.etcd }

// Err yields one error if the server stops serving without having been told
// to, and is closed when it has ended.
func (s *Server) Err() <-chan error { return s.errc }

func (s *Server) watch() {
	defer close(s.errc)
	var err error
	select {
	case <-s.closing:
		return
	case err = <-s.etcd.Err():
	case <-s.etcd.Server.StopNotify():
	case found := <-s.stale:
		s.errc <- fmt.Errorf("embedded etcd in %s no longer serves: its data are older than those that the other members know it to have had, as of a copy "+
			"that was restored (%s): move this directory away, start the node with --join alone, and masterctl member replace --yes %s", s.DataDir, found, s.Member.Name)
		return
	}
	if err == nil {
		err = errors.New("it stopped by itself")
	}
	if s.Member.Name != "" {
		err = fmt.Errorf("%w; if it was taken from its cluster (masterctl member), move this directory away, and start it again with --join alone", err)
	}
	s.errc <- fmt.Errorf("embedded etcd in %s no longer serves: %w", s.DataDir, err)
}

// isStale is called by raft once it has found that the data are an old copy.
func (s *Server) isStale(found string) {
	s.hangs.Store(true)
	select {
	case s.stale <- found:
	default:
	}
}

// Close stops the server, drops its clients and unlocks the data directory.
// It returns within 15 s, with an error if etcd has not stopped by then. If the data are an
// old copy, etcd cannot be stopped: the process is to end. It may be called more than once.
func (s *Server) Close() error { return s.closeOnce() }

func (s *Server) close() error {
	s.muted.Store(true) // etcd reports each listener that is closed as an error
	close(s.closing)
	s.watching.Wait()
	if s.hangs.Load() {
		s.closeFronts()
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.direct.close()
		s.clients.close()
		s.freeSocket()
		select {
		case g := <-s.registered:
			// Not gracefully: etcd would wait up to 5 s and more for its
			// clients to end their watches and lease streams.
			g.Stop()
		default:
			// Close would wait for the client server, which waits for the
			// member to be ready or stopping.
			s.etcd.Server.Stop()
		}
		s.etcd.Close()
		s.closeFronts() // that of members only now: over it a leader makes another one the leader
	}()
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	select {
	case <-done:
		return s.unlock()
	case <-timeout.C:
		return fmt.Errorf("embedded etcd in %s has not stopped within %v; its directory stays locked until the process ends", s.DataDir, closeTimeout)
	}
}
