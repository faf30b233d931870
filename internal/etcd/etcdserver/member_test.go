package etcdserver_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
)

// one are the settings of one of several members.
func one(t *testing.T, name string) etcdserver.Settings {
	t.Helper()
	s := testConfig(t)
	s.Member = etcdserver.Member{Name: name, PeerAddr: etcdtest.UnusedAddress()}
	s.Configure = func(c *embed.Config) { c.UnsafeNoFsync = true }
	return s
}

// awaitVersion waits until a member knows the version of its cluster, which is moments after
// its first election: before, it takes no other member in. A member that is to join behind the
// reconfiguration check comes seconds later.
func awaitVersion(t *testing.T, url string) {
	t.Helper()
	for version := ""; !strings.Contains(version, `"etcdcluster":"3`); {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		version = string(body)
	}
}

// pair founds an etcd, and adds a second member to it, with an id, that has not started yet.
func pair(t *testing.T) (first, second etcdserver.Settings, a *etcdserver.Server, id uint64) {
	t.Helper()
	first, second = one(t, "a"), one(t, "b")
	first.Member.Founds = true
	first.Configure = func(c *embed.Config) {
		c.UnsafeNoFsync = true
		c.StrictReconfigCheck = false // which asks for connections that are 5 s old
	}
	a = start(t, first)
	own, url := etcdserver.PeerURL(first.Member.PeerAddr, etcdserver.TLS{}), etcdserver.PeerURL(second.Member.PeerAddr, etcdserver.TLS{})
	awaitVersion(t, own)
	added, err := dial(t, a.Endpoints()...).MemberAddAsLearner(t.Context(), []string{url})
	if err != nil {
		t.Fatal(err)
	}
	second.Member.InitialCluster = "a=" + own + ",b=" + url
	return first, second, a, added.Member.ID
}

// A member joins without a vote, and gets it; when it is taken away its server ends and
// says what to do. Its data are those of a member, wherever it starts.
func TestMemberJoinsVotesAndGoes(t *testing.T) {
	first, second, a, id := pair(t)
	if etcdserver.HasData(second.DataDir) {
		t.Error("an empty directory has data")
	}
	if !etcdserver.HasData(first.DataDir) {
		t.Error("a directory in use has no data")
	}
	client := dial(t, a.Endpoints()...)
	b, err := etcdserver.Launch(second)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, dial(t, b.Endpoints()...), "k", "v") // a learner would refuse it
	if _, err := client.MemberRemove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-b.Err():
		if err == nil || !strings.Contains(err.Error(), "move this directory away") {
			t.Errorf("got %v, want what to do with the directory", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("a member that was taken away goes on")
	}
}

// What a lone server has is not taken for one of several, unless it is to be the first.
func TestLoneServerBecomesAMember(t *testing.T) {
	lone := testConfig(t)
	s := start(t, lone)
	put(t, dial(t, s.Endpoints()...), "k", "v")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	member := one(t, "a")
	member.DataDir = lone.DataDir
	if s, err := etcdserver.Launch(member); err == nil || !strings.Contains(err.Error(), "--cluster-init") {
		t.Errorf("got %v, %v; want that its data are refused", s, err)
	}
	member.Member.Founds = true
	a, err := etcdserver.Launch(member)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := dial(t, a.Endpoints()...)
	if got := get(t, c, "k"); got != "v" {
		t.Errorf("got %q, want what the lone server had", got)
	}
	list, err := c.MemberList(t.Context())
	if want := etcdserver.PeerURL(member.Member.PeerAddr, etcdserver.TLS{}); err != nil || len(list.Members) != 1 || list.Members[0].PeerURLs[0] != want {
		t.Errorf("got %v, %v; want one member at %s", list, err, want)
	}
}

// A copy of a running member's directory does not take its place: it would be the same member
// for raft. Once that member is gone it may move, and then the first directory is the copy.
func TestCopyOfAMember(t *testing.T) {
	_, second, a, _ := pair(t)
	client := dial(t, a.Endpoints()...)
	closed(t, joined(t, second))
	copied := copyOf(t, second)
	b := joined(t, second)
	if c, err := etcdserver.Launch(copied); err == nil || !strings.Contains(err.Error(), "start with an empty directory") {
		t.Fatalf("got %v, %v for a copy of what a running member has, want what to do", c, err)
	}
	closed(t, b)
	moved := copyOf(t, second)
	c := joined(t, moved)
	defer closed(t, c)
	awaitMember(t, client, etcdserver.PeerURL(moved.Member.PeerAddr, etcdserver.TLS{}))
	if s, err := etcdserver.Launch(second); err == nil || !strings.Contains(err.Error(), etcdserver.PeerURL(moved.Member.PeerAddr, etcdserver.TLS{})) {
		t.Errorf("got %v, %v for what a member had before it moved, want where it is now", s, err)
	}
}

// Where a copy starts while no majority runs, and then the original does, the copy ends: it is
// not where etcd has the member.
func TestTheCopyEndsBesideItsOriginal(t *testing.T) {
	first, second, a, _ := pair(t)
	url := etcdserver.PeerURL(second.Member.PeerAddr, etcdserver.TLS{})
	closed(t, joined(t, second))
	closed(t, a)
	copied, err := etcdserver.Launch(copyOf(t, second)) // it waits for a
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	b, err := etcdserver.Launch(second)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, b)
	bounded, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := copied.Join(bounded); err == nil || !strings.Contains(err.Error(), "runs at "+url) {
		t.Errorf("got %v, want that the copy ends beside its original", err)
	}
	select {
	case <-copied.Embedded().Server.StopNotify():
	default:
		t.Error("the copy takes part in raft although its end is known")
	}
	a = joined(t, first)
	defer closed(t, a)
	if err := b.Join(t.Context()); err != nil {
		t.Error(err)
	}
}

// Where somebody listens at the address of a member and does not answer, its data are not used.
func TestAMemberThatHangsIsNotReplaced(t *testing.T) {
	first := one(t, "a")
	first.Member.Founds = true
	closed(t, joined(t, first))
	hanging, err := net.Listen("tcp", first.Member.PeerAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer hanging.Close()
	moved := copyOf(t, first)
	moved.Member.Founds = true
	if s, err := etcdserver.Launch(moved); err == nil || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("got %v, %v; want that the one that hangs is to be stopped", s, err)
	}
	if err := hanging.Close(); err != nil {
		t.Fatal(err)
	}
	closed(t, joined(t, moved))
}

// awaitMember waits until etcd lists a member at a URL.
func awaitMember(t *testing.T, client *clientv3.Client, url string) {
	t.Helper()
	for there := false; !there; {
		list, err := client.MemberList(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		there = slices.ContainsFunc(list.Members, func(m *etcdserverpb.Member) bool { return slices.Contains(m.PeerURLs, url) })
	}
}

// A member may move to an address at which another one was before, which has moved, too: that
// one answers there, and is no copy.
func TestMembersThatSwapAddresses(t *testing.T) {
	first, second, a, _ := pair(t)
	closed(t, joined(t, second))
	closed(t, a)
	first.Member.PeerAddr, second.Member.PeerAddr = second.Member.PeerAddr, etcdtest.UnusedAddress()
	a, err := etcdserver.Launch(first) // it waits for b
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, a)
	b, err := etcdserver.Launch(second)
	if err != nil {
		t.Fatalf("got %v where another member has the address from which this one moves", err)
	}
	defer closed(t, b)
}

// copyOf returns the settings of a member with a copy of the data of another one.
func copyOf(t *testing.T, other etcdserver.Settings) etcdserver.Settings {
	t.Helper()
	s := one(t, "b2")
	if err := os.CopyFS(s.DataDir, os.DirFS(other.DataDir)); err != nil {
		t.Fatal(err)
	}
	return s
}

// joined starts a member, and returns when it votes.
func joined(t *testing.T, settings etcdserver.Settings) *etcdserver.Server {
	t.Helper()
	s, err := etcdserver.Launch(settings)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Join(t.Context()); err != nil {
		t.Fatal(err, s.Close())
	}
	return s
}

func closed(t *testing.T, s *etcdserver.Server) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
