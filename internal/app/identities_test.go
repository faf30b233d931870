package app

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"golang.org/x/net/http2"

	"github.com/understudy-store/understudy/internal/httpapi"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/security/certs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/lab/waittest"
)

// A secureServer serves over TLS, and bounds connections by identity.
type secureServer interface {
	Serve(net.Listener) error
	Stop(context.Context) error
}

// An identityRig has callers with certificates, who come from many addresses.
type identityRig struct {
	t       *testing.T
	ours    *certs.Authority
	over    boundProtocol
	address string
	hosts   int           // that have been used
	ended   chan struct{} // yields once for each connection that the server has ended
}

// open opens connections of an identity, three from each address. It returns those that were
// answered.
func (r *identityRig) open(name, role string, n int) (open []net.Conn) {
	r.t.Helper()
	config := tlsOf(r.t, issue(r.t, r.ours, name, certs.Subject{Name: name, Role: role, ClientID: uuid.New()}))
	config.ServerName, config.NextProtos = "127.0.0.1", []string{r.over.name}
	for i := range n {
		if i%3 == 0 {
			r.hosts++
		}
		d := tls.Dialer{Config: config, NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("127.0.1.%d", r.hosts))}}}
		c, err := d.DialContext(r.t.Context(), "tcp", r.address)
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, r.over.say)
		in := bufio.NewReader(c)
		if r.over.answer(in) == nil {
			open = append(open, c)
		}
		go func() {
			if _, err := io.Copy(io.Discard, in); !errors.Is(err, net.ErrClosed) {
				r.ended <- struct{}{}
			}
		}()
	}
	return open
}

// end waits until the server has ended one more connection.
func (r *identityRig) end(otherwise string, args ...any) {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(20 * time.Second):
		r.t.Fatalf(otherwise, args...)
	}
}

// A boundProtocol is one over which connections are counted by identity.
type boundProtocol struct {
	name   string // of ALPN
	say    string
	answer func(*bufio.Reader) error
	serve  func(*connectionBudget, zerolog.Logger) secureServer
}

const halfOfConnections = 16

func boundProtocols(t *testing.T, ours *certs.Authority) []boundProtocol {
	source, err := certs.Load(nodeFiles(t, ours), nil)
	if err != nil {
		t.Fatal(err)
	}
	callers, err := access.New("", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	grpc := boundProtocol{name: "h2", say: http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"} // and settings, none
	grpc.answer = func(in *bufio.Reader) error {
		_, err := io.ReadFull(in, make([]byte, 9)) // the head of a frame
		return err
	}
	grpc.serve = func(b *connectionBudget, _ zerolog.Logger) secureServer {
		return rpc.NewServer(rpc.Config{Gate: service.NewGate(), Callers: callers, Admit: b.admitAs, Credentials: rpc.Credentials(source.Server(tls.VerifyClientCertIfGiven), false)})
	}
	web := boundProtocol{name: "http/1.1", say: "GET / HTTP/1.1\r\nHost: a\r\n\r\n"}
	web.answer = func(in *bufio.Reader) error {
		r, err := http.ReadResponse(in, nil)
		if err == nil {
			err = r.Body.Close()
		}
		return err
	}
	web.serve = func(b *connectionBudget, log zerolog.Logger) secureServer {
		s := httpapi.NewServer(http.NotFoundHandler(), 2*halfOfConnections, source.Server(tls.VerifyClientCertIfGiven), log)
		b.bound(s, callers)
		return s
	}
	return []boundProtocol{grpc, web}
}

// One identity gets half of the connections, from however many addresses it comes, and leaves the
// others to others; nodes have any number. Over both protocols.
func TestConnectionsOfOneIdentity(t *testing.T) {
	const half, tooMany, lines = halfOfConnections, 12, maxNamed / 2
	ours := newAuthority(t)
	for _, p := range boundProtocols(t, ours) {
		if t.Failed() {
			return
		}
		t.Run(p.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var log waittest.Buffer
			b := newConnectionBudget(64, 0.5, false, zerolog.New(&log))
			s := p.serve(b, zerolog.New(&log))
			served := make(chan error, 1)
			go func() { served <- s.Serve(b.listener(l)) }()
			stop := sync.OnceFunc(func() {
				now, cancel := context.WithCancel(context.Background())
				cancel()
				_ = s.Stop(now)
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
			t.Cleanup(stop)
			r := &identityRig{t, ours, p, l.Addr().String(), 0, make(chan struct{}, 4*half)}
			greedy := r.open("greedy", "client", half+tooMany)
			for i := range tooMany {
				r.end("of %d connections of one identity %d were closed, want %d", half+tooMany, i, tooMany)
			}
			if n := b.refused.ofIdentities.Load(); n != tooMany {
				t.Errorf("%d connections are counted as refused, want %d", n, tooMany)
			}
			if n := strings.Count(log.String(), `"identity":"greedy"`); n != lines {
				t.Errorf("the log has %d lines of them, want %d:\n%s", n, lines, log.String())
			}
			if n := len(r.open("modest", "client", 2)); n != 2 {
				t.Errorf("another identity got %d connections, want 2", n)
			}
			_ = greedy[0].Close()
			for len(r.open("greedy", "client", 1)) == 0 { // until the server has seen that there is room
				r.end("a connection that was not answered is open")
			}
			if n := len(r.open("node", "node", half/2)); n != half/2 {
				t.Errorf("a node got %d connections, want %d", n, half/2)
			}
			stop()
			if !b.identities.Empty() {
				t.Error("all connections have ended: got some of an identity counted, want none")
			}
		})
	}
}
