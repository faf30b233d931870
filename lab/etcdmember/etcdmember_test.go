package etcdmember_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
	"github.com/understudy-store/understudy/lab/etcdmember"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func settings(t *testing.T) etcdserver.Settings {
	return etcdserver.Settings{
		DataDir:   filepath.Join(t.TempDir(), "etcd"),
		Logger:    zerolog.New(zerolog.NewTestWriter(t)),
		Configure: func(c *embed.Config) { c.UnsafeNoFsync = true },
	}
}

// refused fails the test unless a member does not start, and says why.
func refused(t *testing.T, s etcdserver.Settings, p etcdmember.Peers, says ...string) {
	t.Helper()
	server, err := etcdmember.Launch(s, p)
	if err == nil {
		_ = server.Close()
		t.Fatalf("start: got no error, want one that says %q", says)
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got %q, want an error that says %q", err, text)
		}
	}
}

// pairOfMembers starts a cluster of two, a and b.
func pairOfMembers(t *testing.T) (cluster map[string]string, configs [2]etcdserver.Settings, members [2]*etcdserver.Server) {
	t.Helper()
	leftByEtcd(t)
	cluster = map[string]string{"a": unusedAddress(t), "b": unusedAddress(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i, name := range []string{"a", "b"} {
		configs[i] = settings(t)
		s, err := etcdmember.Launch(configs[i], etcdmember.Peers{Name: name, Cluster: cluster})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		members[i] = s
	}
	for _, s := range members {
		if err := s.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return cluster, configs, members
}

// leftByEtcd waits at the end of the test for the connections over which etcd
// asked other members whether this one is new: it keeps them when it closes or
// does not start, and the listener at their other end gives them up after
// rafthttp.ConnReadTimeout, 5 s.
func leftByEtcd(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		var leak error
		for end := time.Now().Add(40 * time.Second); time.Now().Before(end); {
			if leak = goleak.Find(before); leak == nil {
				return
			}
		}
		t.Error(leak)
	})
}

func unusedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A member of a cluster must be told so again at its next start, and cannot come
// back without its data.
func TestMemberOfAClusterStartedOtherwise(t *testing.T) {
	cluster, configs, members := pairOfMembers(t)
	if err := members[1].Close(); err != nil {
		t.Fatal(err)
	}
	b := configs[1]
	refused(t, b, etcdmember.Peers{}, "one of 2 members", cluster["a"], b.DataDir, "start it as one of them")
	if err := os.RemoveAll(b.DataDir); err != nil {
		t.Fatal(err)
	}
	refused(t, b, etcdmember.Peers{Name: "b", Cluster: cluster},
		"already been bootstrapped", b.DataDir, "put its directory back", "empty directories for all members")
}

func TestLoneMemberStartedWithOthers(t *testing.T) {
	s := settings(t)
	start := func() *etcdserver.Server {
		lone, err := etcdmember.Start(t.Context(), s, etcdmember.Peers{})
		if err != nil {
			t.Fatal(err)
		}
		if got := etcdmember.Addr(lone); got != "" {
			t.Errorf("a lone member has the peer port %s, want none", got)
		}
		return lone
	}
	if err := start().Close(); err != nil {
		t.Fatal(err)
	}
	cluster := map[string]string{"a": unusedAddress(t), "b": unusedAddress(t)}
	refused(t, s, etcdmember.Peers{Name: "a", Cluster: cluster}, "lone member", s.DataDir, "leave out the initial cluster")
	if err := start().Close(); err != nil { // it is unharmed
		t.Fatal(err)
	}
}

func TestStartIsBoundedByItsContext(t *testing.T) {
	half := etcdmember.Peers{Name: "a", Cluster: map[string]string{"a": "127.0.0.1:1", "b": "127.0.0.1:2"}, Listen: "127.0.0.1:0"} // b is not there
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	s, err := etcdmember.Start(ctx, settings(t), half)
	if err == nil {
		_ = s.Close()
		t.Fatal("half a cluster: got it ready, want an error at the context's end")
	}
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no leader") {
		t.Errorf("got %v, want that it has no leader in time", err)
	}
}

func TestRefusesClustersThatCannotBe(t *testing.T) {
	for name, tc := range map[string]struct {
		peers etcdmember.Peers
		says  string
	}{
		"peer port alone":  {etcdmember.Peers{Listen: "127.0.0.1:0"}, "without an initial cluster"},
		"not a member":     {etcdmember.Peers{Name: "a", Cluster: map[string]string{"b": "127.0.0.1:1"}}, "not in the initial cluster (b)"},
		"bad peer address": {etcdmember.Peers{Name: "a", Cluster: map[string]string{"a": "peer:0"}}, `of member "a"`},
	} {
		t.Run(name, func(t *testing.T) { refused(t, settings(t), tc.peers, tc.says) })
	}
}
