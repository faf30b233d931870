package etcdserver_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

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
		t.Error("an empty directory: got that it has data, want that it has none")
	}
	if !etcdserver.HasData(first.DataDir) {
		t.Error("a member's directory: got that it has no data, want that it has some")
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
		t.Error("a member taken away: got it running after 30 s, want its server ended")
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

// A copy of a member's directory does not take its place, whether or not anybody of that etcd
// runs: it would be the same member for raft, and may lack what that one has acknowledged.
func TestCopyOfAMember(t *testing.T) {
	first, second, a, _ := pair(t)
	closed(t, joined(t, second))
	copied := copyOf(t, second)
	refused := func(what string, settings etcdserver.Settings) {
		t.Helper()
		s, err := etcdserver.Launch(settings)
		if err == nil || !strings.Contains(err.Error(), "start with an empty directory") || !strings.Contains(err.Error(), "masterctl member replace --yes "+settings.Member.Name) {
			t.Errorf("%s: got %v, want what to do", what, err)
		}
		if err == nil {
			closed(t, s)
		}
	}
	refused("the original is down", copied)
	b := joined(t, second)
	refused("the original runs", copied)
	closed(t, b)
	closed(t, a)
	refused("nobody runs", copied)
	first.Member.PeerAddr, second.Member.PeerAddr = second.Member.PeerAddr, first.Member.PeerAddr
	refused("two members are swapped", first)
}

// A member moves once etcd has its new address.
func TestAMemberMoves(t *testing.T) {
	_, second, _, id := pair(t)
	b := joined(t, second)
	second.Member.PeerAddr = etcdtest.UnusedAddress()
	url := etcdserver.PeerURL(second.Member.PeerAddr, etcdserver.TLS{})
	if _, err := dial(t, b.Endpoints()...).MemberUpdate(t.Context(), id, []string{url}); err != nil {
		t.Fatal(err)
	}
	closed(t, b)
	closed(t, joined(t, second))
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
