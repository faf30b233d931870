package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log" //nolint:depguard // http.Server takes no other kind of logger
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// Bounds of what clients can take up.
const (
	maxHeaderBytes    = 256 << 10 // a key of 64 KiB, percent-encoded
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 5 * time.Second  // of a whole request
	writeTimeout      = 30 * time.Second // of a whole answer, but for those that go by pages
	scrapeTimeout     = 10 * time.Second // of the answer to a scrape
	vitalTimeout      = 2 * time.Second  // of the answer to a question about health
	idleTimeout       = time.Minute
)

// A Server answers HTTP requests.
type Server struct {
	http *http.Server
}

// NewServer returns a server of a handler; it answers once Serve is called, over TLS if that
// is configured. The server holds so many connections, at most half of them from one host; a
// further one replaces the one that has been without a request the longest. An eighth is kept
// for health checks: when the others have a request under way, other requests get 503.
func NewServer(h http.Handler, connections int, secrecy *tls.Config, logger zerolog.Logger) *Server {
	r := newRoom(connections)
	return &Server{&http.Server{
		Handler:           r.admit(h),
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
