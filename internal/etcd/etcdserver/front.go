package etcdserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
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

// A front takes the connections of clients in the place of etcd, which listens at a socket that
// only this user reaches, and carries what both ends say. etcd itself would take any number of
// connections, and ends when it may open no more files. Behind the front etcd sees no
// certificate, and no address, of a client: nothing that this product starts needs them.
type front struct {
	listener net.Listener
	socket   string
	secrecy  *tls.Config // nil for plain text
	log      zerolog.Logger

	ctx     context.Context
	end     context.CancelFunc
	carries sync.WaitGroup
}

// listen opens the ports of clients and of the other members, and chooses the socket behind
// that of clients.
func (s *Server) listen() error {
	socket, err := s.chooseSocket()
	if err != nil {
		return err
	}
	said := s.Logger.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})
	l, err := listenAt(s.ClientAddr, s.Counted)
	if err != nil {
		return err
	}
	s.clients = &front{listener: l, socket: socket, secrecy: s.TLS.forCallers(false), log: said}
	s.clients.ctx, s.clients.end = context.WithCancel(context.Background())
	_, port, _ := net.SplitHostPort(l.Addr().String())
	host, _, _ := net.SplitHostPort(s.ClientAddr)
	s.ClientAddr = net.JoinHostPort(host, port)
	if s.Member.Name != "" {
		s.peers, err = s.listenForMembers(said)
	}
	return err
}

// listenAt opens a port whose connections are counted, unless counted is nil.
func listenAt(address string, counted func(net.Listener) net.Listener) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w; stop what listens there, or choose another port (0 picks a free one)", err)
	}
	if counted != nil {
		l = counted(l)
	}
	return l, nil
}

// chooseSocket makes a directory for a socket that only this user can enter, in the data
// directory, and returns a path to the socket that is short enough: if its own is not, one by an
// open file. Where the directory cannot hold sockets it makes another one.
func (s *Server) chooseSocket() (socket string, err error) {
	dir := filepath.Join(s.DataDir, "sockets")
	err = os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.Chmod(dir, 0o700) //nolint:gosec // a directory; one that was there may be open to others
	}
	if err != nil {
		return "", err
	}
	if socket = filepath.Join(dir, socketName); canListen(socket) {
		return socket, nil
	}
	if s.socketDir, err = os.Open(dir); err != nil {
		return "", err
	}
	if socket = fmt.Sprintf("/proc/self/fd/%d/%s", s.socketDir.Fd(), socketName); canListen(socket) {
		return socket, nil
	}
	s.tempDir, err = os.MkdirTemp("", "etcd-")
	return filepath.Join(s.tempDir, socketName), err
}

const socketName = "clients"

// canListen reports whether a socket can be listened at, and called.
func canListen(socket string) bool {
	_ = os.Remove(socket) // one that was killed leaves its own
	l, err := net.Listen("unix", socket)
	if err != nil {
		return false
	}
	c, err := net.Dial("unix", socket)
	if err == nil {
		_ = c.Close()
	}
	return l.Close() == nil && err == nil
}

// freeSocket removes the socket behind the front. If that cannot be, it ends etcd's listener, as
// etcd itself would not: its own removes the socket first, is left open when that fails, and etcd
// then waits for ever for what it accepts.
func (s *Server) freeSocket() {
	err := os.Remove(s.clients.socket)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return
	}
	s.Logger.Warn().Err(err).Str("socket", s.clients.socket).Msg("etcd's socket cannot be removed; it stays, and nobody listens there any more")
	for _, l := range s.etcd.Clients {
		if socket := innermost(l); socket != nil {
			_ = socket.Close()
		}
	}
}

// innermost returns the socket's listener in those that etcd has put around it, each of which
// embeds the next one; nil if there is none.
func innermost(l net.Listener) *net.UnixListener {
	for l != nil {
		if socket, ok := l.(*net.UnixListener); ok {
			return socket
		}
		outer := reflect.Indirect(reflect.ValueOf(l))
		if outer.Kind() != reflect.Struct {
			return nil
		}
		embedded := outer.FieldByName("Listener")
		if !embedded.IsValid() || !embedded.CanInterface() {
			return nil
		}
		l, _ = embedded.Interface().(net.Listener)
	}
	return nil
}

func (f *front) url() url.URL { return url.URL{Scheme: "unix", Host: f.socket} }

func (f *front) serve() {
	for {
		c, err := f.listener.Accept()
		switch {
		case err == nil:
			f.carries.Go(func() {
				if err := f.carry(c); err != nil && f.ctx.Err() == nil {
					f.log.Warn().Str("from", c.RemoteAddr().String()).Err(err).Msg("a connection to this node's etcd was refused")
				}
			})
		case errors.Is(err, net.ErrClosed):
			return
		default:
			f.log.Warn().Err(err).Msg("etcd takes no connection for a moment")
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

// carry carries what the ends of a connection say until both have ended. An end that says no
// more may still be told something.
func (f *front) carry(c net.Conn) error {
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(f.ctx, func() { _ = c.Close() })()
	caller, err := f.greet(c)
	if err != nil {
		return err
	}
	behind, err := net.Dial("unix", f.socket)
	if err != nil {
		return err
	}
	defer func() { _ = behind.Close() }()
	defer context.AfterFunc(f.ctx, func() { _ = behind.Close() })()
	join(caller, behind.(*net.UnixConn))
	return nil
}

// join passes on what a caller and etcd say until etcd has ended, or either can be told nothing
// more.
func join(caller net.Conn, behind interface {
	net.Conn
	CloseWrite() error
},
) {
	var answers sync.WaitGroup
	answers.Go(func() {
		_ = pass(patient(caller), behind)
		_ = caller.Close()
		_ = behind.Close() // etcd may have stopped to read, too
	})
	if pass(behind, caller) == nil {
		_ = behind.CloseWrite() // etcd ends the connection once it has answered
	} else {
		_ = behind.Close()
	}
	answers.Wait()
}

// pass passes on what one end says until it ends, or the other one does, which is an error.
func pass(to io.Writer, from net.Conn) error {
	_, err := io.CopyBuffer(onlyWriter{to}, onlyReader{from}, make([]byte, copyBytes))
	return err
}

// onlyReader and onlyWriter hide how else a connection can be copied: by the kernel, with four
// more files for each connection.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

// greet makes the handshake of TLS, if there is a certificate, and returns what to talk over.
func (f *front) greet(c net.Conn) (net.Conn, error) {
	if f.secrecy == nil {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(f.ctx, handshakeTimeout)
	defer cancel()
	secure := tls.Server(c, f.secrecy)
	return secure, secure.HandshakeContext(ctx)
}

// A patientConn waits writeTimeout for its other end to take something, and then ends.
type patientConn struct {
	net.Conn
	late *time.Timer
}

func patient(c net.Conn) patientConn {
	late := time.AfterFunc(writeTimeout, func() { _ = c.Close() })
	late.Stop()
	return patientConn{c, late}
}

func (c patientConn) Write(b []byte) (int, error) {
	c.late.Reset(writeTimeout)
	defer c.late.Stop()
	return c.Conn.Write(b)
}

func (s *Server) serveFronts() {
	s.clients.carries.Go(s.clients.serve)
	if s.peers != nil {
		s.peers.serve(etcdhttp.NewPeerHandler(s.etcd.GetLogger(), s.etcd.Server))
	}
}

// closeFronts may be called more than once, and before there are any.
func (s *Server) closeFronts() {
	s.clients.close()
	s.peers.close()
	if s.socketDir != nil {
		_ = s.socketDir.Close()
	}
	if s.tempDir != "" {
		_ = os.RemoveAll(s.tempDir)
	}
}
