package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log" //nolint:depguard // http.Server takes no other kind of logger
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/net/netutil"
)

// Bounds of what clients can take up.
const (
	maxConnections    = 512       // further ones wait to be accepted
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

// NewServer returns a server of a handler; it answers once Serve is called.
func NewServer(h http.Handler, logger zerolog.Logger) *Server {
	return &Server{&http.Server{
		Handler:           h,
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
	err := s.http.Serve(netutil.LimitListener(l, maxConnections))
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
