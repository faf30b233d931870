package app

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// Clients of the other ports hear at once that they are not served: they go on to another node.
// The ports stay for the servers that come after.
func TestWaitingClosesOtherConnections(t *testing.T) {
	var ports []net.Listener
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l)
	}
	w, err := newWaiting(ports[0], nil, ports[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	end := w.answer(&App{log: zerolog.Nop(), connections: newConnectionBudget(1000, 0.5, false, zerolog.Nop())})
	dial := func() net.Conn {
		c, err := net.Dial("tcp", ports[1].Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	if n, err := dial().Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d bytes, %v; want the end of the connection", n, err)
	}
	end()
	dial()
	if c, err := ports[1].Accept(); err != nil {
		t.Errorf("the server that comes after, at its port: got error %v, want a connection", err)
	} else {
		_ = c.Close()
	}
}

// Who waits tells why, but not where only some may know; the port stays for the server
// that comes after.
func TestWaitingSaysNoMoreThanAllowed(t *testing.T) {
	const reason = "node-2 at 10.0.0.2 refuses"
	for _, hosts := range [][]string{nil, {"node-1"}} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			a := &App{log: zerolog.Nop(), connections: newConnectionBudget(1000, 0.5, false, zerolog.Nop())}
			a.cfg.Security.HTTPHosts = hosts
			w, err := newWaiting(l, nil)
			if err != nil {
				t.Fatal(err)
			}
			w.say(reason)
			end := w.answer(a)
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + l.Addr().String() + "/readyz") //nolint:noctx // of this process
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusServiceUnavailable || strings.Contains(string(text), reason) != (hosts == nil) {
				t.Errorf("got %d %s; want 503, and the reason only if there is no list of hosts", resp.StatusCode, text)
			}
			end()
			accepted := make(chan error, 1)
			go func() {
				c, err := l.Accept()
				if err == nil {
					_ = c.Close()
				}
				accepted <- err
			}()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := <-accepted; err != nil {
				t.Errorf("the server that comes after, at its port: got error %v, want a connection", err)
			}
		})
	}
}
