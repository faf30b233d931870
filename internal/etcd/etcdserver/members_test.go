package etcdserver_test

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
)

// refused fails the test unless a member does not start, and says why.
func refused(t *testing.T, cfg etcdserver.Member, says ...string) {
	t.Helper()
	s, err := etcdserver.Launch(cfg)
	if err == nil {
		_ = s.Close()
		t.Fatal("it started")
	}
	for _, text := range append(says, cfg.DataDir) {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error does not say %q: %v", text, err)
		}
	}
}

// pairOfMembers starts a cluster of two.
func pairOfMembers(t *testing.T) (configs [2]etcdserver.Member, members [2]*etcdserver.Server) {
	t.Helper()
	leftByEtcd(t)
	cluster := map[string]string{"a": unusedAddress(t), "b": unusedAddress(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i, name := range []string{"a", "b"} {
		configs[i] = testConfig(t)
		configs[i].Name, configs[i].InitialCluster = name, cluster
		s, err := etcdserver.Launch(configs[i])
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
	return configs, members
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
		for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
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
	configs, members := pairOfMembers(t)
	if err := members[1].Close(); err != nil {
		t.Fatal(err)
	}
	alone := configs[1]
	alone.InitialCluster = nil
	refused(t, alone, "one of 2 members", configs[0].InitialCluster["a"], "give the initial cluster")
	wiped := configs[1]
	if err := os.RemoveAll(wiped.DataDir); err != nil {
		t.Fatal(err)
	}
	refused(t, wiped, "already been bootstrapped", "put its directory back", "empty directories for all members")
}

func TestLoneMemberStartedWithOthers(t *testing.T) {
	cfg := testConfig(t)
	s := start(t, cfg)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Name = "a"
	cfg.InitialCluster = map[string]string{"a": unusedAddress(t), "b": unusedAddress(t)}
	refused(t, cfg, "lone member", "leave out the initial cluster")
	cfg.Name, cfg.InitialCluster = "", nil
	start(t, cfg) // it is unharmed
}
