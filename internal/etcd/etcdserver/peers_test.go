package etcdserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/raft/v3"
)

// pipes is a listener in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// members calls a port for members whose handler is given, in virtual time.
func members(t *testing.T, h http.HandlerFunc, call func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := make(pipes)
		p := newPeerPort(l, nil, zerolog.Nop())
		p.serve(h)
		call(t, func() net.Conn {
			own, other := net.Pipe()
			l <- other
			return own
		})
		close(l)
		p.close()
	})
}

// A snapshot may take any time as long as some of it comes, and ends when nothing does.
func TestSlowSnapshots(t *testing.T) {
	const pieces = 200
	got := make(chan string, 1)
	members(t, func(_ http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		got <- fmt.Sprint(n, " pieces, whole: ", err == nil)
	}, func(t *testing.T, dial func() net.Conn) {
		for wait, want := range map[time.Duration]string{
			rafthttp.ConnReadTimeout - time.Second: fmt.Sprint(pieces, " pieces, whole: true"), rafthttp.ConnReadTimeout + time.Second: "1 pieces, whole: false",
		} {
			c := dial()
			_, err := fmt.Fprintf(c, "POST /raft/snapshot HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", pieces)
			for i := 0; i < pieces && err == nil; i++ {
				_, err = c.Write([]byte{1})
				time.Sleep(wait)
			}
			if said := <-got; said != want {
				t.Errorf("with a piece each %v: got %s, want %s", wait, said, want)
			}
			_ = c.Close()
		}
	})
}

// failing is a listener that fails once before each connection.
type failing struct {
	pipes
	failed *bool
}

func (f failing) Accept() (net.Conn, error) {
	if *f.failed = !*f.failed; *f.failed {
		return nil, syscall.ENOBUFS
	}
	return f.pipes.Accept()
}

// A connection that cannot be accepted does not end the port.
func TestMembersAfterAFailedAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := failing{make(pipes), new(bool)}
		p := newPeerPort(l, nil, zerolog.Nop())
		p.serve(http.NotFoundHandler())
		for range 3 {
			own, other := net.Pipe()
			l.pipes <- other
			if _, err := io.WriteString(own, "GET / HTTP/1.0\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if answer, err := io.ReadAll(own); err != nil || !strings.Contains(string(answer), "404") {
				t.Errorf("got %q, %v; want an answer", answer, err)
			}
		}
		close(l.pipes)
		p.close()
	})
}

// A request that the handler does not read is waited for no longer than one that it does.
func TestUnreadRequestsOfMembers(t *testing.T) {
	members(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, func(t *testing.T, dial func() net.Conn) {
		c, began := dial(), time.Now()
		if _, err := io.WriteString(c, "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, c)
		if took := time.Since(began); took > rafthttp.ConnReadTimeout {
			t.Errorf("the connection ended after %v, want %v at most", took, rafthttp.ConnReadTimeout)
		}
	})
}

// etcd ends a request of a member by a panic once raft has stopped, at each orderly end of a
// node: that is not logged. Any other panic is.
func TestRequestsOfMembersAtTheEnd(t *testing.T) {
	for cause, logged := range map[error]string{
		raft.ErrStopped:                          "",
		fmt.Errorf("apply: %w", raft.ErrStopped): "",
		errors.New("a fault"):                    "a fault",
	} {
		synctest.Test(t, func(t *testing.T) {
			l, log := make(pipes), new(strings.Builder)
			p := newPeerPort(l, nil, zerolog.New(log))
			p.serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(cause) }))
			own, other := net.Pipe()
			l <- other
			if _, err := io.WriteString(own, "GET /raft HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, own) // until the connection ends
			close(l)
			p.close()
			if got := log.String(); !strings.Contains(got, logged) || logged == "" && got != "" {
				t.Errorf("%v: logged %q, want %q", cause, got, logged)
			}
		})
	}
}

// Connections of members that say nothing, wait for nothing or take nothing end.
func TestSilentMembers(t *testing.T) {
	members(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			_, _ = w.Write(make([]byte, 1<<20))
		}
	}, func(t *testing.T, dial func() net.Conn) {
		for say, reads := range map[string]bool{"": true, "GET / HTTP/1.1\r\nHost: a\r\n\r\n": true, "GET /long HTTP/1.1\r\nHost: a\r\n\r\n": false} {
			c, began := dial(), time.Now()
			if _, err := io.WriteString(c, say); err != nil {
				t.Fatal(err)
			}
			if !reads {
				time.Sleep(writeTimeout + time.Second)
			}
			_, _ = bufio.NewReader(c).WriteTo(io.Discard)
			if took := time.Since(began); took > writeTimeout+time.Second {
				t.Errorf("%q: the connection ended after %v, want %v at most", say, took, writeTimeout+time.Second)
			}
		}
	})
}
