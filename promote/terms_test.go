package promote_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// Each term is recorded with its beginning and its end. The last 100 are kept, however
// far their numbers lie apart, and whatever somebody wrote between them.
func TestTermsAreRecorded(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	deposes := func(c *promote.Config) { c.SessionTTL, c.FailoverAfter = 40*time.Second, 6*time.Second } // before the leader key ends, however busy the machine
	a := w.start("a", deposes)
	w.serving(a).mount()
	b := w.start("b", deposes)
	w.promotable(b)
	w.listed(a, "b")
	w.know(a, b)
	if _, _, err := a.Handover(t.Context(), 0, "a"); err == nil || !strings.Contains(err.Error(), "a is the primary already") {
		t.Errorf("a handover to the primary itself: got %v, want it refused, as a is the primary already", err)
	}
	a.handsOverTo(b)
	w.serving(b)
	w.promotable(a)
	recorded := func(by *node, why string) (list []promote.TermRecord) {
		t.Helper()
		waitFor(t, "the record of a term with: "+why, func() bool {
			list, _ = by.Terms(t.Context())
			last := len(list) - 1
			return last >= 0 && strings.Contains(list[last].Why, why) && list[last].NodeID != "" && (last == 0 || list[last-1].End != "")
		})
		return list
	}
	waitFor(t, "a's record of the end of its term", func() bool {
		list, _ := b.Terms(t.Context())
		return len(list) == 2 && list[0].Ended != ""
	})
	list := recorded(b, "handed over")
	if len(list) != 2 || list[0].NodeID != "a" || !strings.HasPrefix(list[0].End, "handed over to b") || list[0].Ended == "" || list[1].End != "" {
		t.Errorf("got %+v; want two terms, of which a's ended with a handover", list)
	}
	if list[0].Left == 0 {
		t.Errorf("got %+v; want how long it took to leave", list[0])
	}
	client := etcd.Client(t)
	for i := range 110 {
		if _, err := client.Put(t.Context(), layout.Term(metadata.Term(100+i)), fmt.Sprintf(`{"node_id":"x","why":"reason %d"}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	do(t, etcd, clientv3.OpPut(layout.Term(150), `{"node_id":"x","left_ms":20}`))
	do(t, etcd, clientv3.OpPut(layout.Term(151), `{"node_id":"y","gap_ms":5}`))
	do(t, etcd, clientv3.OpPut(layout.Term(205), "garbage"))
	do(t, etcd, clientv3.OpDelete(layout.Head()))
	now := w.serving(a, b)
	waitFor(t, "the journal founded anew", func() bool { now = w.serving(a, b); return now.Status().Founded != "" })
	list = recorded(now, "founded the journal anew")
	if len(list) != 100 || list[0].Term != 111 || list[94].Term != 205 || list[93].End != list[94].Why || !strings.HasPrefix(list[98].End, list[99].Why) {
		t.Errorf("got %d terms, the first %+v, the last %+v; want the newest 100, none left out", len(list), list[0], list[len(list)-6:])
	}
	if list[40].Gap != 25 {
		t.Errorf("got %+v; want the time in which x left, too", list[40])
	}
	var other *node
	waitFor(t, "a primary with a promotable standby", func() bool {
		now = w.serving(a, b)
		other = map[*node]*node{a: b, b: a}[now]
		return other.Status().Self.Promotable
	})
	now.wire.cut()
	w.serving(other)
	list = recorded(other, "deposed "+now.id)
	if last := list[99]; last.Gap < 500 || last.NodeID != other.id || !strings.Contains(list[98].End, "deposed "+now.id) {
		t.Errorf("got %+v; want %s, with the time without a primary", list[98:], other.id)
	}
}

// The time without a primary counts from the last answer, where somebody knows when that
// was, and else it is a lower bound that says so.
func TestGapsBeforeTerms(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	client, keep := etcd.Client(t), stateIn(t.TempDir(), 100*time.Millisecond)
	newest := func(a *node, term metadata.Term) (before, last promote.TermRecord) {
		t.Helper()
		waitFor(t, fmt.Sprintf("the record of term %d", term), func() bool {
			list, err := a.Terms(t.Context())
			if err != nil || len(list) < 2 {
				return false
			}
			before, last = list[len(list)-2], list[len(list)-1]
			return last.Term == term && last.NodeID != ""
		})
		return before, last
	}
	a := w.start("a", keep)
	w.serving(a).mount()
	a.wire.cut()
	waitFor(t, "the end of a's right", func() bool { return !a.serves() })
	silent := time.Now()
	waitFor(t, "the end of the leader key", func() bool {
		resp, err := client.Get(t.Context(), layout.Leader())
		return err == nil && len(resp.Kvs) == 0
	})
	atLeast := time.Since(silent)
	a.wire.heal()
	before, last := newest(a, 2)
	if last.GapAtLeast || last.Gap < atLeast.Milliseconds() {
		t.Errorf("after a loss of etcd the gap is %+v, want %v and more", last, atLeast)
	}
	ended, err := time.Parse(time.RFC3339Nano, before.Ended)
	if err != nil || ended.After(silent.Add(atLeast/2)) { // it ended long after
		t.Errorf("the term before ended at %v, %v; want when it answered last, about %v", before.Ended, err, silent)
	}

	w.serving(a)
	w.saved(a)
	for i, end := range []func(*node){(*node).vanish, (*node).end} {
		silent = time.Now()
		end(a)
		stopped := time.Now()
		w.unregistered("a")
		other := must(client.Grant(t.Context(), 1)) // time passes
		waitFor(t, "a lease to end", func() bool { return must(client.TimeToLive(t.Context(), other.ID)).TTL < 0 })
		atLeast := time.Since(stopped)
		a = w.start("a", keep)
		if _, last := newest(a, metadata.Term(3+i)); last.GapAtLeast || last.Gap < atLeast.Milliseconds() || last.Gap > (time.Since(silent)+time.Second).Milliseconds() {
			t.Errorf("end %d of all nodes: the gap is %+v, want %v and a little more", i, last, atLeast)
		}
		w.serving(a)
	}
}

// No node reaches etcd, and another one than the primary before is elected when they do again.
// It learns of the last commit only then, so it measures little; the end of the term before
// says how long nobody served.
func TestGapAfterEtcdWasAwayFromAll(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a, b := w.pair(1)
	client := etcd.Client(t)
	b.wire.cut()
	a.put("unseen")
	a.wire.cut()
	waitFor(t, "the end of a's right", func() bool { return !a.serves() })
	silent := time.Now()
	waitFor(t, "the end of all keys, and more than clocks may be apart", func() bool {
		resp, err := client.Get(t.Context(), layout.Leader())
		nodes, err2 := client.Get(t.Context(), layout.Nodes(), clientv3.WithPrefix())
		return err == nil && err2 == nil && len(resp.Kvs)+len(nodes.Kvs) == 0 && time.Since(silent) > 2*time.Second
	})
	atLeast := time.Since(silent)
	b.wire.heal()
	w.serving(b)
	a.wire.heal()
	var list []promote.TermRecord
	waitFor(t, "a's record of the end of its term", func() bool {
		list, _ = b.Terms(t.Context())
		return len(list) == 2 && list[0].Ended != "" && list[1].NodeID == "b"
	})
	if last := list[1]; last.GapAtLeast || last.Gap < atLeast.Milliseconds() {
		t.Errorf("the gap is %+v, want %v and more", last, atLeast)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A primary whose commits stop for longer than its serve window, and that goes on in the
// same term, has that in the record while it serves and after its end.
func TestInterruptionsAreRecorded(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	var log waittest.Buffer
	a := w.start("a", func(c *promote.Config) { c.SessionTTL, c.Log = 10*time.Second, zerolog.New(&log) })
	w.serving(a).mount()
	last := func() (r promote.TermRecord) {
		if list, err := a.Terms(t.Context()); err == nil && len(list) > 0 {
			r = list[len(list)-1]
		}
		return r
	}
	for range 2 { // a slow machine may add more
		before, lapses := last(), strings.Count(log.String(), "no commit comes through")
		etcd.Pause(0)
		waitFor(t, "the end of a's right", func() bool { return strings.Count(log.String(), "no commit comes through") > lapses })
		etcd.Resume(0)
		waitFor(t, "a to serve again", a.serves)
		waitFor(t, "an interruption in the record", func() bool { return last().Count > before.Count })
		if r := last(); r.Term != 1 || r.Total <= before.Total || r.Longest < before.Longest || r.Longest > r.Total {
			t.Errorf("got %+v after %+v; want one more interruption of term 1, with its time", r, before)
		}
	}
	b := w.start("b", steady)
	w.promotable(b)
	w.listed(a, "b")
	a.handsOverTo(b)
	waitFor(t, "the end of term 1", func() bool {
		list, err := b.Terms(t.Context())
		return err == nil && list[0].Ended != "" && list[0].Count >= 2
	})
}
