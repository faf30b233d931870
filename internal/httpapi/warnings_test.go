package httpapi

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/internal/security/certs"
)

// Anybody can fail to speak TLS without end. The log has few lines of that, and still those of
// other troubles.
func TestFailedHandshakesLeaveRoomInTheLog(t *testing.T) {
	authority, err := certs.Open(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	files, err := authority.Issue("node", certs.Subject{Name: "node", Hosts: []string{"127.0.0.1"}, Until: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	source, err := certs.Load(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s := NewServer(http.NotFoundHandler(), 32, source.Server(0), zerolog.New(&log).Level(zerolog.WarnLevel))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	for range 3 * maxWarnings {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "\x00\x01\x02\x03\x04\x05\x06\x07")
		_, _ = io.Copy(io.Discard, c) // until the server ends the connection, which it has logged then
		c.Close()
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	_, _ = s.http.ErrorLog.Writer().Write([]byte("http: panic serving 127.0.0.1:1: it"))
	handshakes, lines := strings.Count(log.String(), "TLS handshake error"), strings.Count(log.String(), "\n")
	if handshakes != maxWarnings || lines != maxWarnings+1 || !strings.Contains(log.String(), "panic serving") {
		t.Errorf("got %d lines, %d of handshakes; want %d of those and that of a panic:\n%s", lines, handshakes, maxWarnings, log.String())
	}
}
