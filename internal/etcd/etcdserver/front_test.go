package etcdserver_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
	"github.com/understudy-store/understudy/internal/security/certs"
)

// patience is how long tests wait for what happens at once.
const patience = 10 * time.Second

// few takes so many connections at a time, and closes others at once.
type few struct {
	net.Listener
	room *atomic.Int64
}

type oneOfFew struct {
	net.Conn
	giveBack func()
}

func (f few) Accept() (net.Conn, error) {
	for {
		c, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if f.room.Add(-1) >= 0 {
			return &oneOfFew{c, sync.OnceFunc(func() { f.room.Add(1) })}, nil
		}
		f.room.Add(1)
		_ = c.Close()
	}
}

func (c *oneOfFew) Close() error {
	defer c.giveBack()
	return c.Conn.Close()
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Both ports of a member take as many connections as they are given, and etcd, which has
// others of its own, serves again as soon as one ends.
func TestConnectionsAreBounded(t *testing.T) {
	const most = 8
	var room atomic.Int64
	room.Store(most)
	cfg := testConfig(t)
	cfg.Member = etcdserver.Member{Name: "a", PeerAddr: freeAddress(t), Founds: true}
	cfg.Counted = func(l net.Listener) net.Listener { return few{l, &room} }
	cfg.CountedMembers = cfg.Counted
	s := start(t, cfg)
	// idle opens connections that say nothing, and returns those that are not closed.
	idle := func(address string) (open []net.Conn) {
		for range 2 * most {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		t.Cleanup(func() {
			for _, c := range open {
				_ = c.Close()
			}
		})
		return open
	}
	first := idle(s.Endpoints()[0])
	for end := time.Now().Add(patience); room.Load() != 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("beside twice as many connections: got %d of %d places free, want none", room.Load(), most)
		}
	}
	for _, address := range []string{s.Endpoints()[0], cfg.Member.PeerAddr} {
		for _, c := range idle(address) {
			if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
				t.Fatalf("a connection too many to %s: got it open (%v), want it closed", address, err)
			}
		}
	}
	for _, c := range first {
		_ = c.Close()
	}
	put(t, dial(t, s.Endpoints()...), "k", "v")
}

// An authority issues certificates of members, callers and others.
func authority(t *testing.T) func(name string, hosts ...string) certs.Files {
	t.Helper()
	a, err := certs.Open(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return func(name string, hosts ...string) certs.Files {
		t.Helper()
		files, err := a.Issue(name, certs.Subject{Name: name, Role: "node", Hosts: hosts, Until: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
}

// secured is TLS with files, which are read again for each connection, and the name that callers
// need.
func secured(t *testing.T, files certs.Files, name string) etcdserver.TLS {
	t.Helper()
	source, err := certs.Load(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	return etcdserver.TLS{CA: files.CA, Cert: files.Cert, Key: files.Key, Name: name, InUse: func() (*tls.Certificate, *x509.CertPool) {
		_, _ = source.Renew()
		return source.InUse()
	}}
}

// caller returns how somebody with a certificate talks over TLS, who takes any server's.
func caller(t *testing.T, files certs.Files) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}
}

// taken reports whether somebody is answered.
func taken(t *testing.T, address string, secrecy *tls.Config) bool {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: secrecy, DisableKeepAlives: true}
	r, err := (&http.Client{Transport: transport}).Get("https://" + address + "/version")
	if err != nil {
		return false
	}
	_ = r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// Over TLS both ports take the certificates of the nodes' authority and name alone, that of
// members only from an address in the certificate; a new authority counts without a restart.
func TestWhoseConnectionsAreTaken(t *testing.T) {
	own, other := authority(t), authority(t)
	files := own("node", "127.0.0.1")
	log := new(lockedLog)
	cfg := testConfig(t)
	cfg.Logger = zerolog.New(log)
	cfg.TLS = secured(t, files, "node")
	cfg.Member = etcdserver.Member{Name: "a", PeerAddr: freeAddress(t), Founds: true}
	s := start(t, cfg)
	clients, members := strings.TrimPrefix(s.Endpoints()[0], "https://"), cfg.Member.PeerAddr
	if !taken(t, clients, caller(t, files)) || !taken(t, members, caller(t, files)) {
		t.Error("a node's connections: got one refused, want both ports to take them")
	}
	if stranger := caller(t, own("stranger", "127.0.0.1")); taken(t, clients, stranger) || taken(t, members, stranger) {
		t.Error("a certificate of another name: got it taken, want it refused at both ports")
	}
	elsewhere := caller(t, own("node", "10.0.0.1"))
	if !taken(t, clients, elsewhere) {
		t.Error("a client at an address not in its certificate: got it refused, want it taken: only members are bound to one")
	}
	if taken(t, members, elsewhere) {
		t.Error("a member at an address not in its certificate: got it taken, want it refused")
	}
	log.until(t, "give the member a certificate with that address") // what helps
	if !taken(t, members, caller(t, own("node", "localhost"))) {
		t.Error("a member whose certificate has a name of its address: got it refused, want it taken")
	}

	foreign := other("node", "127.0.0.1")
	if taken(t, clients, caller(t, foreign)) || taken(t, members, caller(t, foreign)) {
		t.Error("a certificate of another authority: got it taken, want it refused at both ports")
	}
	both, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	more, err := os.ReadFile(foreign.CA)
	if err == nil {
		err = os.WriteFile(files.CA, slices.Concat(both, more), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !taken(t, clients, caller(t, foreign)) || !taken(t, members, caller(t, foreign)) {
		t.Error("a certificate of an authority just added: got it refused, want it taken without a restart")
	}
	if err := os.WriteFile(files.CA, []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !taken(t, clients, caller(t, foreign)) || !taken(t, members, caller(t, files)) {
		t.Error("a file of authorities that is no good: got certificates refused, want those taken before taken on")
	}
	if err := os.WriteFile(files.CA, slices.Concat(both, more[:len(more)/2]), 0o600); err != nil {
		t.Fatal(err)
	}
	if !taken(t, clients, caller(t, foreign)) || !taken(t, members, caller(t, foreign)) {
		t.Error("a file that breaks off after an authority: got certificates refused, want those of all others taken on")
	}
}

// A caller that says no more is answered.
func TestAnswerToOneThatSaysNoMore(t *testing.T) {
	s := start(t, testConfig(t))
	c, err := net.Dial("tcp", s.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err = io.WriteString(c, "GET /version HTTP/1.0\r\n\r\n"); err == nil {
		err = c.(*net.TCPConn).CloseWrite()
	}
	if answer, err2 := io.ReadAll(c); err != nil || err2 != nil || !strings.Contains(string(answer), "etcdserver") {
		t.Errorf("got %q, %v, %v; want the version", answer, err, err2)
	}
}

// Over TLS etcd answers gRPC, and over HTTP/1.1 what else it has, as for Prometheus.
func TestBothProtocolsOverTLS(t *testing.T) {
	files := authority(t)("node", "127.0.0.1")
	cfg := testConfig(t)
	cfg.TLS = secured(t, files, "")
	s := start(t, cfg)
	c, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), TLS: caller(t, files), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	put(t, c, "k", strings.Repeat("v", 1<<20))
	if got := get(t, c, "k"); len(got) != 1<<20 {
		t.Errorf("got %d bytes, want 1 MiB", len(got))
	}
	plain := &http.Transport{TLSClientConfig: caller(t, files), ForceAttemptHTTP2: true}
	defer plain.CloseIdleConnections()
	r, err := (&http.Client{Transport: plain}).Get(s.Endpoints()[0] + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if body, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(body), "true") {
		t.Errorf("health over HTTP/1.1 and TLS: got %s %s, error %v, want true", r.Status, body, err)
	}
}

// Silent connections, with and without a handshake, do not hold up the end of a server.
func TestCloseDoesNotWaitForSilentConnections(t *testing.T) {
	files := authority(t)("node", "127.0.0.1")
	cfg := testConfig(t)
	cfg.TLS = secured(t, files, "")
	s := start(t, cfg)
	address := strings.TrimPrefix(s.Endpoints()[0], "https://")
	silent, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	greeted, err := tls.Dial("tcp", address, caller(t, files))
	if err != nil {
		t.Fatal(err)
	}
	defer greeted.Close()
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("close took %v, want less than a handshake may take", took)
	}
	for _, c := range []net.Conn{silent, greeted} {
		if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("a silent connection after close: got it open (%v), want it closed", err)
		}
	}
}

// A data directory whose name is too long for a socket's holds the sockets all the same.
func TestLongDataDirectory(t *testing.T) {
	cfg := testConfig(t)
	cfg.DataDir += "/" + strings.Repeat("d", 200)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	s, err := etcdserver.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dial(t, s.Endpoints()...), "k", "v")
	if made, err := os.ReadDir(temp); err != nil || len(made) > 0 { // one that is killed would leave it
		t.Errorf("the directory for temporary files: got %v, error %v, want nothing made there", made, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A lockedLog is written to by servers.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// until waits until something has been written.
func (l *lockedLog) until(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(patience); ; runtime.Gosched() {
		l.mu.Lock()
		says := l.b.String()
		l.mu.Unlock()
		if strings.Contains(says, text) {
			return
		}
		if time.Now().After(end) {
			t.Errorf("the log after %v: got %s, want %q in it", patience, says, text)
			return
		}
	}
}

// A server whose socket cannot be removed ends at once all the same, says what stays, and starts
// again beside it.
func TestSocketThatStays(t *testing.T) {
	log := new(lockedLog)
	cfg := testConfig(t)
	cfg.Logger = zerolog.New(log)
	s, err := etcdserver.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dial(t, s.Endpoints()...), "k", "v")
	socket := filepath.Join(cfg.DataDir, "sockets", "clients")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(socket, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Close() }()
	select {
	case err = <-ended:
	case <-time.After(patience):
		t.Fatalf("a socket that cannot be removed: got the server running after %v, want it ended", patience)
	}
	if err != nil {
		t.Errorf("close: got %v, want no error", err)
	}
	log.mu.Lock()
	said := log.b.String()
	log.mu.Unlock()
	if strings.Count(said, "\n") != 1 || !strings.Contains(said, socket) {
		t.Errorf("the log is %q, want one line that names %s", said, socket)
	}
	put(t, dial(t, start(t, cfg).Endpoints()...), "k", "w")
}
