package promote_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote"
)

// rolledBack returns a cluster in which etcd went back to an old backup while a was
// killed: the journal goes on from a's state file, but b holds the keys l beyond it, which
// the last of the primaries, a or b, had acknowledged. b is cut off etcd; start starts a again.
func rolledBack(t *testing.T, bDir string, primaries ...string) (w *cluster, b *node, start func() *node) {
	etcd := etcdtest.Start(t)
	w = newCluster(t, etcd)
	dir := t.TempDir()
	a := w.start("a", slack, stateIn(dir, 100*time.Millisecond))
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	b = w.start("b", slack, stateIn(bDir, time.Hour))
	w.promotable(b)
	w.know(a, b)
	w.saved(a)
	dir = copied(t, dir)
	restore := etcd.Backup()
	now, other := a, b
	for _, primary := range primaries {
		if primary != now.id {
			now, other = other, now
		}
		other.handsOverTo(now)
	}
	now.put(keys("l", 200)...)
	w.promotable(other)
	w.equal(now, other)
	for _, n := range []*node{b, a} {
		n.wire.cut()
	}
	a.end()
	restore()
	// The backup may be from before b was there.
	do(t, etcd, clientv3.OpDelete(layout.CompleteNode("b")))
	do(t, etcd, clientv3.OpDelete(layout.Node("b")))
	return w, b, func() *node { return w.start("a", slack, stateIn(dir, 100*time.Millisecond)) }
}

// handsOverTo makes another node the primary, if it is not that already.
func (n *node) handsOverTo(to *node) {
	n.net.t.Helper()
	waitFor(n.net.t, to.id+" to be the primary", func() bool {
		if !to.serves() && n.serves() {
			_, _, _ = n.Handover(n.net.t.Context(), 0, to.id)
		}
		return to.serves()
	})
}

// A node that restarts from a file on an etcd that was rolled back stands in no election
// while another node holds more: that one founds the journal anew.
func TestRolledBackEtcdAndAnOlderFile(t *testing.T) {
	t.Parallel()
	w, b, start := rolledBack(t, t.TempDir(), "a")
	// The backup may also be from when b was still loading its state.
	registered(t, w.etcd, "b", `{"node_id":"b","rpc_address":"b"}`)
	a := start()
	waitFor(t, "a to leave the election to b", func() bool {
		if a.serves() {
			t.Fatal("D: a serves without what b holds, want it to leave the election to b")
		}
		o := a.Status().Obstacle
		return o != nil && o.Cause == promote.AwaitsOthers && strings.Contains(o.Reason, "b holds more")
	})
	do(t, w.etcd, clientv3.OpDelete(layout.Node("b")))
	b.wire.heal()
	now := w.founder(a, b)
	if now != b {
		t.Errorf("%s founded the journal anew, want b", now.id)
	}
	now.has(append(keys("k", 5), keys("l", 200)...)...)
	w.follows(now, a)
}

// A standby was cut off while etcd went back: what it reads then fits, but others that it
// knows may hold more. It asks them before it stands for election.
func TestAStandbyThatDidNotSeeARollback(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a, b := w.pair(5)
	w.equal(a, b)
	b.wire.cut()
	since := time.Now()
	a.put(keys("m", 5)...)
	restore := etcd.Backup()
	a.put(keys("l", 50)...)
	a.wire.cut() // nobody sees how it goes back
	restore()
	waitFor(t, "b to be cut off for some time", func() bool { return time.Since(since) > 3*time.Second })
	b.wire.heal()
	a.wire.heal()
	now := w.founder(a, b)
	if now != a {
		t.Errorf("D: %s founded the journal anew, want a, which holds more", now.id)
	}
	now.has(append(append(keys("k", 5), keys("m", 5)...), keys("l", 50)...)...)
	w.follows(now, b)
}

// A node that has just started, and loads its state yet, is awaited as one that does not
// answer: it may hold more.
func TestANodeThatLoadsItsStateIsAwaited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, b, start := rolledBack(t, dir, "a")
	b.end()
	var sessions wire
	sessions.cut()
	b = w.start("b", stateIn(dir, time.Hour), func(c *promote.Config) { c.Sessions = sessions.client(t, w.etcd.Endpoints()) })
	a := start()
	waitFor(t, "a to wait for b", func() bool {
		if a.serves() {
			t.Fatal("D: a serves without what b holds, want it to wait for b")
		}
		o := a.Status().Obstacle
		return o != nil && o.Cause == promote.AwaitsOthers && strings.Contains(o.Reason, "[b]")
	})
	sessions.heal()
	now := w.founder(a, b)
	now.has(append(keys("k", 5), keys("l", 200)...)...)
}

// The journal went on in a later term without what a node holds, which nobody could ask:
// that is a fork. The node founds no journal over it. It keeps what it holds in a file,
// and follows, although it holds more commits. So does the primary of before, although
// the later term has the number of its own.
func TestAForkOfARolledBackJournal(t *testing.T) {
	t.Parallel()
	for _, primary := range []string{"a", "b"} {
		t.Run("the primary was "+primary, func(t *testing.T) {
			t.Parallel()
			forkARolledBackJournal(t, primary)
		})
	}
}

func forkARolledBackJournal(t *testing.T, primary string) {
	dir := t.TempDir()
	w, b, start := rolledBack(t, dir, primary)
	b.ended.Store(true) // it answers nobody
	a := start()
	w.serving(a).put("new")
	w.saved(a)
	a.wire.cut()
	a.end()
	b.wire.heal()
	waitFor(t, "b to find the fork", func() bool { l := b.Status().Loss.Err; return l != nil && l.Forked })
	b.serveNot(4 * time.Second) // longer than RefoundWait
	if o := b.Status().Obstacle; o == nil || o.Cause != promote.JournalLost || !strings.Contains(o.Help, "--from b") {
		t.Errorf("b gives the reason %+v, want that the journal is lost, and --from b", o)
	}
	a = start()
	b.ended.Store(false)
	w.serving(a).has(append(keys("k", 5), "new")...)
	w.follows(a, b)
	if loads := b.Status().Loads[journal.ReasonFounded]; loads != 1 {
		t.Errorf("b loaded %d snapshots for the fork, want one", loads)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "diverged-*.state")); err != nil || len(files) != 1 {
		t.Errorf("the files are %v (%v), want one", files, err)
	}
}

// forkedOff is rolledBack, and then a has led a term without what b holds, put new keys,
// saved its state and ended.
func forkedOff(t *testing.T, primary, bDir string, put ...string) (w *cluster, b *node, start func() *node) {
	w, b, start = rolledBack(t, bDir, primary)
	b.ended.Store(true)
	a := start()
	w.serving(a).put(put...)
	w.saved(a)
	a.wire.cut()
	a.end()
	return w, b, start
}

// A node whose state forked stops no election, not even when it restarts from its file:
// the journal goes on with those who follow it.
func TestForkedNodeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, b, start := forkedOff(t, "b", dir, "new")
	b.end()
	b = w.start("b", stateIn(dir, time.Hour))
	waitFor(t, "b to find the fork", func() bool { l := b.Status().Loss.Err; return l != nil && l.Forked })
	a := start()
	w.serving(a)
	w.follows(a, b)
}

// The journal went on without what a node holds, which has seen more elections than etcd
// knows of. It is a fork all the same: the node does not found the journal anew over what
// was acknowledged since, and no term is used twice.
func TestAForkOfMoreTerms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, b, start := rolledBack(t, dir, "b", "a")
	before := b.Status().Head.Term
	b.ended.Store(true) // it answers nobody
	a := start()
	w.serving(a).put("new")
	if term := a.Status().Leader.Term; term <= before {
		t.Errorf("X: a serves in term %d, want one above %d, which b has seen", term, before)
	}
	c := w.start("c")
	w.promotable(c)
	b.ended.Store(false)
	b.wire.heal()
	waitFor(t, "b to look", func() bool { s := b.Status(); return s.Loss.Err != nil || len(s.Loads) > 1 })
	_, _, _ = a.Handover(t.Context(), 0, "c")
	now := w.serving(a, b, c)
	if now == b {
		t.Error("D: b serves, and founded the journal anew over what a had acknowledged, want a or c")
	}
	now.has(append(keys("k", 5), "new")...)
	w.follows(now, b)
	if files, err := filepath.Glob(filepath.Join(dir, "diverged-*.state")); err != nil || len(files) != 1 {
		t.Errorf("D: the files are %v (%v), want one with what b held", files, err)
	}
}

// A node remembers a term that etcd knows nothing of: etcd went back. What that term may
// have given away stays in quarantine, and no term is used twice.
func TestATermThatEtcdForgot(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	dir := t.TempDir()
	a := w.start("a", stateIn(dir, time.Hour))
	w.serving(a).mount()
	a.put("k", "m")
	a.end()
	restore := etcd.Backup()
	a = w.start("a", stateIn(dir, time.Hour))
	w.serving(a).put("l")
	before := a.Status().Leader.Term
	waitFor(t, "a to remember its term", func() bool { return a.KnownTerm() == before && a.Kept() })
	dir = w.kill(a, dir)
	restore()
	a = w.start("a", stateIn(dir, time.Hour))
	w.serving(a).has("k")
	if term := a.Status().Leader.Term; term <= before {
		t.Errorf("X: a serves in term %d, want one above %d", term, before)
	}
	if err := a.master.Load().Remove(t.Context(), service.RemoveRequest{Tenant: "default"}, "m"); err != nil {
		t.Fatal(err)
	}
	if s := a.Store().Stats(); s.Quarantined+s.Busy < s.Capacity {
		t.Errorf("A: %d bytes in quarantine and %d in use, of %d; want none free, since term %d may have given them away", s.Quarantined, s.Busy, s.Capacity, before)
	}
}

// A node saw the journal gone for a while, and the last primary does not say whether it holds
// more than what is there now: etcd has probably gone back. What that primary may have given
// away stays in quarantine.
func TestAProbableRollback(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a, b := w.pair(5)
	w.know(a, b)
	w.equal(a, b)
	used := a.Store().Stats().Busy
	a.ended.Store(true) // it answers nobody
	a.wire.cut()
	waitFor(t, "the last head", func() bool { head, _ := readHead(t, etcd); return !a.serves() && b.Status().Head.Seq == head.Seq })
	_, head := readHead(t, etcd)
	do(t, etcd, clientv3.OpDelete(layout.Head()))
	waitFor(t, "b to find the journal lost", func() bool { return b.Status().Loss.Err != nil })
	do(t, etcd, clientv3.OpPut(layout.Head(), head))
	w.serving(b).has(keys("k", 5)...)
	if b.Status().Founded != "" {
		t.Fatal("b founded the journal anew, want it elected")
	}
	if s := b.Store().Stats(); s.Quarantined+used < s.Capacity {
		t.Errorf("A: got %d bytes in quarantine and %d used before, of %d; want all that is free in quarantine", s.Quarantined, used, s.Capacity)
	}
}

// The journal went on without what a node holds, and is beyond its position when the node
// looks: it needs a snapshot, and first keeps what it holds, as it may be the only one.
func TestAForkThatHasPassedANode(t *testing.T) {
	t.Parallel()
	for name, compacted := range map[string]bool{"the history stands": false, "the history is compacted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w, b, start := forkedOff(t, "b", dir, keys("new", 250)...)
			if compacted {
				resp, err := w.etcd.Client(t).Get(t.Context(), layout.Head())
				if err != nil {
					t.Fatal(err)
				}
				w.etcd.Compact(t, resp.Header.Revision)
			}
			b.end()
			a := start()
			w.serving(a).has(append(keys("k", 5), keys("new", 250)...)...)
			b = w.start("b", stateIn(dir, time.Hour)) // it gets a snapshot at once
			w.follows(a, b)
			if files, err := filepath.Glob(filepath.Join(dir, "diverged-*.state")); err != nil || len(files) != 1 {
				t.Errorf("D: the files are %v (%v), want one with what b held", files, err)
			}
		})
	}
}

// An order that founds the journal from one branch of a fork names the node that still
// holds the other one, although no election awaits that node.
func TestAnOrderNamesAForkedNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, b, start := forkedOff(t, "a", dir, "new")
	b.wire.heal()
	waitFor(t, "b to find the fork", func() bool { return b.Status().Forked })
	b.wire.cut() // it stays there, and answers
	a := start()
	b.ended.Store(false)
	w.serving(a)
	var file bytes.Buffer
	if err := a.Backup(t.Context(), &file); err != nil {
		t.Fatal(err)
	}
	w.refused(a, file.Bytes(), errs.Unavailable, "what b holds of another branch of the journal", "a")
	w.refound(a, file.Bytes(), "a", "b")
	b.wire.heal()
	w.follows(a, b)
	a.has(append(keys("k", 5), "new")...)
	if files, err := filepath.Glob(filepath.Join(dir, "diverged-*.state")); err != nil || len(files) == 0 {
		t.Errorf("the files are %v (%v), want one with what b held", files, err)
	}
}

// An operator founds the journal anew from the other branch of a fork, which is longer: a node
// that followed the journal to its end keeps what it gives up.
func TestAnOrderFromTheOtherBranch(t *testing.T) {
	t.Parallel()
	bDir, cDir := t.TempDir(), t.TempDir()
	w, b, start := forkedOff(t, "a", bDir, "new")
	b.end()
	files, err := filepath.Glob(filepath.Join(bDir, "0*.state"))
	if err != nil || len(files) == 0 {
		t.Fatalf("b left the files %v (%v), want one at least", files, err)
	}
	file, err := os.ReadFile(files[len(files)-1])
	if err != nil {
		t.Fatal(err)
	}
	a := start()
	w.serving(a)
	c := w.start("c", stateIn(cDir, time.Hour))
	w.promotable(c)
	w.equal(a, c)
	w.refound(a, file, "a", "b", "c")
	a.has(append(keys("k", 5), keys("l", 200)...)...)
	w.follows(a, c)
	if files, err := filepath.Glob(filepath.Join(cDir, "diverged-*.state")); err != nil || len(files) != 1 {
		t.Errorf("D: the files of c are %v (%v), want one with what it held", files, err)
	}
}

// A backup of etcd is from before the journal was founded anew, twice: that journal is one
// which the nodes' own descends from, so they found it anew once more.
func TestABackupFromBeforeTwoFoundings(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a, b := w.pair(5)
	restore := etcd.Backup()
	before, _ := readHead(t, etcd)
	for _, key := range []string{"l0", "l1"} {
		head, _ := readHead(t, etcd)
		do(t, etcd, clientv3.OpDelete(layout.Head()))
		now := w.founderBehind(head.History, a, b)
		now.put(key)
		for _, n := range []*node{a, b} {
			w.promotable(n)
			waitFor(t, n.id+" to remember the history", func() bool {
				head, _ := readHead(t, etcd)
				return n.Remembers(head.History, before.History)
			})
		}
		w.equal(now, map[*node]*node{a: b, b: a}[now])
	}
	last, _ := readHead(t, etcd)
	restore()
	w.founderBehind(last.History, a, b).has(append(keys("k", 5), "l0", "l1")...)
}

// founderBehind waits until one of the nodes serves a journal that was founded from another.
func (w *cluster) founderBehind(parent journal.History, nodes ...*node) (now *node) {
	w.t.Helper()
	waitFor(w.t, "a new history", func() bool {
		now = w.founder(nodes...)
		return now.Status().Head.Parent == parent
	})
	return now
}

// A node remembers terms that etcd has forgotten, and follows a primary of an earlier term
// that knew of nobody to ask. The next term is beyond all of them, whoever is elected.
func TestTermsOfALostBranchAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"b", "c"} {
		t.Run(next+" is elected", func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.Start(t)
			w := newCluster(t, etcd)
			aDir, bDir := t.TempDir(), t.TempDir()
			a := w.start("a", slack, stateIn(aDir, 100*time.Millisecond))
			w.serving(a).mount()
			a.put("k")
			w.saved(a)
			aDir = copied(t, aDir) // it knows of no other node
			b := w.start("b", slack, stateIn(bDir, time.Hour))
			w.promotable(b)
			b.end()
			restore := etcd.Backup()
			b = w.start("b", slack, stateIn(bDir, time.Hour))
			w.promotable(b)
			a.handsOverTo(b)
			b.handsOverTo(a)
			a.handsOverTo(b)
			lost := b.Status().Leader.Term
			waitFor(t, "b to remember its term", func() bool { return b.KnownTerm() == lost && b.Kept() })
			a.wire.cut()
			a.end()
			bDir = w.kill(b, bDir)
			restore()
			do(t, etcd, clientv3.OpDelete(layout.CompleteNode("b")))
			do(t, etcd, clientv3.OpDelete(layout.Node("b")))

			a = w.start("a", slack, stateIn(aDir, time.Hour))
			w.serving(a).has("k")
			if term := a.Status().Leader.Term; term > lost {
				t.Fatalf("a serves in term %d, want one up to %d", term, lost)
			}
			b = w.start("b", slack, stateIn(bDir, time.Hour))
			c := w.start("c", slack)
			w.promotable(b)
			w.promotable(c)
			w.know(a, b, c)
			w.listed(a, "c")
			waitFor(t, "b to register what it remembers", func() bool {
				nodes, err := a.Nodes(t.Context())
				return err == nil && slices.ContainsFunc(nodes, func(n promote.NodeInfo) bool { return n.ID == "b" && n.LastTerm == lost })
			})
			now := map[string]*node{"b": b, "c": c}[next]
			a.handsOverTo(now)
			if term := now.Status().Leader.Term; term <= lost {
				t.Errorf("X: %s serves in term %d, want one above %d, which b remembers", next, term, lost)
			}
			now.has("k")
		})
	}
}

// A node that has run for long says only what it still waits for, not the time since its start.
func TestWhatANodeStillWaitsFor(t *testing.T) {
	for _, c := range []struct {
		now, leaderless time.Duration
		want            string
	}{
		{9 * time.Second, 2 * time.Second, "10s after its start"},
		{9 * time.Second, 9 * time.Second, "10s after its start"},
		{time.Hour, time.Hour - 5*time.Millisecond, "1s after it saw that nobody leads"},
		{time.Hour, time.Hour - time.Second, ""},
	} {
		if got := promote.WaitsUntil(c.now, 0, c.leaderless, 10*time.Second); got != c.want {
			t.Errorf("at %v, without a leader since %v: got %q, want %q", c.now, c.leaderless, got, c.want)
		}
	}
}
