package etcdserver

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log" //nolint:depguard // http.Server takes no other kind of logger
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/raft/v3"
)

const (
	// memberIdle is how long a member's connection may wait for its next request.
	memberIdle = 10 * time.Second
	// maxUnread is how much of a request may be left after its answer, as in net/http.
	maxUnread = 256 << 10
)

// A peerPort serves the other members in the place of etcd: with etcd's own handler, but for
// as many connections as it is given room for.
type peerPort struct {
	listener net.Listener
	server   *http.Server
	serving  sync.WaitGroup
}

func (s *Server) listenForMembers(said zerolog.Logger) (*peerPort, error) {
	l, err := listenAt(s.Member.PeerAddr, s.CountedMembers)
	if err != nil {
		return nil, err
	}
	return newPeerPort(l, s.TLS.forCallers(true), said), nil
}

func newPeerPort(l net.Listener, secrecy *tls.Config, said zerolog.Logger) *peerPort {
	l = patientListener{l, said}
	if secrecy != nil {
		l = tls.NewListener(l, secrecy)
	}
	return &peerPort{listener: l, server: &http.Server{
		ReadHeaderTimeout: handshakeTimeout, // that of TLS, too
		IdleTimeout:       memberIdle,
		ErrorLog:          log.New(warnings{said}, "", 0),
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}}
}

// serve lets connections through to a handler. There is no limit on how long a request takes, as
// a snapshot of the whole database is one, but on each wait for more of it.
func (p *peerPort) serve(h http.Handler) {
	p.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(connKey{}).(net.Conn)
		late := time.AfterFunc(rafthttp.ConnReadTimeout, func() { _ = c.Close() })
		late.Stop()
		r.Body = patientBody{r.Body, late}
		defer abortAtTheEnd()
		h.ServeHTTP(w, r)
		// What the handler has not read: the server would wait for it without a limit.
		if _, err := io.CopyN(io.Discard, r.Body, maxUnread); !errors.Is(err, io.EOF) && !errors.Is(err, http.ErrBodyReadAfterClose) {
			_ = http.NewResponseController(w).Flush()
			_ = c.Close()
		}
	})
	p.serving.Go(func() { _ = p.server.Serve(p.listener) })
}

// abortAtTheEnd turns the panic by which etcd ends a request once raft has stopped into one that
// net/http does not log.
func abortAtTheEnd() {
	cause := recover()
	if err, ok := cause.(error); ok && errors.Is(err, raft.ErrStopped) {
		cause = http.ErrAbortHandler
	}
	if cause != nil {
		panic(cause)
	}
}

// close ends the port and all its connections. It may be called more than once, and on none.
func (p *peerPort) close() {
	if p == nil {
		return
	}
	_ = p.server.Close()
	_ = p.listener.Close()
	p.serving.Wait()
}

// connKey is the key of a connection in the contexts of its requests.
type connKey struct{}

// A patientBody ends its connection when the other end sends nothing for ConnReadTimeout, as etcd
// does.
type patientBody struct {
	io.ReadCloser
	late *time.Timer
}

func (b patientBody) Read(p []byte) (int, error) {
	b.late.Reset(rafthttp.ConnReadTimeout)
	defer b.late.Stop()
	return b.ReadCloser.Read(p)
}

// A patientListener accepts patient connections until it is closed, whatever else fails.
type patientListener struct {
	net.Listener
	log zerolog.Logger
}

func (l patientListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err == nil {
			return patient(c), nil
		}
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		l.log.Warn().Err(err).Msg("etcd takes no connection of members for a moment")
		<-time.After(acceptPause)
	}
}

// warnings writes what an HTTP server says of connections to a log, but no stacks: etcd ends
// requests that it cannot process by a panic.
type warnings struct{ to zerolog.Logger }

func (w warnings) Write(b []byte) (int, error) {
	cause, _, _ := strings.Cut(string(b), "\n")
	w.to.Warn().Str("cause", cause).Msg("a connection of a member of etcd to this one failed")
	return len(b), nil
}
