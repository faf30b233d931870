package httpapi

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log" //nolint:depguard // http.Server takes no other kind of logger
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Bounds of what clients can take up.
const (
	maxHeaderBytes    = 256 << 10 // a key of 64 KiB, percent-encoded
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second // of a whole answer, but for those that go by pages
	idleTimeout       = time.Minute
)

// A Server answers HTTP requests.
type Server struct {
	http *http.Server
}

// NewServer returns a server of a handler that holds so many connections; it answers
// once Serve is called, over TLS if it is configured. One more takes the place of the one that has been without a
// request the longest.
func NewServer(h http.Handler, connections int, secrecy *tls.Config, logger zerolog.Logger) *Server {
	r := &room{places: connections, conns: make(map[net.Conn]*list.Element), waiting: list.New()}
	return &Server{&http.Server{
		Handler:           h,
		TLSConfig:         secrecy,
		ConnState:         r.changed,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(warnings{logger}, "", 0),
	}}
}

// warnings logs the messages of net/http.
type warnings struct{ log zerolog.Logger }

func (w warnings) Write(line []byte) (int, error) {
	w.log.Warn().Msg(strings.TrimSpace(string(line)))
	return len(line), nil
}

// Serve answers requests that come through a listener until Stop is called,
// and then returns nil. It closes the listener.
func (s *Server) Serve(l net.Listener) error {
	serve := s.http.Serve
	if s.http.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	err := serve(l)
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving HTTP at %v: %w", l.Addr(), err)
	}
	return nil
}

// Stop takes no more requests and waits for those under way. When the context
// ends first it cuts them off and returns its error.
func (s *Server) Stop(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
		return fmt.Errorf("stopping HTTP: requests were cut off: %w", err)
	}
	return nil
}

// A room has the connections of a server.
type room struct {
	places int

	mu      sync.Mutex
	conns   map[net.Conn]*list.Element // nil while a request is under way
	waiting *list.List                 // of net.Conn without a request; the first one waits the longest
}

// changed notes the state of a connection, and makes room for a new one.
func (r *room) changed(c net.Conn, state http.ConnState) {
	if oldest := r.note(c, state); oldest != nil {
		if t, ok := oldest.(*tls.Conn); ok {
			oldest = t.NetConn() // without waiting for the peer to take a farewell
		}
		_ = oldest.Close()
	}
}

// note returns the connection that is to go, or nil.
func (r *room) note(c net.Conn, state http.ConnState) (oldest net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.conns[c]; e != nil {
		r.waiting.Remove(e)
	}
	switch state {
	case http.StateNew, http.StateIdle:
		r.conns[c] = r.waiting.PushBack(c)
	case http.StateActive:
		r.conns[c] = nil
	case http.StateHijacked, http.StateClosed:
		delete(r.conns, c)
	}
	if len(r.conns) > r.places && r.waiting.Len() > 0 {
		oldest = r.waiting.Remove(r.waiting.Front()).(net.Conn)
		delete(r.conns, oldest)
	}
	return oldest
}
