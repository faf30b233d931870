package rpc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/metadata"
)

// An answerOfLines is an answer over HTTP that is read line by line.
type answerOfLines struct {
	t     *testing.T
	code  int
	kind  string // Content-Type
	body  io.Closer
	lines *bufio.Reader
}

// overHTTP returns a function that makes calls to a server of its own.
func (n *node) overHTTP(t *testing.T) func(path string) answerOfLines {
	t.Helper()
	server := httptest.NewServer(n.server.JSON())
	t.Cleanup(server.Close)
	return func(path string) answerOfLines { return get(t, server.Client(), server.URL+over+path) }
}

func get(t *testing.T, from *http.Client, url string) answerOfLines {
	t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := from.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return answerOfLines{t, resp.StatusCode, resp.Header.Get("Content-Type"), resp.Body, bufio.NewReader(resp.Body)}
}

// want reads the next line; "" for the end.
func (a answerOfLines) want(texts ...string) {
	a.t.Helper()
	line, err := a.lines.ReadString('\n')
	line = strings.ReplaceAll(line, " ", "") // protojson varies spaces
	if end := texts[0] == ""; end != errors.Is(err, io.EOF) || end && line != "" {
		a.t.Errorf("got %q, %v; want %q", line, err, texts)
	}
	for _, text := range texts {
		if !strings.Contains(line, text) {
			a.t.Errorf("got %q, want %q in it", line, text)
		}
	}
}

// A stream comes line by line, as it is made, and ends with its caller.
func TestJSONLines(t *testing.T) {
	n := newNode(t)
	asked, more, ended := make(chan string, 1), make(chan struct{}), make(chan struct{})
	n.admin.events = func(ctx context.Context, from metadata.Seq, follow bool, yield func(*pb.EventsResponse, error) bool) {
		defer close(ended)
		asked <- fmt.Sprint(from, follow)
		yield(&pb.EventsResponse{Type: "FIRST", Sequence: 1 << 60}, nil)
		<-more
		yield(&pb.EventsResponse{Type: "SECOND"}, nil)
		<-ctx.Done()
	}
	a := n.overHTTP(t)("Events?from_sequence=7&follow=true")
	if got := <-asked; got != "7 true" || a.code != http.StatusOK || a.kind != "application/x-ndjson" {
		t.Errorf("asked for %s, got %d %s; want 7 true, 200 application/x-ndjson", got, a.code, a.kind)
	}
	a.want(`"type":"FIRST"`, `"sequence":"1152921504606846976"`, `"node_id":"node-1"`)
	close(more)
	a.want(`"type":"SECOND"`)
	_ = a.body.Close()
	<-ended
}

// A request for the headers alone begins no stream: its lines would go nowhere, without an end.
func TestNoLinesForHead(t *testing.T) {
	n := newNode(t)
	n.admin.events = func(context.Context, metadata.Seq, bool, func(*pb.EventsResponse, error) bool) {
		t.Error("HEAD of a stream: got the stream begun, want headers alone")
	}
	server := httptest.NewServer(n.server.JSON())
	defer server.Close()
	resp, err := server.Client().Head(server.URL + over + "Events?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("got %s, want 405", resp.Status)
	}
}

// An error before the first line has the status of HTTP; later it is the last line.
func TestJSONLinesEnd(t *testing.T) {
	n := newNode(t).mount()
	n.put("k")
	ask, events := n.overHTTP(t), 2
	var fail error
	n.admin.events = func(_ context.Context, _ metadata.Seq, _ bool, yield func(*pb.EventsResponse, error) bool) {
		for range events {
			if !yield(new(pb.EventsResponse), nil) {
				return
			}
		}
		if fail != nil {
			yield(nil, fail)
		}
	}
	a := ask("Events")
	a.want(`"sequence":"0"`)
	a.want(`"sequence":"0"`)
	a.want("")
	a = ask("Events?limit=1")
	a.want(`"sequence":"0"`)
	a.want("")
	fail = errs.New(errs.Unavailable, "", "etcd does not answer")
	a = ask("Events")
	a.want(`"sequence":"0"`)
	a.want(`"sequence":"0"`)
	a.want(`{"error":{"code":14,`, "etcddoesnotanswer", `"kind":"KIND_UNAVAILABLE_IN_CURRENT_STATUS"`)
	a.want("")
	events = 0
	if a = ask("Events"); a.code != http.StatusServiceUnavailable || a.kind != "application/json" {
		t.Errorf("an error at once: got %d %s, want 503 application/json", a.code, a.kind)
	}
	a.want(`{"code":14,`, "etcddoesnotanswer")
	fail = nil
	if a = ask("Events"); a.code != http.StatusOK || a.kind != "application/x-ndjson" {
		t.Errorf("no events: got %d %s, want 200 application/x-ndjson", a.code, a.kind)
	}
	a.want("")
	if a = ask("Events?from_sequence=x"); a.code != http.StatusBadRequest {
		t.Errorf("a bad request: got %d, want 400", a.code)
	}

	a = ask("DumpRanges")
	a.want(`"id":"`+seg1+`"`, `"ranges":[]`)
	a.want(`"key":"k"`, `"state":"RANGE_STATE_LIVE"`)
	a.want("")
	if a = ask("DumpRanges?segment_id=" + alice); a.code != http.StatusNotFound {
		t.Errorf("an unknown segment: got %d, want 404", a.code)
	}
}

// Streams over HTTP have the roles and the places of those over gRPC.
func TestJSONLinesAreGuarded(t *testing.T) {
	callers, err := access.New("", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, func(c *rpc.Config) { c.Callers = callers })
	if a := n.overHTTP(t)("Events"); a.code != http.StatusForbidden {
		t.Errorf("got %d, want 403", a.code)
	}
	if log := n.logged.String(); !strings.Contains(log, `"order":"Events"`) || !strings.Contains(log, "a call was refused") {
		t.Errorf("logged %s, want what was refused", log)
	}

	n = newNode(t)
	n.admin.events = func(ctx context.Context, _ metadata.Seq, _ bool, yield func(*pb.EventsResponse, error) bool) {
		yield(new(pb.EventsResponse), nil)
		<-ctx.Done()
	}
	ask, open := n.overHTTP(t), 0
	for ; open < 64 && ask("Events?follow=true").code == http.StatusOK; open++ {
	}
	if open != 32 {
		t.Errorf("one host has %d streams of events; want 32, half of all", open)
	}
	if !n.calls.has(pb.AdminService_Events_FullMethodName, 14) {
		t.Error("a refused stream: got no report of the call, want one with Unavailable")
	}
}

// A stream whose reader stands still ends, and does not look whole.
func TestStalledJSONLines(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Send = 100 * time.Millisecond })
	ended := make(chan struct{})
	n.admin.events = func(_ context.Context, _ metadata.Seq, _ bool, yield func(*pb.EventsResponse, error) bool) {
		defer close(ended)
		for yield(&pb.EventsResponse{Text: strings.Repeat("x", 1<<20)}, nil) {
		}
	}
	a := n.overHTTP(t)("Events")
	<-ended
	if _, err := io.Copy(io.Discard, a.lines); err == nil {
		t.Error("the answer has an end, want it cut off")
	}
}

// A node that stops ends its streams, and says so.
func TestStopEndsJSONLines(t *testing.T) {
	n := newNode(t)
	n.admin.events = func(ctx context.Context, _ metadata.Seq, _ bool, yield func(*pb.EventsResponse, error) bool) {
		yield(new(pb.EventsResponse), nil)
		<-ctx.Done()
	}
	a := n.overHTTP(t)("Events?follow=true")
	a.want(`"sequence":"0"`)
	if err := n.server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.want(`{"error":{"code":14,`, "isstopping")
	a.want("")
}

// A stream goes on for longer than another answer may take, with nothing to send meanwhile.
func TestJSONLinesOutlastTimeouts(t *testing.T) {
	n := newNode(t)
	n.admin.events = func(ctx context.Context, _ metadata.Seq, _ bool, yield func(*pb.EventsResponse, error) bool) {
		for range 2 {
			if !yield(new(pb.EventsResponse), nil) {
				return
			}
			select {
			case <-time.After(time.Hour): // in virtual time
			case <-ctx.Done():
				return
			}
		}
	}
	n.overHTTP(t)("Events?limit=1") // channels of the server come to be outside of the bubble
	for version, over2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		synctest.Test(t, func(t *testing.T) { outlastTimeouts(t, n.server.JSON(), version, over2) })
	}
}

func outlastTimeouts(t *testing.T, h http.Handler, version string, over2 bool) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!over2)
	protocols.SetUnencryptedHTTP2(over2)
	ours, theirs := net.Pipe()
	versions := make(chan string, 1)
	noting := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		versions <- r.Proto
		h.ServeHTTP(w, r)
	})
	server := &http.Server{Handler: noting, Protocols: protocols, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(&oneConn{conn: theirs, closed: make(chan struct{})}) }()
	transport := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}
	a := get(t, &http.Client{Transport: transport}, "http://node"+over+"Events?follow=true")
	if got := <-versions; got != version {
		t.Errorf("asked over %s, want %s", got, version)
	}
	a.want(`"sequence":"0"`)
	a.want(`"sequence":"0"`)
	a.want("")
	_ = a.body.Close()
	transport.CloseIdleConnections()
	_ = server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("serve: got %v, want that it was closed", err)
	}
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
}

// Accept returns the connection, and then waits for Close.
func (l *oneConn) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

// Close ends Accept.
func (l *oneConn) Close() error {
	close(l.closed)
	return nil
}

// Addr returns any address.
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
