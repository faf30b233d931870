package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/lab/cluster"
)

// A pair is a master that serves, and a standby that could take over.
type pair struct {
	etcd            *cluster.Process
	dir             string
	master, standby *node
	client          *client.Client
	seen            *watcher
}

func startPair(t *testing.T, sessionTTL time.Duration, args ...string) *pair {
	t.Helper()
	p := &pair{etcd: startEtcd(t), dir: t.TempDir(), seen: new(watcher)}
	args = append([]string{endpoints(p.etcd), "--journal-compact=on", "--session-ttl=" + sessionTTL.String()}, args...)
	p.master = startNode(t, p.dir, "a", "master", append(args, "--node-id=a")...)
	p.master.serves()
	p.standby = startNode(t, p.dir, "b", "standby", append(args, "--node-id=b")...)
	p.standby.promotable()
	p.master.until("knows that the standby could take over", func(s *pb.StatusResponse) bool {
		return slices.ContainsFunc(s.GetNodes(), func(n *pb.Node) bool { return n.GetNodeId() == "b" && n.GetPromotable() })
	})
	p.client = connect(t, client.Config{EtcdEndpoints: p.etcd.Etcd, Observer: p.seen, PingInterval: 50 * time.Millisecond})
	err := p.client.MountSegment(t.Context(), client.Segment{
		ID: uuid.New(), Name: "host", Base: 1 << 32, Size: 64 << 20, Endpoint: "host:1", Protocol: "tcp",
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A watcher counts remounts, of which there must be none.
type watcher struct{ remounts atomic.Int64 }

func (w *watcher) Call(string, int, errs.Kind, time.Duration) {}
func (w *watcher) LeaderChanged(client.Leader)                {}
func (w *watcher) Remounted(int, error)                       { w.remounts.Add(1) }

const objects = 300

func key(i int) string { return fmt.Sprintf("block/%d", i) }

// fill puts objects, removes a tenth of them, and leaves one put open. It
// returns what is to be found afterwards, by key.
func (p *pair) fill(t *testing.T) (want map[string]client.Object, open client.Reservation) {
	t.Helper()
	ctx := t.Context()
	var items []client.PutItem
	for i := range objects {
		items = append(items, client.PutItem{Key: key(i), Size: 4096})
	}
	reserved, err := p.client.BatchPutStart(ctx, items, client.PutConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var refs []client.PutRef
	for _, r := range reserved {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		refs = append(refs, r.Ref())
	}
	failed, err := p.client.BatchPutEnd(ctx, refs, client.SelectAll)
	noneFailed(t, failed, err)
	var removed []string
	for i := 0; i < objects; i += 10 {
		removed = append(removed, key(i))
	}
	failed, err = p.client.BatchRemove(ctx, removed, client.Removal{})
	noneFailed(t, failed, err)
	if open, err = p.client.PutStart(ctx, client.PutItem{Key: "open", Size: 4096}, client.PutConfig{}); err != nil {
		t.Fatal(err)
	}
	return p.all(t), open
}

func noneFailed(t *testing.T, failed []error, err error) {
	t.Helper()
	for _, e := range append(failed, err) {
		if e != nil {
			t.Fatal(e)
		}
	}
}

// all returns what is found under the keys of fill.
func (p *pair) all(t *testing.T) map[string]client.Object {
	t.Helper()
	var keys []string
	for i := range objects {
		keys = append(keys, key(i))
	}
	found, err := p.client.BatchGetReplicaList(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]client.Object{}
	for i, f := range found {
		switch errs.KindOf(f.Err) {
		case errs.OK:
			there[keys[i]] = f.Object
		case errs.ObjectNotFound:
		default:
			t.Errorf("object %s: got error %v, want it found or OBJECT_NOT_FOUND", keys[i], f.Err)
		}
	}
	return there
}

// unchanged demands that the same objects are found where they were, and that
// the put that was open can be ended.
func (p *pair) unchanged(t *testing.T, want map[string]client.Object, open client.Reservation) {
	t.Helper()
	got := p.all(t)
	if len(got) != len(want) || len(want) != objects*9/10 {
		t.Errorf("objects after the takeover: got %d, before it %d, want all %d that were put and not removed", len(got), len(want), objects*9/10)
	}
	for k, w := range want {
		if g := got[k]; g.ID != w.ID || g.Size != w.Size || !slices.Equal(g.Replicas, w.Replicas) {
			t.Errorf("object %s after the takeover: got %+v, want it as before: %+v", k, g, w)
		}
	}
	if err := p.client.PutEnd(t.Context(), open.Ref(), client.SelectAll); err != nil {
		t.Errorf("the end of a put begun before the takeover: got error %v, want none", err)
	}
	o, err := p.client.GetReplicaList(t.Context(), open.Key)
	if err != nil || !slices.Equal(o.Replicas, open.Replicas) {
		t.Errorf("an object put across the takeover: got %+v, error %v, want the replicas it reserved: %v", o, err, open.Replicas)
	}
	if n := p.seen.remounts.Load(); n != 0 {
		t.Errorf("a takeover: got the client told to remount %d times, want 0: its segments stay", n)
	}
}

// outage calls without end, and returns the longest time between two answers
// up to when stop is called.
func (p *pair) outage(t *testing.T) (stop func() time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	var longest time.Duration
	var calling sync.WaitGroup
	calling.Go(func() {
		for last := time.Now(); ctx.Err() == nil; last = time.Now() {
			if _, err := p.client.ExistKey(ctx, "nothing"); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			longest = max(longest, time.Since(last))
		}
	})
	return func() time.Duration { cancel(); calling.Wait(); return longest }
}

// objectsOf returns how many keys a node holds.
func (n *node) objectsOf() uint64 {
	n.t.Helper()
	return n.until("answers", func(*pb.StatusResponse) bool { return true }).GetState().GetObjects()
}

// The primary's process dies without a word. Its standby has everything, and
// clients go on there; a master in its place follows.
func TestFailoverAfterSIGKILL(t *testing.T) {
	t.Parallel()
	const session = 6 * time.Second
	p := startPair(t, session)
	want, open := p.fill(t)
	sameState(t, p.master, p.standby)
	before := p.master.serves().GetState()
	had := before.GetObjects()
	stop := p.outage(t)
	p.master.Kill()
	s := p.standby.serves()
	p.unchanged(t, want, open)
	t.Logf("clients waited for %v, with a session TTL of %v", stop(), session)
	if got := s.GetState().GetObjects(); got != had || had != objects*9/10+1 {
		t.Errorf("the new primary: got %d objects, want as many as the old one, %d, and that %d", got, had, objects*9/10+1)
	}
	if s.GetState().GetTerm() <= before.GetTerm() || s.GetState().GetStartedEmpty() {
		t.Errorf("the new term: got %v, want one past %d, not started empty", s.GetState(), before.GetTerm())
	}

	again := startNode(t, p.dir, "a", "master", "--node-id=a", endpoints(p.etcd), "--journal-compact=on")
	again.promotable()
	sameState(t, p.standby, again)
	if got, had := again.objectsOf(), p.standby.objectsOf(); got != had {
		t.Errorf("the node in the killed one's place: got %d objects, want the primary's %d", got, had)
	}
}

// SIGTERM hands over: nobody waits for a session to end, and the process ends
// well.
func TestHandoverOnSIGTERM(t *testing.T) {
	t.Parallel()
	const session = 20 * time.Second
	p := startPair(t, session, "--failover-after="+session.String())
	want, open := p.fill(t)
	stop := p.outage(t)
	sigterm(t, p.master.Process)
	p.standby.serves()
	p.unchanged(t, want, open)
	took := stop()
	t.Logf("clients waited for %v", took)
	if took > session/2 {
		t.Errorf("a handover: got clients waiting for %v, want at most %v: nobody waits for a session", took, session/2)
	}
	gone(t, p.master.Process)
	if log := printed(p.master.Process); !strings.Contains(log, `"to":"b"`) || !strings.Contains(log, "handed over") {
		t.Errorf("the log of a node after SIGTERM: got\n%s\nwant the handover to b", log)
	}
	if err := p.master.Stop(time.Second); err != nil {
		t.Errorf("SIGTERM: got exit %v, want 0", err)
	}
}
