package httpapi

import (
	"bytes"
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

	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/security/share"
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
	maxWarnings       = 10 // that are logged in a minute, of each kind
)

// A Server answers HTTP requests.
type Server struct {
	http *http.Server
	room *room
	log  zerolog.Logger
}

// NewServer returns a server of a handler; it answers once Serve is called, over TLS if that
// is configured. The server holds so many connections, at most half of them from one host; a
// further one replaces the one that has been without a request the longest. An eighth is kept
// for health checks: when the others have a request under way, other requests get 503.
func NewServer(h http.Handler, connections int, secrecy *tls.Config, logger zerolog.Logger) *Server {
	r := newRoom(connections)
	return &Server{room: r, log: logger, http: &http.Server{
		Handler:           r.admit(h),
		TLSConfig:         secrecy,
		ConnState:         r.changed,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(newWarnings(logger), "", 0),
	}}
}

// BoundIdentities has the server count connections for whose certificates are shown over them,
// too: one identity has at most half of them, however many its addresses. A further one is closed
// when its handshake has ended, and reported to refused. Call it before Serve.
func (s *Server) BoundIdentities(callers *access.Callers, refused func()) {
	s.room.identities = &identities{
		callers: callers, taken: share.NewBudget(s.room.rule), log: access.NewFewLines(s.log, maxWarnings), refused: refused,
	}
}

// warnings logs some of the messages of net/http. Anybody can cause failed handshakes without
// end, so these leave others, such as that of a panic, their lines.
type warnings struct{ handshakes, others *access.FewLines }

func newWarnings(to zerolog.Logger) warnings {
	return warnings{access.NewFewLines(to, maxWarnings), access.NewFewLines(to, maxWarnings)}
}

func (w warnings) Write(line []byte) (int, error) {
	to := w.others
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		to = w.handshakes
	}
	to.Warn().Msg(strings.TrimSpace(string(line)))
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
