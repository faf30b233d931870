package judge

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/journal"
)

// verdict stops a load, and judges it.
func verdict(t *testing.T, l *Load, nodes []Node, etcd []string) Verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := l.Judge(ctx, nil, nil, journal.Layout{}); err == nil {
		t.Error("a load at work is judged")
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
			t.Errorf("%s is broken %d times", p, n)
		}
	}
	for _, p := range promises {
		if _, ok := v.Violations[string(p)]; !ok {
			t.Errorf("%c was not checked", p)
		}
	}
	if !v.OK || v.Undecided > 0 || len(v.Examples) > 0 {
		t.Errorf("%d keys are undecided: %s", v.Undecided, strings.Join(v.Examples, "\n"))
	}
}

// start begins a load on a node alone.
func start(t *testing.T, c Config) (*Load, []Node) {
	t.Helper()
	n := run(t, config.Primary, "", nil)
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
	keeps(t, v, "DXALFVS")
	c := l.Counts()
	if c.Unanswered > 0 || c.OK < 1000 || v.Calls < c.Calls || v.Keys < 256 {
		t.Errorf("%+v, %+v", c, v)
	}
	calls, probes := map[Call]int{}, 0
	for _, r := range l.History() {
		if r.probe() {
			probes++
		}
		if calls[r.Call]++; r.probe() && (r.Term == 0 || r.Node != nodes[0].Address) {
			t.Fatalf("a probe without a term or a node: %+v", r)
		}
	}
	if probes == 0 {
		t.Error("no probe was answered")
	}
	for _, call := range []Call{PutStart, PutEnd, PutRevoke, Get, Exist, Remove, RemoveForce, RemoveRegex, Mark} {
		if calls[call] == 0 {
			t.Errorf("no %s among %v", call, calls)
		}
	}
}

// Over Mooncake's protocol answers have no terms, and nobody puts a key twice at
// the same time.
func TestOverMooncake(t *testing.T) {
	over, err := mooncakeclient.NewTransport("")
	if err != nil {
		t.Fatal(err)
	}
	l, nodes := start(t, Config{Client: client.Config{Transport: over}, Keys: 16, NoEviction: true, Seed: 1})
	atWork(t, l, 5_000)
	keeps(t, verdict(t, l, nodes, nil), "DXALFVS")
	open := make(map[[2]any]bool) // puts under way, by client and key
	for _, r := range l.History() {
		put := [2]any{r.Client, r.Key}
		switch {
		case !r.probe() && r.Term != 0:
			t.Fatalf("a term in %+v", r)
		case r.Call == PutStart && open[put]:
			t.Fatalf("a second put: %+v", r)
		case r.Call == PutStart:
			open[put] = r.Outcome == OK
		case r.Call == PutEnd || r.Call == PutRevoke:
			open[put] = false
		}
	}
	if rules := l.rules(); !rules.Unnumbered {
		t.Errorf("the rules are %+v", rules)
	}
}

// With too little memory objects are evicted: that is allowed, but not to
// somebody who was told that it does not happen.
func TestLittleMemory(t *testing.T) {
	l, nodes := start(t, Config{Seed: 1, Mix: Mix{Put: 60, Get: 30, RemoveRegex: 1}})
	wait(t, "objects are evicted", func() bool {
		strict, err := Check(t.Context(), l.History(), Rules{NoEviction: true})
		return err == nil && strict.Violations["D"] > 0
	})
	keeps(t, verdict(t, l, nodes, nil), "DXALFVS")
}

// A load is watched while it works, and drills change what is allowed.
func TestWatchedLoad(t *testing.T) {
	l, nodes := start(t, Config{Rate: 2000, Clients: 4, Keys: 64})
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
						t.Error("more calls than records")
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
	if rate := float64(l.Counts().Calls) / l.Now().Seconds(); rate > 3*2000 {
		t.Errorf("%v calls a second, 2,000 operations were asked for", rate)
	}
}

// A load ends when its history is full, and says so.
func TestFullHistory(t *testing.T) {
	l, _ := start(t, Config{MaxCalls: 300})
	wait(t, "it is full", l.full)
	if err := l.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "is full") {
		t.Errorf("got %v", err)
	}
}

// A load on a cluster that is gone ends when its time is up.
func TestStopWithoutACluster(t *testing.T) {
	n := run(t, config.Primary, "", nil)
	n.serves()
	l, err := Start(t.Context(), Config{Client: client.Config{Addresses: []string{n.RPCAddress()}}, Clients: 4})
	if err != nil {
		t.Fatal(err)
	}
	atWork(t, l, 100)
	n.end()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := l.Stop(ctx); err == nil || !strings.Contains(err.Error(), "last look") {
		t.Errorf("got %v", err)
	}
	if _, err := Start(ctx, Config{Client: client.Config{Addresses: []string{"127.0.0.1:1"}}}); err == nil {
		t.Error("a load on nobody starts")
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
		t.Errorf("%+v, an outage of %v", c, l.Outage(since))
	}
	terms := map[uint64]bool{}
	for _, r := range l.History() {
		if r.probe() {
			terms[r.Term] = true
		}
	}
	if !terms[1] || !terms[2] || slices.Contains([]bool{terms[0], terms[3]}, true) {
		t.Errorf("probes saw terms %v", terms)
	}
}
