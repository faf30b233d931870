package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/internal/httpapi"
	"github.com/understudy-store/understudy/lab/lonetest"
)

const (
	places   = 32 // connections that the server holds
	half     = 16 // of one host
	requests = 14 // of one host, under way at once
)

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
		t.Errorf("connect after Stop to %s: got a connection, want an error", address)
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
		t.Error("a request under way at Stop's deadline: got an answer, want it cut off")
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
	r.p.Put(nil, lonetest.Keys("k", 9000)...)
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
		t.Errorf("a list that was cut off: got %d bytes and error %v, want some, and an error", len(body), err)
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
			t.Fatalf("a request beside %d silent connections: got error %v, want an answer", len(silent), err)
		}
	}
	for _, c := range silent[:len(silent)-half] {
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("an old silent connection: got %v, want its end", err)
		}
	}
}

// A request that is under way keeps its place. Beside those of a host that has no room
// for more, it is told so, others are answered, and everybody learns of the health.
func TestRequestsUnderWayKeepTheirPlace(t *testing.T) {
	entered, leave := make(chan struct{}, places), make(chan struct{})
	_, address, _ := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			entered <- struct{}{}
			<-leave
		}
	}))
	ask := func(from, path string) int {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		client := &http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
		r, err := client.Get("http://" + address + path)
		if err != nil {
			t.Errorf("GET %s from %s: got error %v, want an answer", path, from, err)
			return 0
		}
		r.Body.Close()
		return r.StatusCode
	}
	var answered sync.WaitGroup
	hold := func(from string) {
		answered.Go(func() {
			if code := ask(from, "/"); code != http.StatusOK {
				t.Errorf("a request that was under way: got %d, want 200", code)
			}
		})
		<-entered
	}
	for range requests {
		hold("127.0.0.1")
	}
	if code := ask("127.0.0.1", "/"); code != http.StatusServiceUnavailable {
		t.Errorf("one more request of the host: got %d, want 503", code)
	}
	for range requests/2 + 1 { // others leave an eighth to those with few
		hold("127.0.0.2")
	}
	for _, from := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		for _, path := range []string{"/health", "/readyz", "/node"} {
			if code := ask(from, path); code != http.StatusOK {
				t.Errorf("%s from %s: got %d, want 200", path, from, code)
			}
		}
	}
	hold("127.0.0.3")
	close(leave)
	answered.Wait()
}

// Bodies that do not come hold up nobody who asks for health, and end soon.
func TestBodiesThatDoNotCome(t *testing.T) {
	read := make(chan error, places)
	_, address, _ := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path != "/health" {
			_, err := io.ReadAll(r.Body)
			read <- err
		}
	}))
	for _, path := range []string{"/x", "/health"} {
		for range 3 * places {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"); err != nil {
				continue // it had to go
			}
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + address + "/health")
	if err != nil {
		t.Fatalf("health beside bodies that do not come: got error %v, want an answer", err)
	}
	r.Body.Close()
	if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) { // closed: it had to go for a later one
		t.Errorf("reading a body that does not come: got %v, want a deadline", err)
	}
}

// Scrapes that nobody reads leave places to other hosts.
func TestScrapesOfOneHost(t *testing.T) {
	entered, leave := make(chan struct{}, 4), make(chan struct{})
	h := httpapi.API{Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { entered <- struct{}{}; <-leave })}.Handler()
	scrape := func(from string) int {
		r, w := httptest.NewRequest(http.MethodGet, "/metrics", nil), httptest.NewRecorder()
		r.RemoteAddr = from + ":1"
		h.ServeHTTP(w, r)
		return w.Code
	}
	var answered sync.WaitGroup
	for _, from := range []string{"10.0.0.1", "10.0.0.1", "10.0.0.2"} {
		answered.Go(func() { scrape(from) })
		<-entered
	}
	if code := scrape("10.0.0.1"); code != http.StatusServiceUnavailable {
		t.Errorf("a third scrape of one host: got %d, want 503", code)
	}
	close(leave)
	answered.Wait()
	if code := scrape("10.0.0.1"); code != http.StatusOK {
		t.Errorf("when they have ended: got %d, want 200", code)
	}
}
