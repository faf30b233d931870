package etcdserver

import (
	"context"
	"crypto/x509"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Who takes nothing any more loses its connection, and with it its place.
func TestCopyEndsForOneThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, callerOwn := net.Pipe()
		etcd, etcdOwn := net.Pipe()
		defer callerOwn.Close()
		ended := make(chan struct{})
		began := time.Now()
		go func() {
			defer close(ended)
			_ = pass(patient(caller), etcd)
		}()
		if _, err := etcdOwn.Write([]byte("an answer")); err != nil {
			t.Fatal(err)
		}
		<-ended
		if took := time.Since(began); took != writeTimeout {
			t.Errorf("it ended after %v, want %v", took, writeTimeout)
		}
	})
}

// A pipeEnd is an end that can be told that no more comes.
type pipeEnd struct{ net.Conn }

func (pipeEnd) CloseWrite() error { return nil }

// A caller that says much and reads nothing goes, although etcd does not read on before it does.
func TestCallerThatReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, callerOwn := net.Pipe()
		etcd, etcdOwn := net.Pipe()
		began := time.Now()
		go func() {
			_, _ = callerOwn.Write(make([]byte, 1<<20))
		}()
		go func() {
			_, _ = etcdOwn.Read(make([]byte, 1))
			_, _ = etcdOwn.Write([]byte("an answer"))
		}()
		join(caller, pipeEnd{etcd})
		if took := time.Since(began); took != writeTimeout {
			t.Errorf("it ended after %v, want %v", took, writeTimeout)
		}
	})
}

// Names that lead to a caller's address are looked up only where its address does not lead to one
// of its certificate's: servers of names that do not answer keep nobody waiting.
func TestAddressesOfCallers(t *testing.T) {
	names := serveNames(t, "member.example.")
	from := &net.TCPAddr{IP: net.IPv4(10, 9, 9, 9), Port: 1}
	ctx, cancel := context.WithCancel(t.Context())
	for _, name := range []string{"member.example", "*.example"} {
		if err := comesFrom(ctx, &x509.Certificate{DNSNames: []string{"other.example", name}}, from, names.resolver); err != nil || names.forward.Load() > 0 {
			t.Errorf("%s: got %v and %d questions for addresses, want none", name, err, names.forward.Load())
		}
	}
	go func() { // nobody waits for what never comes
		defer cancel()
		for names.forward.Load() == 0 {
			runtime.Gosched()
		}
	}()
	if err := comesFrom(ctx, &x509.Certificate{DNSNames: []string{"elsewhere.example"}}, from, names.resolver); err == nil || !strings.Contains(err.Error(), "why its name is not found") {
		t.Errorf("got %v, want that the name was not found", err)
	}
}

// A nameServer says which name an address leads to, and answers nothing else.
type nameServer struct {
	resolver *net.Resolver
	forward  atomic.Int64 // other questions
}

func serveNames(t *testing.T, name string) *nameServer {
	t.Helper()
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", l.LocalAddr().String())
	}}}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for b := make([]byte, 1500); ; {
			n, from, err := l.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil {
				continue
			}
			q := m.Questions[0]
			if q.Type != dnsmessage.TypePTR {
				s.forward.Add(1)
				continue
			}
			m.Response, m.Additionals = true, nil
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
				Body:   &dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(name)},
			}}
			if b, err := m.Pack(); err == nil {
				_, _ = l.WriteTo(b, from)
			}
		}
	})
	return s
}
