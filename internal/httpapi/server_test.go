package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/internal/httpapi"
	"github.com/understudy-store/understudy/lab/lonetest"
)

const places = 3 // connections that the server holds

// serve runs a server on a free port until the test ends.
func serve(t *testing.T, h http.Handler) (*httpapi.Server, string, <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httpapi.NewServer(h, places, nil, zerolog.Nop())
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	return s, l.Addr().String(), done
}

func TestServerStops(t *testing.T) {
	r := newRig(t)
	s, address, done := serve(t, r.handler)
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Get("http://" + address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(body) != "OK" || err != nil {
		t.Errorf("got %q, %v; want \"OK\" and no error", body, err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	client.CloseIdleConnections()
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("it still listens")
	}
}

func TestStopCutsOffWhoDoesNotEnd(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s, address, done := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done() // ends when the connection does
		<-leave
	}))
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	failed := make(chan error, 1)
	go func() {
		resp, err := client.Get("http://" + address + "/")
		if err == nil {
			resp.Body.Close()
		}
		failed <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop: got %v, want context.DeadlineExceeded", err)
	}
	if err := <-failed; err == nil {
		t.Error("the request was answered")
	}
	close(leave)
	if err := <-done; err != nil {
		t.Errorf("Serve: got %v, want no error", err)
	}
}

func TestServeFailsOnABrokenListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := httpapi.NewServer(http.NotFoundHandler(), places, nil, zerolog.Nop()).Serve(l); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("Serve on a closed listener: got %v, want an error with its address", err)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	r := newRig(t)
	_, address, _ := serve(t, r.handler)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /health HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 280<<10)+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Fatalf("got %v, %v; want StatusRequestHeaderFieldsTooLarge and no error", resp, err)
	}
	resp.Body.Close()
}

// The list of all keys comes whole over a real connection, and a reader that
// goes away ends it.
func TestAllKeysOverAConnection(t *testing.T) {
	r := newRig(t)
	r.reserve(lonetest.Keys("k", 9000)...)
	_, address, _ := serve(t, r.handler)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + address + "/get_all_keys")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if n := strings.Count(string(body), "\n"); n != 9000 || err != nil {
		t.Errorf("%d keys, %v; want 9000 and no error", n, err)
	}

	r.fences.Store(5) // the node loses its session after the first page
	resp, err = client.Get("http://" + address + "/get_all_keys")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil || len(body) == 0 {
		t.Errorf("a cut off list looks whole: %d bytes, %v", len(body), err)
	}
}

// Connections that ask nothing take the place of nobody who does.
func TestSilentConnectionsGiveWay(t *testing.T) {
	_, address, _ := serve(t, http.NotFoundHandler())
	open := func() net.Conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	ask := func(c net.Conn) error {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			return err
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			err = r.Body.Close()
		}
		return err
	}
	silent := make([]net.Conn, 10*places)
	for i := range silent {
		silent[i] = open()
		if i%2 == 0 {
			_, _ = io.WriteString(silent[i], "GET /") // half of a request
		}
	}
	asking := open()
	for range 2 { // idle in between
		if err := ask(asking); err != nil {
			t.Fatalf("a request beside %d silent connections: %v", len(silent), err)
		}
	}
	for _, c := range silent[:len(silent)-places] {
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("an old silent connection: got %v, want its end", err)
		}
	}
}

// A request that is under way keeps its place.
func TestRequestsUnderWayKeepTheirPlace(t *testing.T) {
	entered, leave := make(chan struct{}, places), make(chan struct{})
	_, address, _ := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { entered <- struct{}{}; <-leave }))
	answered := make(chan error, places)
	for range places {
		go func() {
			r, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + address)
			if err == nil {
				err = r.Body.Close()
			}
			answered <- err
		}()
		<-entered
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("one connection more was answered")
	}
	close(leave)
	for range places {
		if err := <-answered; err != nil {
			t.Errorf("a request that was under way: %v", err)
		}
	}
}
