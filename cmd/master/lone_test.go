package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
)

// A master that is the only node has an etcd of its own. Whatever ended it, it
// serves again, with all that it held.
func TestLoneMasterStartsAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	began := time.Now()
	m := startNode(t, dir, "m", "master", "--node-id=m")
	s := m.serves()
	t.Logf("served after %v", time.Since(began))
	if s.GetState().GetStartedEmpty() || s.GetState().GetTerm() != 1 {
		t.Errorf("a new cluster: got %v, want term 1, not started empty", s.GetState())
	}
	for _, tt := range []struct {
		name string
		end  func()
	}{
		{"SIGTERM", func() {
			sigterm(t, m.Process)
			gone(t, m.Process)
			if err := m.Stop(time.Second); err != nil {
				t.Errorf("SIGTERM: got exit %v, want 0", err)
			}
		}},
		{"SIGKILL", func() { m.Kill() }},
	} {
		putOne(t, m, tt.name)
		tt.end()
		term := s.GetState().GetTerm()
		began = time.Now()
		m = startNode(t, dir, "m", "master", "--node-id=m") // the same folder
		s = m.serves()
		t.Logf("after %s it served again after %v", tt.name, time.Since(began))
		st := s.GetState()
		if st.GetStartedEmpty() || st.GetObjects() != 1 || st.GetSegments() != 1 || st.GetTerm() <= term {
			t.Errorf("started again after %s: got %v, want one object, one segment and a term past %d", tt.name, st, term)
		}
	}
}

// A master that has lost its state files, and the journal's beginning with them, serves
// again without what it held, and says so.
func TestLoneMasterStartsEmpty(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := startNode(t, dir, "m", "master", "--node-id=m")
	m.serves()
	putOne(t, m, "k")
	m.Kill()
	forget(t, dir)
	m = startNode(t, dir, "m", "master", "--node-id=m", "--no-writers")
	s := m.serves()
	if st := s.GetState(); !st.GetStartedEmpty() || st.GetObjects() != 0 || st.GetSegments() != 0 {
		t.Errorf("started without its state files: got %v, want it started empty, without objects or segments", st)
	}
	if !slices.ContainsFunc(s.GetNotes(), func(w string) bool { return strings.Contains(w, "started empty") }) {
		t.Errorf("notes of a node without its state files: got %q, want one that it started empty", s.GetNotes())
	}
	if !strings.Contains(printed(m.Process), "started empty: no node held the state") {
		t.Errorf("the log of a node without its state files: got\n%s\nwant that no node held the state", printed(m.Process))
	}
}

// forget deletes the state files of a master that was started in a folder.
func forget(t *testing.T, dir string) {
	t.Helper()
	states, err := filepath.Glob(filepath.Join(dir, "*", "understudy-data", "state"))
	if err != nil || len(states) != 1 {
		t.Fatal(states, err)
	}
	if err := os.RemoveAll(states[0]); err != nil {
		t.Fatal(err)
	}
}

// putOne mounts memory and puts an object.
func putOne(t *testing.T, n *node, key string) {
	t.Helper()
	c, err := client.New(client.Config{Addresses: []string{n.RPC}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.MountSegment(t.Context(), client.Segment{ID: uuid.New(), Name: "host", Base: 1 << 32, Size: 1 << 20, Endpoint: "host:1"})
	if err != nil {
		t.Fatal(err)
	}
	// Memory that is mounted again after an empty start is held back for a lease.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := c.PutStart(ctx, client.PutItem{Key: key, Size: 100}, client.PutConfig{})
	for errors.Is(err, errs.NoAvailableHandle) && ctx.Err() == nil {
		<-tick.C
		r, err = c.PutStart(ctx, client.PutItem{Key: key, Size: 100}, client.PutConfig{})
	}
	if err == nil {
		err = c.PutEnd(ctx, r.Ref(), client.SelectAll)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The client that had lent memory to a master that died lends it to the next
// one by itself, if it finds it.
func TestClientRemountsAfterAnEmptyStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	m := startNode(t, dir, "m", "master", "--rpc_port="+port)
	m.serves()
	w := new(watcher)
	c := connect(t, client.Config{Addresses: []string{m.RPC}, PingInterval: 20 * time.Millisecond, Observer: w})
	s := client.Segment{ID: uuid.New(), Name: "host", Base: 1 << 32, Size: 1 << 20, Endpoint: "host:1"}
	if err := c.MountSegment(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	m.Kill()
	forget(t, dir)
	m = startNode(t, dir, "m", "master", "--rpc_port="+port)
	m.until("has the segment again, by a remount", func(s *pb.StatusResponse) bool {
		return s.GetState().GetSegments() == 1 && w.remounts.Load() > 0
	})
}

// freePort returns a port that is free, and that no outgoing connection takes
// while nobody listens there: it is below those that are given out.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		port := strconv.Itoa(20_000 + rand.IntN(10_000))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			_ = l.Close()
			return port
		}
		if t.Context().Err() != nil {
			t.Fatal("got no free port until the test's end, want one")
		}
	}
}

// What stands in the ready file is where the node really is.
func TestReadyFile(t *testing.T) {
	t.Parallel()
	m := startNode(t, t.TempDir(), "m", "master", "--advertise-address=localhost", "--node-id=n-1")
	m.serves()
	if m.NodeID != "n-1" || m.PID == 0 || !strings.HasPrefix(m.RPC, "localhost:") || len(m.Etcd) != 1 {
		t.Errorf("the ready file: got %+v, want node n-1 at localhost, with its process id and one etcd", m.Ready)
	}
	conn, err := grpc.NewClient(m.RPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	h, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || h.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health at %s: got %v, error %v, want SERVING", m.RPC, h, err)
	}
	resp, err := http.Get("http://" + m.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("metrics at %s: got %s, want 200", m.HTTP, resp.Status)
	}
	drain(resp.Body)
	http.DefaultClient.CloseIdleConnections()
	etcd, err := etcdclient.New(m.Etcd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = etcd.Close() }()
	if err := etcdclient.Check(t.Context(), etcd, m.Etcd); err != nil {
		t.Error(err)
	}
}

// Whatever somebody sends to the gRPC port, the node serves on.
func TestGarbageOnThePort(t *testing.T) {
	t.Parallel()
	m := startNode(t, t.TempDir(), "m", "master", "--enable_ha=false")
	m.serves()
	for name, bytes := range map[string][]byte{
		"nothing":   nil,
		"text":      []byte("hello\r\n\r\n"),
		"HTTP/1":    []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"TLS":       {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03},
		"zeros":     make([]byte, 1<<20),
		"a preface": []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		"a preface, and a frame that is too long": append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0xff, 0xff, 0xff, 0x04, 0, 0, 0, 0, 0),
		"a preface, settings, and garbage": append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"),
			bytes.Repeat([]byte{0xa5}, 1<<16)...),
	} {
		conn, err := net.Dial("tcp", m.RPC)
		if err != nil {
			t.Fatalf("connect to send %s: got error %v, want a connection: no garbage ends the node", name, err)
		}
		_, _ = conn.Write(bytes) // it may be cut off in the middle
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		drain(conn)
		_ = conn.Close()
	}
	putOne(t, m, "k")
	if !m.Alive() {
		t.Error("after garbage on the port: got the process ended, want it serving on")
	}
}

// A message past the limit is refused, with what to do about it; the node
// serves on.
func TestOversizeMessage(t *testing.T) {
	t.Parallel()
	m := startNode(t, t.TempDir(), "m", "master", "--enable_ha=false", "--max-message-bytes=1MiB")
	m.serves()
	conn, err := grpc.NewClient(m.RPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	keys := slices.Repeat([]string{strings.Repeat("k", 4000)}, 300)
	_, err = pb.NewObjectServiceClient(conn).BatchExistKey(t.Context(), &pb.BatchExistKeyRequest{Keys: keys})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "larger than max (1200900 vs. 1048576)") {
		t.Errorf("a message past the limit, of another client: got %v, want RESOURCE_EXHAUSTED with both sizes", err)
	}
	c := connect(t, client.Config{Addresses: []string{m.RPC}, MaxMessageBytes: 1 << 20})
	_, err = c.BatchExistKey(t.Context(), keys)
	if !errors.Is(err, errs.InvalidParams) || !strings.Contains(err.Error(), "the request has 1200900 bytes, at most 1048576 are possible; split it") {
		t.Errorf("a message past the limit, of our client: got %v, want INVALID_PARAMS with both sizes and the advice to split it", err)
	}
	if _, err := c.BatchExistKey(t.Context(), keys[:100]); err != nil {
		t.Errorf("a message within the limit: got error %v, want none", err)
	}
	putOne(t, m, "k")
}

// A lone primary without HA serves at once and ends at once.
func TestWithoutHA(t *testing.T) {
	t.Parallel()
	m := startNode(t, t.TempDir(), "m", "master", "--enable_ha=false")
	s := m.serves()
	if len(m.Etcd) != 0 || len(s.GetWarnings()) != 0 || len(s.GetNotes()) != 1 || !strings.Contains(s.GetNotes()[0], "high availability is off") {
		t.Errorf("without HA: got ready file %+v, status %v, want no etcd, no warning, and one note that HA is off", m.Ready, s)
	}
	putOne(t, m, "k")
	sigterm(t, m.Process)
	gone(t, m.Process)
	if err := m.Stop(time.Second); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(printed(m.Process)) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("the log: got the line %q, want JSON", line)
		}
	}
}
