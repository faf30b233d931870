package judge

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/journal"
)

// verdict stops a load, and judges it.
func verdict(t *testing.T, l *Load, nodes []Node, etcd []string) Verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := l.Judge(ctx, nil, nil, journal.Layout{}); err == nil {
		t.Error("got no error for a load that is still at work, want one")
	}
	if err := l.Stop(ctx); err != nil {
		t.Error(err)
	}
	v, err := l.Judge(ctx, nodes, etcd, journal.NewLayout("/understudy", "mooncake_cluster"))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// keeps demands that no promise was broken.
func keeps(t *testing.T, v Verdict, promises string) {
	t.Helper()
	for p, n := range v.Violations {
		if n > 0 {
			t.Errorf("promise %s: got %d violations, want none", p, n)
		}
	}
	for _, p := range promises {
		if _, ok := v.Violations[string(p)]; !ok {
			t.Errorf("promise %c: got no check of it, want one", p)
		}
	}
	if !v.OK || v.Undecided > 0 || len(v.Examples) > 0 {
		t.Errorf("verdict: got OK %t, %d keys undecided, want OK and none undecided: %s", v.OK, v.Undecided, strings.Join(v.Examples, "\n"))
	}
}

// start begins a load on a node alone.
func start(t *testing.T, c Config) (*Load, []Node) {
	t.Helper()
	n := run(t, config.Primary, "", nil, func(node *config.Config) {
		g := c.generation()
		node.Mooncake.Generation, node.Tenants.Enabled = g.Name, g.Fields.Tenants
	})
	n.serves()
	c.Client.Addresses = []string{n.RPCAddress()}
	l, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Stop(context.Background()) })
	return l, []Node{{"a", n.RPCAddress()}}
}

// With memory for everything nothing is ever missing.
func TestPlentyOfMemory(t *testing.T) {
	l, nodes := start(t, Config{NoEviction: true, Seed: 1})
	atWork(t, l, 10_000)
	v := verdict(t, l, nodes, nil)
	keeps(t, v, "DXALFVSQ")
	c := l.Counts()
	if c.Unanswered > 0 || c.OK < 1000 || v.Calls < c.Calls || v.Keys < 256 {
		t.Errorf("got %+v and %+v, want all calls answered, 1000 of them ok, and 256 keys", c, v)
	}
	calls, probes := map[Call]int{}, 0
	for _, r := range l.History() {
		if r.probe() {
			probes++
		}
		if calls[r.Call]++; r.probe() && (r.Term == 0 || r.Node != nodes[0].Address) {
			t.Fatalf("got the probe %+v, want one with a term and the node's address", r)
		}
	}
	if probes == 0 {
		t.Error("probes of a load: got no answer, want some")
	}
	for _, call := range []Call{PutStart, PutEnd, PutRevoke, Get, Exist, Remove, RemoveForce, RemoveRegex, Mark} {
		if calls[call] == 0 {
			t.Errorf("got %v, want a %s among them", calls, call)
		}
	}
}

// Over Mooncake's protocol answers have no terms, and nobody puts a key twice at
// the same time. The clients, and the owners of the memory, use all that their
// generation has.
func TestOverMooncake(t *testing.T) {
	for _, name := range mooncake.Names() {
		t.Run(name, func(t *testing.T) { overMooncake(t, name) })
	}
}

func overMooncake(t *testing.T, generation string) {
	over, err := mooncakeclient.NewTransport(generation)
	if err != nil {
		t.Fatal(err)
	}
	l, nodes := start(t, Config{Client: client.Config{Transport: over}, Keys: 1024, NoEviction: true, Seed: 1})
	atWork(t, l, 5_000)
	wait(t, "owners copy and move", func() bool { return l.did.copies.Load() > 0 && l.did.moves.Load() > 0 })
	admin := askAt(t, nodes[0].Address)
	if over.Generation().Fields.Groups {
		wait(t, "an object is in a group", func() bool { return grouped(t, l, admin) })
	} else if grouped(t, l, admin) {
		t.Error("got an object in a group, want none")
	}
	promises := "DXALFVS"
	if over.Generation().Fields.Tenants {
		promises += "Q"
	}
	keeps(t, verdict(t, l, nodes, nil), promises)
	open := make(map[[2]any]bool) // puts under way, by client and key
	for _, r := range l.History() {
		put := [2]any{r.Client, r.Key}
		switch {
		case !r.probe() && r.Term != 0:
			t.Fatalf("got %+v, want a call without a term", r)
		case r.Call == PutStart && open[put]:
			t.Fatalf("got %+v, want no second put of a key by one client", r)
		case r.Call == PutStart:
			open[put] = r.Outcome == OK
		case r.Call == PutEnd || r.Call == PutRevoke:
			open[put] = false
		}
	}
	if rules := l.rules(); !rules.Unnumbered {
		t.Errorf("got the rules %+v, want Unnumbered", rules)
	}
}

// grouped reports whether a node has an object that is in a group.
func grouped(t *testing.T, l *Load, admin pb.AdminServiceClient) bool {
	return slices.ContainsFunc(l.ring.ever(), func(k *key) bool {
		r, err := admin.QueryKey(t.Context(), &pb.QueryKeyRequest{Key: k.name})
		return err == nil && r.GetGroupId() != ""
	})
}

// With too little memory objects are evicted: that is allowed, but breaks D
// where nothing may be evicted.
func TestLittleMemory(t *testing.T) {
	l, nodes := start(t, Config{Seed: 1, Memory: 32 << 10})
	atWork(t, l, 10_000)
	wait(t, "objects are evicted", func() bool {
		strict, err := check(t.Context(), l.History(), Rules{NoEviction: true})
		return err == nil && strict.Violations[D] > 0
	})
	keeps(t, verdict(t, l, nodes, nil), "DXALFVSQ")
}

// Owners do all that they can be asked for. Only while memory is neither empty nor full is
// something read back into it from an SSD, and what is revoked stays in quarantine for
// releaseTimeout, so after half a minute all is full of that. Then another load begins.
func TestOwnersDoAll(t *testing.T) {
	did := make(map[string]int64)
	done := func() bool { return len(did) > 0 && !slices.Contains(slices.Collect(maps.Values(did)), 0) }
	for seed := uint64(1); !done(); seed++ {
		if seed > 6 {
			t.Fatalf("got %v of six loads, want some of each", did)
		}
		l, nodes := start(t, Config{Seed: seed, Memory: 48 << 10, Rate: 1000})
		before := maps.Clone(did)
		wait(t, "owners have done all, or the memory is full", func() bool {
			for what, n := range l.OwnerCounts() {
				did[what] = before[what] + n
			}
			return done() || l.Now() > 20*time.Second
		})
		keeps(t, verdict(t, l, nodes, nil), "DXALFVSQ")
	}
}

// A load is watched while it works, and drills change what is allowed.
func TestWatchedLoad(t *testing.T) {
	l, nodes := start(t, Config{Rate: 2000, Keys: 64})
	var watching sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		watching.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					l.Mark("watched")
					if l.Outage(l.Now()/2) < 0 || l.Counts().Calls > len(l.History()) {
						t.Error("a load that is watched: got more calls than records or a negative outage, want neither")
					}
				}
			}
		})
	}
	atWork(t, l, 200)
	l.KillHost(1)
	l.MayLose("nothing")()
	atWork(t, l, 200)
	close(done)
	watching.Wait()
	keeps(t, verdict(t, l, nodes, nil), "D")
	// Each client may begin at once, and an operation is up to four calls.
	if got, most := float64(l.Counts().Calls), 4*(2000*l.Now().Seconds()+Clients); got > most {
		t.Errorf("got %v calls, want at most the %v of 2,000 operations a second", got, most)
	}
}

// A load ends when its history is full, and says so.
func TestFullHistory(t *testing.T) {
	l, _ := start(t, Config{MaxCalls: 300})
	wait(t, "the history is full", l.full)
	if err := l.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "is full") {
		t.Errorf("got error %v, want that the history is full", err)
	}
}

// A load on a cluster that is gone ends when its time is up.
func TestStopWithoutACluster(t *testing.T) {
	n := run(t, config.Primary, "", nil)
	n.serves()
	l, err := Start(t.Context(), Config{Client: client.Config{Addresses: []string{n.RPCAddress()}}})
	if err != nil {
		t.Fatal(err)
	}
	atWork(t, l, 100)
	n.end()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := l.Stop(ctx); err == nil || !strings.Contains(err.Error(), "last look") {
		t.Errorf("got error %v, want that the last look failed", err)
	}
	if _, err := Start(ctx, Config{Client: client.Config{Addresses: []string{"127.0.0.1:1"}}}); err == nil {
		t.Error("got no error without a cluster, want one")
	}
}

// A handover in the middle of a load breaks nothing, and every call has its
// answer.
func TestPair(t *testing.T) {
	etcd := etcdtest.Start(t).Endpoints()
	a := run(t, config.Primary, "a", etcd)
	a.serves()
	b := run(t, config.Standby, "b", etcd)
	b.promotable()
	l, err := Start(t.Context(), Config{
		Client: client.Config{Addresses: []string{a.RPCAddress(), b.RPCAddress()}, EtcdEndpoints: etcd}, Seed: 2, NoEviction: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Stop(context.Background()) })
	atWork(t, l, 3000)
	since := l.Now()
	l.Mark("handover")
	a.end()
	b.serves()
	atWork(t, l, 3000)
	keeps(t, verdict(t, l, []Node{{"b", b.RPCAddress()}}, etcd), "DXALFVS")
	if c := l.Counts(); c.Unanswered > 0 || l.Outage(since) <= 0 {
		t.Errorf("got %+v and an outage of %v, want all calls answered and some outage", c, l.Outage(since))
	}
	terms := map[uint64]bool{}
	for _, r := range l.History() {
		if r.probe() {
			terms[r.Term] = true
		}
	}
	if !terms[1] || !terms[2] || slices.Contains([]bool{terms[0], terms[3]}, true) {
		t.Errorf("got answers to probes in terms %v, want terms 1 and 2", terms)
	}
}
