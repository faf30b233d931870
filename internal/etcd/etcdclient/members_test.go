package etcdclient_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// attemptTimeout is how long a call waits that nobody helps: longer than in package journal,
// for slow machines, and far from the time after which gRPC gives up a connection.
const attemptTimeout = 6 * time.Second

// threeMembers starts an etcd of three and a client that uses a follower, or
// the leader, for a start.
func threeMembers(t *testing.T, leader bool) (etcd *etcdtest.Cluster, first int, client *clientv3.Client) {
	t.Helper()
	etcd = etcdtest.Start(t, etcdtest.WithNodes(3))
	if first = etcd.WaitLeader(t); !leader {
		first = (first + 1) % 3
	}
	var endpoints []string
	for i := range 3 {
		endpoints = append(endpoints, etcd.Endpoint((first+i)%3))
	}
	client, err := etcdclient.New(endpoints)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	put(t, client, "warm", "up")
	return etcd, first, client
}

// put writes, and reports how many attempts failed, and how many of these for
// lack of an answer.
func put(t *testing.T, client *clientv3.Client, key, value string) (failed, unanswered int) {
	t.Helper()
	for ; ; failed++ {
		ctx, cancel := context.WithTimeout(t.Context(), attemptTimeout)
		_, err := client.Put(ctx, key, value)
		if err == nil {
			cancel()
			return failed, unanswered
		}
		if ctx.Err() != nil {
			unanswered++
		}
		cancel()
		if failed > 1000 {
			t.Fatalf("put of %s: got %d failed attempts, the last one %v, want one that succeeds", key, failed, err)
		}
	}
}

// A follower hangs: its connections stay open, and nobody answers on them. The
// call that is under way fails as soon as another member answers, later ones do
// not notice, and a watch begins anew.
func TestMemberThatHangs(t *testing.T) {
	etcd, first, client := threeMembers(t, false)
	watch := client.Watch(clientv3.WithRequireLeader(t.Context()), "k", clientv3.WithCreatedNotify())
	<-watch
	etcd.Pause(first)
	defer etcd.Resume(first)
	if failed, unanswered := put(t, client, "k", "0"); failed == 0 || unanswered > 0 {
		t.Errorf("the call under way: got %d failed attempts, %d of them after %v, want some, each earlier", failed, unanswered, attemptTimeout)
	}
	for i := range 50 {
		if failed, _ := put(t, client, "k", fmt.Sprint(i)); failed > 0 {
			t.Errorf("put %d: %d attempts failed, want none", i, failed)
		}
	}
	// A connection without a ping's answer goes after 13 s.
	select {
	case seen := <-watch:
		if seen.Err() != nil || len(seen.Events) == 0 {
			t.Errorf("the watch: %v, %v; want an event", seen.Events, seen.Err())
		}
	case <-time.After(11 * time.Second):
		t.Error("a watch at a member that hangs: got nothing for 11 s, want it to begin anew at another")
	}
}

// The leader hangs: as soon as there is another, calls go on.
func TestLeaderThatHangs(t *testing.T) {
	etcd, first, client := threeMembers(t, true)
	etcd.Pause(first)
	defer etcd.Resume(first)
	put(t, client, "k", "0")
	for i := range 50 {
		if failed, _ := put(t, client, "k", fmt.Sprint(i)); failed > 0 {
			t.Errorf("put %d: %d attempts failed, want none", i, failed)
		}
	}
}

// Nobody can answer, as while etcd elects a leader: the client ends up at the member that
// is there, which is the first to know of the next leader.
func TestWithoutALeader(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithNodes(3))
	endpoints := []string{etcd.Endpoint(0), etcd.Endpoint(1), etcd.Endpoint(2)}
	client, _, leave, err := etcdclient.NewLeaving(endpoints)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	put(t, client, "warm", "up")
	etcd.Stop(0)
	etcd.Stop(2)
	for begun := time.Now(); client.Endpoints()[0] != endpoints[1] && time.Since(begun) < 20*time.Second; {
		leave() // nothing while it still moves, or while the member is too slow for a probe
		runtime.Gosched()
	}
	if got := client.Endpoints(); !slices.Equal(got, endpoints[1:2]) {
		t.Errorf("the client uses %v, want %v, the one of %v that is there", got, endpoints[1:2], endpoints)
	}
}

// Members go one after the other, and come back.
func TestMembersThatStop(t *testing.T) {
	etcd, first, client := threeMembers(t, false)
	for i := range 4 {
		stopped := (first + i) % 3
		etcd.Stop(stopped)
		if _, unanswered := put(t, client, "k", fmt.Sprint(i)); unanswered > 1 {
			t.Errorf("member %d stopped: %d attempts had no answer, want at most 1", i, unanswered)
		}
		etcd.Start(stopped)
		etcd.WaitLeader(t)
	}
}

// A lease is kept alive past a member that hangs.
func TestKeepAliveWhenAMemberHangs(t *testing.T) {
	etcd, first, client := threeMembers(t, false)
	lease, err := client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	etcd.Pause(first)
	defer etcd.Resume(first)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), attemptTimeout)
		if err = keepAlive(ctx, client, lease.ID); err == nil {
			cancel()
			return
		}
		if ctx.Err() != nil {
			t.Errorf("no answer in %v, want no error", attemptTimeout)
		}
		cancel()
	}
	t.Errorf("keepalives past a member that hangs: got %v, want one that succeeds", err)
}

// keepAlive does it as package promote does.
func keepAlive(ctx context.Context, client *clientv3.Client, lease clientv3.LeaseID) error {
	stream, err := etcdserverpb.NewLeaseClient(client.ActiveConnection()).LeaseKeepAlive(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(lease)}); err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

// Packets of the connection in use are lost without a word, and the only member answers
// on others: the call under way fails early, and later ones do not notice.
func TestConnectionThatIsDeaf(t *testing.T) {
	etcd := etcdtest.Start(t)
	client, err := etcdclient.New(etcd.Endpoints())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	for round := range 3 {
		for i := range 50 {
			if failed, _ := put(t, client, "k", fmt.Sprint(i)); failed > 0 {
				t.Errorf("round %d, put %d: %d attempts failed, want none", round, i, failed)
			}
		}
		etcd.LoseBusiest(0)
		if failed, unanswered := put(t, client, "k", "deaf"); failed == 0 || unanswered > 0 {
			t.Errorf("round %d, the call under way: got %d failed attempts, %d of them after %v, want some, each earlier", round, failed, unanswered, attemptTimeout)
		}
	}
}

// While all of etcd is away, calls fail in time; when it is back, they succeed.
func TestAllMembersAway(t *testing.T) {
	etcd, _, client := threeMembers(t, false)
	etcd.StopAll()
	lost(t, client)
	etcd.StartAll()
	put(t, client, "k", "back")
}

// One member is left, which answers that it cannot serve, or not at all.
func TestQuorumAway(t *testing.T) {
	etcd, first, client := threeMembers(t, false)
	etcd.Stop((first + 1) % 3)
	etcd.Stop((first + 2) % 3)
	lost(t, client)
	etcd.Start((first + 1) % 3)
	put(t, client, "k", "back")
	etcd.Start((first + 2) % 3)
}

// A member is left while nothing is under way on its connection, which gRPC so
// closes at once.
func TestLeavingAnIdleConnection(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithNodes(3))
	client, next, _, err := etcdclient.NewLeaving(etcd.Endpoints())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	for i := range 30 {
		if failed, _ := put(t, client, "k", fmt.Sprint(i)); failed > 0 {
			t.Errorf("put %d: %d attempts failed, want none", i, failed)
		}
		before := client.Endpoints()[0]
		for client.Endpoints()[0] == before {
			next() // nothing while it still moves
			runtime.Gosched()
		}
	}
}

func lost(t *testing.T, client *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), attemptTimeout/2)
	defer cancel()
	if _, err := client.Put(ctx, "k", "lost"); err == nil {
		t.Error("a put without a quorum: got no error, want one")
	}
}

// Connections break while the client moves from member to member, again and
// again: it gets along.
func TestConnectionsThatBreakWhileItMoves(t *testing.T) {
	etcd, _, client := threeMembers(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			for ctx.Err() == nil {
				attempt, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				_, _ = client.Get(attempt, "k")
				cancel()
			}
		})
	}
	for i := range 300 {
		etcd.CutClients(i % 3)
		if i >= 1 {
			etcd.HealClients((i - 1) % 3)
		}
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		_, _ = client.Get(attempt, "k")
		cancel()
	}
	for i := range 3 {
		etcd.HealClients(i)
	}
	cancel()
	calls.Wait()
	if _, unanswered := put(t, client, "k", "after"); unanswered > 0 {
		t.Errorf("%d attempts had no answer when all was well again, want none", unanswered)
	}
}

// Members hang one after the other, and the calls are reads that wait no longer
// than a member is waited for: they go on all the same.
func TestMembersThatHangUnderShortDeadlines(t *testing.T) {
	etcd, _, client := threeMembers(t, false)
	for range 3 {
		hung := slices.IndexFunc([]int{0, 1, 2}, func(i int) bool { return etcd.Endpoint(i) == client.Endpoints()[0] })
		etcd.Pause(hung)
		for tries := 1; ; tries++ {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := client.Get(ctx, "warm")
			cancel()
			if err == nil {
				break
			}
			if tries == 10 {
				t.Fatalf("member %d hangs: got %d failed reads, the last one %v, want one that succeeds", hung, tries, err)
			}
		}
		etcd.Resume(hung)
		etcd.WaitLeader(t)
	}
}

// One line says which member a client left, and to which one it went.
func TestMovesAreLogged(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithNodes(3))
	first := etcd.WaitLeader(t)
	var endpoints []string
	for i := range 3 {
		endpoints = append(endpoints, etcd.Endpoint((first+i)%3))
	}
	log := make(lines, 16)
	client, err := etcdclient.Connect(t.Context(), endpoints, etcdclient.Access{}, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	put(t, client, "k", "0")
	if len(log) > 0 {
		t.Errorf("the log before any move: got %s, want nothing", <-log)
	}
	etcd.Stop(first)
	put(t, client, "k", "1")
	if got := <-log; !strings.Contains(got, "level=WARN") || !strings.Contains(got, "member="+endpoints[0]) {
		t.Errorf("got %q, want a line about %s", got, endpoints[0])
	}
}

// lines are those of a log, as they come.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}
