package etcdserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

const (
	// handshakeTimeout bounds the handshake of TLS, as in etcd.
	handshakeTimeout = 10 * time.Second
	// writeTimeout ends a connection whose other end takes nothing any more.
	writeTimeout = 10 * time.Second
	// acceptPause is how long a front waits when the process may open no more files.
	acceptPause = 50 * time.Millisecond
	// copyBytes are copied at a time, and held for each direction of a connection.
	copyBytes = 16 << 10
)

// A front takes connections in the place of etcd, which listens at a socket that only this
// user reaches, and carries what both ends say. etcd itself would take any number of
// connections, and ends when it may open no more files.
type front struct {
	listener net.Listener
	socket   string
	secrecy  TLS
	usable   atomic.Pointer[tls.Config] // of the files when they could be used last; nil for plain text
	ofMember bool                       // callers must come from an address that their certificate has
	log      zerolog.Logger

	ctx     context.Context
	end     context.CancelFunc
	carries sync.WaitGroup
}

// listen opens the ports of clients and of the other members, and chooses the sockets behind
// them.
func (s *Server) listen() error {
	dir, err := s.socketDir()
	if err != nil {
		return err
	}
	if s.clients, err = s.open(s.ClientAddr, filepath.Join(dir, clientSocket), false); err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(s.clients.listener.Addr().String())
	host, _, _ := net.SplitHostPort(s.ClientAddr)
	s.ClientAddr = net.JoinHostPort(host, port)
	if s.Member.Name != "" {
		s.peers, err = s.open(s.Member.PeerAddr, filepath.Join(dir, peerSocket), true)
	}
	return err
}

// open opens a port.
func (s *Server) open(address, socket string, ofMember bool) (*front, error) {
	f := &front{socket: socket, secrecy: s.TLS, ofMember: ofMember, log: s.Logger}
	if s.TLS.Cert != "" {
		c, err := s.TLS.forServer()
		if err != nil {
			return nil, err
		}
		f.usable.Store(c)
	}
	var err error
	if f.listener, err = net.Listen("tcp", address); err != nil {
		return nil, fmt.Errorf("%w; stop what listens there, or choose another port (0 picks a free one)", err)
	}
	if s.Counted != nil {
		f.listener = s.Counted(f.listener)
	}
	f.ctx, f.end = context.WithCancel(context.Background())
	return f, nil
}

// Names of sockets, equally long.
const (
	clientSocket = "clients"
	peerSocket   = "members"
)

// socketDir makes a directory for sockets that only this user can enter, in the data
// directory, and returns a path to it that is short enough for sockets: if its own is not, one
// by an open file. Where it cannot hold sockets it makes another one.
func (s *Server) socketDir() (dir string, err error) {
	dir = filepath.Join(s.DataDir, "sockets")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if holdsSockets(dir) {
		return dir, nil
	}
	if s.dir, err = os.Open(dir); err != nil {
		return "", err
	}
	if dir = fmt.Sprintf("/proc/self/fd/%d", s.dir.Fd()); holdsSockets(dir) {
		return dir, nil
	}
	s.sockets, err = os.MkdirTemp("", "etcd-")
	return s.sockets, err
}

func holdsSockets(dir string) bool {
	probe := filepath.Join(dir, clientSocket)
	_ = os.Remove(probe) // one that was killed leaves its own
	l, err := net.Listen("unix", probe)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// url is where etcd listens.
func (f *front) url() url.URL { return url.URL{Scheme: "unix", Host: f.socket} }

// serve carries connections until the front is closed.
func (f *front) serve() {
	said := f.log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})
	for {
		c, err := f.listener.Accept()
		switch {
		case err == nil:
			f.carries.Go(func() {
				if err := f.carry(c); err != nil && f.ctx.Err() == nil {
					said.Warn().Str("from", c.RemoteAddr().String()).Err(err).Msg("a connection to this node's etcd was refused")
				}
			})
		case errors.Is(err, net.ErrClosed):
			return
		default:
			said.Warn().Err(err).Msg("etcd takes no connection for a moment")
			pause := time.NewTimer(acceptPause)
			select {
			case <-pause.C:
			case <-f.ctx.Done():
				pause.Stop()
			}
		}
	}
}

// close ends the listener and all connections. It may be called more than once, and on none.
func (f *front) close() {
	if f == nil {
		return
	}
	f.end()
	_ = f.listener.Close()
	f.carries.Wait()
}

// carry carries what the ends of a connection say until one of them ends it.
func (f *front) carry(c net.Conn) error {
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(f.ctx, func() { _ = c.Close() })()
	caller, err := f.greet(c)
	if err != nil {
		return err
	}
	etcd, err := net.Dial("unix", f.socket)
	if err != nil {
		return err
	}
	defer context.AfterFunc(f.ctx, func() { _ = etcd.Close() })()
	var answers sync.WaitGroup
	answers.Go(func() {
		copyAll(caller, etcd)
		_ = caller.Close()
	})
	copyAll(etcd, caller)
	_ = etcd.Close()
	answers.Wait()
	return nil
}

// copyAll copies what one end says to the other.
func copyAll(to, from net.Conn) {
	late := time.AfterFunc(writeTimeout, func() { _ = to.Close() })
	late.Stop()
	_, _ = io.CopyBuffer(patient{to, late}, onlyReader{from}, make([]byte, copyBytes))
}

// onlyReader hides how else a connection can be copied from: by the kernel, with four more
// files for each connection.
type onlyReader struct{ io.Reader }

// A patient writer waits writeTimeout for its other end.
type patient struct {
	conn net.Conn
	late *time.Timer // closes it
}

func (p patient) Write(b []byte) (int, error) {
	p.late.Reset(writeTimeout)
	defer p.late.Stop()
	return p.conn.Write(b)
}

// greet makes the handshake of TLS, if there is a certificate, and returns what to talk over.
func (f *front) greet(c net.Conn) (net.Conn, error) {
	if f.usable.Load() == nil {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(f.ctx, handshakeTimeout)
	defer cancel()
	secure := tls.Server(c, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: f.forCaller})
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if certs := secure.ConnectionState().PeerCertificates; f.ofMember && len(certs) > 0 {
		if err := comesFrom(ctx, certs[0], c.RemoteAddr()); err != nil {
			return nil, err
		}
	}
	return secure, nil
}

// forCaller reads the files again, so that a new authority counts at once; those that cannot be
// used do not. Behind TLS etcd tells gRPC from the rest by the protocol: it serves the rest over
// HTTP/1.1 alone.
func (f *front) forCaller(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	c, err := f.secrecy.forServer()
	if err == nil {
		f.usable.Store(c)
	} else {
		c = f.usable.Load()
	}
	if slices.Contains(hello.SupportedProtos, "http/1.1") {
		c = c.Clone()
		c.NextProtos = []string{"http/1.1"}
	}
	return c, nil
}

// forServer reads the files. That of authorities may be half written, which etcd takes for one
// of none.
func (t TLS) forServer() (*tls.Config, error) {
	c, err := t.info().ServerConfig()
	if err == nil && c.ClientCAs != nil && c.ClientCAs.Equal(x509.NewCertPool()) {
		err = fmt.Errorf("%s has no certificate in PEM", t.CA)
	}
	return c, err
}

// comesFrom refuses a certificate of hosts, none of which is the one that calls: who has
// taken a member's certificate must call from that member's address, as etcd wants it.
func comesFrom(ctx context.Context, cert *x509.Certificate, from net.Addr) error {
	host, _, err := net.SplitHostPort(from.String())
	if err != nil || len(cert.IPAddresses)+len(cert.DNSNames) == 0 || cert.VerifyHostname(host) == nil {
		return err
	}
	called, _ := net.DefaultResolver.LookupAddr(ctx, host)
	for _, name := range cert.DNSNames {
		at, _ := net.DefaultResolver.LookupHost(ctx, name)
		isCalled := func(own string) bool {
			own = strings.TrimSuffix(own, ".")
			suffix, wild := strings.CutPrefix(name, "*")
			return own == name || wild && strings.HasSuffix(own, suffix)
		}
		if slices.Contains(at, host) || slices.ContainsFunc(called, isCalled) {
			return nil
		}
	}
	return fmt.Errorf("its certificate, of %s, is for %v %v, and it comes from %s: give the member a certificate with that address",
		cert.Subject.CommonName, cert.IPAddresses, cert.DNSNames, host)
}

// serveFronts lets connections through.
func (s *Server) serveFronts() {
	for _, f := range []*front{s.clients, s.peers} {
		if f != nil {
			f.carries.Go(f.serve)
		}
	}
}

func (s *Server) closeFronts() {
	s.clients.close()
	s.peers.close()
	if s.dir != nil {
		_ = s.dir.Close()
	}
	if s.sockets != "" {
		_ = os.RemoveAll(s.sockets)
	}
}
