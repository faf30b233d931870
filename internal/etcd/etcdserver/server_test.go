package etcdserver_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir))
	}
	goleak.VerifyTestMain(patient{m})
}

// A patient run waits for the connections over which a new member of etcd asks the others:
// it leaves them, and the listener at their other end gives them up after
// rafthttp.ConnReadTimeout, 5 s.
type patient struct{ *testing.M }

func (p patient) Run() int {
	status := p.M.Run()
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end) && goleak.Find() != nil; {
	}
	return status
}

// start starts a lone member and closes it with the test.
func start(t *testing.T, cfg etcdserver.Settings) *etcdserver.Server {
	t.Helper()
	s, err := etcdserver.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func testConfig(t *testing.T) etcdserver.Settings {
	return etcdserver.Settings{
		DataDir:   filepath.Join(t.TempDir(), "etcd"),
		Logger:    zerolog.New(zerolog.NewTestWriter(t)),
		Configure: func(c *embed.Config) { c.UnsafeNoFsync = true },
	}
}

func dial(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func put(t *testing.T, c *clientv3.Client, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := c.Put(ctx, key, value); err != nil {
		t.Fatalf("put %s: got %v, want no error", key, err)
	}
}

func get(t *testing.T, c *clientv3.Client, key string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := c.Get(ctx, key)
	if err != nil {
		t.Fatalf("get %s: got %v, want no error", key, err)
	}
	if len(r.Kvs) == 0 {
		return ""
	}
	return string(r.Kvs[0].Value)
}

func TestServesOnAFreePort(t *testing.T) {
	began := time.Now()
	s := start(t, testConfig(t))
	t.Logf("a fresh member was ready after %v", time.Since(began))
	c := dial(t, s.Endpoints()...)
	put(t, c, "k", "v")
	if got := get(t, c, "k"); got != "v" {
		t.Errorf("got %q, want \"v\"", got)
	}
	members, err := c.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := members.Members[0].ClientURLs[0], "http://"+s.Endpoints()[0]; got != want {
		t.Errorf("advertised client URL %s, want %s", got, want)
	}
	if ports := len(s.Embedded().Peers); ports != 0 {
		t.Errorf("a lone member has %d peer ports, want none", ports)
	}
}

func TestDataSurvivesRestartOnAnotherPort(t *testing.T) {
	cfg := testConfig(t)
	s := start(t, cfg)
	put(t, dial(t, s.Endpoints()...), "k", "v")
	first := s.Endpoints()[0]
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if taken, err := net.Listen("tcp", first); err == nil { // so that the port must differ; else another process has it
		defer taken.Close()
	}

	s = start(t, cfg)
	if s.Endpoints()[0] == first {
		t.Fatalf("same port %s, want another one", first)
	}
	if got := get(t, dial(t, s.Endpoints()...), "k"); got != "v" {
		t.Errorf("after the restart: got %q, want \"v\"", got)
	}
}

func TestNewDirectoriesAreNewClusters(t *testing.T) {
	ids := make(map[uint64]bool)
	for range 2 { // both at once: two servers in one process
		s := start(t, testConfig(t))
		r, err := dial(t, s.Endpoints()...).Get(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		ids[r.Header.ClusterId] = true
	}
	if len(ids) != 2 {
		t.Errorf("two data directories share a cluster id: got %v, want 2 entries", ids)
	}
}

func TestCloseDoesNotWaitForClients(t *testing.T) {
	s := start(t, testConfig(t))
	c := dial(t, s.Endpoints()...)
	watch := c.Watch(t.Context(), "k", clientv3.WithCreatedNotify())
	if r := <-watch; !r.Created {
		t.Fatalf("watch: %+v; want that it is created", r)
	}
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("close took %v with a watch open, want less than etcd would wait for a call", took)
	}
	if err, ok := <-s.Err(); ok {
		t.Errorf("a closed server reports %v, want false", err)
	}
}

func TestRefusesWhatItCannotUse(t *testing.T) {
	running := start(t, testConfig(t))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inUse := testConfig(t)
	start(t, inUse)

	portTaken := testConfig(t)
	portTaken.ClientAddr = running.Endpoints()[0]
	notADir := testConfig(t)
	notADir.DataDir = filepath.Join(file, "data")
	// What stops every user, root too, from writing the lock file.
	notWritable := testConfig(t)
	if err := os.MkdirAll(filepath.Join(notWritable.DataDir, "LOCK"), 0o700); err != nil {
		t.Fatal(err)
	}

	tests := map[string]struct {
		cfg  etcdserver.Settings
		is   error
		says string
	}{
		"locked by another": {inUse, etcdserver.ErrLocked, "choose another data directory"},
		"port taken":        {portTaken, syscall.EADDRINUSE, "choose another port"},
		"not a directory":   {notADir, syscall.ENOTDIR, "choose another one or mend its permissions"},
		"not writable":      {notWritable, syscall.EISDIR, "choose another one or mend its permissions"},
		"nothing given":     {etcdserver.Settings{}, nil, "no data directory"},
		"no host":           {etcdserver.Settings{DataDir: "x", ClientAddr: ":0"}, nil, "must be one IP address"},
		"wildcard":          {etcdserver.Settings{DataDir: "x", ClientAddr: "0.0.0.0:0"}, nil, "that clients can dial"},
		"negative quota":    {etcdserver.Settings{DataDir: "x", QuotaBytes: -1}, nil, "negative"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := etcdserver.Start(t.Context(), tt.cfg)
			if err == nil {
				_ = s.Close()
				t.Fatalf("start: got no error, want one that says %q", tt.says)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("start: got %v, want an error that is %v", err, tt.is)
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("start: got %v, want an error that says %q", err, tt.says)
			}
		})
	}
}

func TestErrTellsWhenItDies(t *testing.T) {
	s := start(t, testConfig(t))
	s.Embedded().Server.HardStop()
	select {
	case err := <-s.Err():
		if err == nil || !strings.Contains(err.Error(), "no longer serves") {
			t.Errorf("got %v, want an error with \"no longer serves\"", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("etcd stopped by itself: got no error within 30 s, want one on Err")
	}
}

func TestShortestLeaseTTL(t *testing.T) {
	tests := []struct {
		heartbeat, election, want time.Duration
	}{
		{0, 0, time.Second}, // those of a lone member
		{100 * time.Millisecond, time.Second, 2 * time.Second}, // etcd's own
		{50 * time.Millisecond, 500 * time.Millisecond, time.Second},
		{100 * time.Millisecond, 700 * time.Millisecond, time.Second},
		{200 * time.Millisecond, time.Second, 2 * time.Second}, // floor(3*5/2) = 7 ticks
	}
	for _, tt := range tests {
		cfg := testConfig(t)
		if tt.heartbeat > 0 {
			cfg.Configure = func(c *embed.Config) {
				c.UnsafeNoFsync = true
				c.TickMs, c.ElectionMs = uint(tt.heartbeat.Milliseconds()), uint(tt.election.Milliseconds())
			}
		}
		s := start(t, cfg)
		// etcd keeps the TTL asked for in its records, and raises the one it
		// uses: ask what is left of it.
		c := dial(t, s.Endpoints()...)
		lease, err := c.Grant(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		left, err := c.TimeToLive(t.Context(), lease.ID)
		if err != nil {
			t.Fatal(err)
		}
		if granted := time.Duration(left.GrantedTTL) * time.Second; granted != tt.want {
			t.Errorf("%v, %v: etcd grants %v, want %v", tt.heartbeat, tt.election, granted, tt.want)
		}
	}
}
