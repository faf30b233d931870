package promote_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/etcdtest/faultinject"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// stateIn lets a node keep its state files in a directory.
func stateIn(dir string, every time.Duration) func(*promote.Config) {
	return func(c *promote.Config) { c.StateDir, c.StateSaveInterval = dir, every }
}

// A node that starts while etcd elects a leader waits.
func TestStartWhileEtcdElects(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	etcd.Stop(0)
	begun, a := time.Now(), w.start("a")
	waitFor(t, "a to have tried", func() bool { return time.Since(begun) > 4*time.Second })
	etcd.Start(0)
	w.serving(a)
}

// copied returns a copy of a directory as it is now, as a node would find it after a kill at
// this moment.
func copied(t *testing.T, dir string) string {
	t.Helper()
	for {
		to := filepath.Join(t.TempDir(), "state")
		err := os.CopyFS(to, os.DirFS(dir))
		if err == nil {
			return to
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		// A file that was being written got its name meanwhile: once more.
	}
}

// saved waits until a node has a file that holds all that it has applied so far.
func (w *cluster) saved(n *node) {
	w.t.Helper()
	at := n.Status().Position.Seq
	waitFor(w.t, "a state file of "+n.id, func() bool { return n.Status().Saving.Seq >= at })
}

// has checks that a node serves keys.
func (n *node) has(keys ...string) {
	n.net.t.Helper()
	for _, key := range keys {
		if err := n.get(key); err != nil {
			n.net.t.Errorf("D: %s: got %v, want it there", key, err)
		}
	}
}

// Nodes that are all killed come back with everything that was acknowledged: from their files,
// and the journal after them. None needs a snapshot.
func TestRestartOfEverything(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	dirs := map[string]string{"a": t.TempDir(), "b": t.TempDir()}
	a := w.start("a", stateIn(dirs["a"], 100*time.Millisecond))
	w.serving(a).mount()
	a.put(keys("k", 20)...)
	b := w.start("b", stateIn(dirs["b"], 100*time.Millisecond))
	w.promotable(b)
	w.saved(a)
	w.saved(b)
	for id, dir := range dirs {
		dirs[id] = copied(t, dir)
	}
	a.put(keys("l", 20)...) // behind the files
	for _, n := range []*node{b, a} {
		n.wire.cut()
		n.end()
	}
	a, b = w.start("a", stateIn(dirs["a"], time.Hour)), w.start("b", stateIn(dirs["b"], time.Hour))
	primary := w.serving(a, b)
	primary.has(append(keys("k", 20), keys("l", 20)...)...)
	primary.put("after")
	for _, n := range []*node{a, b} {
		w.promotable(n)
		if loads := n.Status().Loads; len(loads) > 0 {
			t.Errorf("%s loaded snapshots %v, want none: it has a file", n.id, loads)
		}
		if n != primary {
			w.equal(primary, n)
		}
	}
}

// A lone node that is killed before its first save interval has passed loses nothing, since it
// saves once before there is a journal.
func TestRestartBeforeTheFirstSave(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	dir := t.TempDir()
	a := w.start("a", stateIn(dir, time.Hour))
	w.serving(a).mount()
	dir = copied(t, dir)
	a.put(keys("k", 20)...)
	a.wire.cut()
	a.end()
	a = w.start("a", stateIn(dir, time.Hour))
	w.serving(a).has(keys("k", 20)...)
}

// A node that stops in order saves its state, so that it needs no journal.
func TestRestartInOrder(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	dir := t.TempDir()
	a := w.start("a", stateIn(dir, time.Hour))
	w.serving(a).mount()
	a.put(keys("k", 20)...)
	at := a.Status().Position.Seq
	a.end()
	a = w.start("a", stateIn(dir, time.Hour))
	if s := a.Status(); s.Saving.Seq != 0 && s.Saving.Seq < at {
		t.Errorf("the state file at the start leads to %d, want %d or more: a node saves when it stops", s.Saving.Seq, at)
	}
	w.serving(a).has(keys("k", 20)...)
	if saved := a.Status().Saving.Seq; saved < at {
		t.Errorf("the state file leads to %d, want %d or more: a node saves when it stops", saved, at)
	}
}

// A node that is started again takes over its own keys in etcd, instead of waiting
// for them to expire; one without its directory waits.
func TestRestartTakesOverItsKeys(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	dir := t.TempDir()
	slow := func(c *promote.Config) { c.SessionTTL, c.FailoverAfter = 25*time.Second, 0 }
	a := w.start("a", stateIn(dir, time.Hour), slow)
	w.serving(a).mount()
	a.put("k")
	dir = copied(t, dir)
	a.wire.cut()
	go a.end() // it cannot give its leases back
	begun := time.Now()
	a = w.start("a", stateIn(dir, time.Hour), slow)
	w.serving(a).has("k")
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("a served after %v, want 20s at most", took)
	}
}

// kill ends a node as SIGKILL would, and returns its directory as it was then.
func (w *cluster) kill(n *node, dir string) string {
	w.t.Helper()
	dir = copied(w.t, dir)
	n.wire.cut()
	n.end()
	return dir
}

// keepsItsFile waits until a node reports that only an operator can decide, and checks that it
// keeps its state and does not serve.
func (n *node) keepsItsFile(objects int64, why string) {
	n.net.t.Helper()
	waitFor(n.net.t, n.id+" to say that its state is from a file", func() bool {
		o := n.Status().Obstacle
		return o != nil && o.Cause == promote.HoldsFile && strings.Contains(o.Reason, why) && strings.Contains(o.Help, "--from "+n.id)
	})
	n.serveNot(500 * time.Millisecond)
	if s := n.Status(); s.Self.Promotable || !s.Restored || n.Store().Stats().Objects != objects {
		n.net.t.Errorf("got %d objects and %+v, want %d from the file, and not promotable", n.Store().Stats().Objects, s, objects)
	}
}

// If etcd is wiped and all nodes restart, their files may lack acknowledged commits. So they
// found no journal by themselves, not even an empty one.
func TestWipeAndRestartOfEverything(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	dirs := map[string]string{"a": t.TempDir(), "b": t.TempDir()}
	brief := func(c *promote.Config) { c.RefoundWait, c.OwnsEtcd = 100*time.Millisecond, true }
	a := w.start("a", stateIn(dirs["a"], 100*time.Millisecond))
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	b := w.start("b", stateIn(dirs["b"], 100*time.Millisecond))
	w.promotable(b)
	w.saved(a)
	w.saved(b)
	w.know(a, b)
	dirs["a"], dirs["b"] = w.kill(a, dirs["a"]), w.kill(b, dirs["b"])
	etcd.Wipe()
	a, b = w.start("a", stateIn(dirs["a"], time.Hour), brief), w.start("b", stateIn(dirs["b"], time.Hour), brief)
	for _, n := range []*node{a, b} {
		n.keepsItsFile(5, "no head")
		if known := n.Known(); known != 1 {
			t.Errorf("%s remembers %d nodes, want 1", n.id, known)
		}
	}
}

// A foreign journal whose term and sequence fit those of a state file is no continuation of it.
func TestFileOfAnotherJournal(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	dir := t.TempDir()
	a := w.start("a", stateIn(dir, 100*time.Millisecond))
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	w.saved(a)
	dir = w.kill(a, dir)
	etcd.Wipe()
	b := w.start("b")
	w.serving(b).mount()
	b.put(keys("l", 5)...)
	waitFor(t, "as many commits", func() bool { return b.Status().Position.Seq > a.Status().Position.Seq })
	a = w.start("a", stateIn(dir, time.Hour))
	waitFor(t, "the loss", func() bool {
		why := a.Status().Self.Why
		return strings.Contains(why, "of history")
	})
	b.wire.cut()
	b.end()
	a.keepsItsFile(5, "of history")
}

// A node whose file is older than etcd's history and records does not start empty over it, and
// keeps the file.
func TestFileBehindACompaction(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	dir := t.TempDir()
	a := w.start("a", stateIn(dir, 100*time.Millisecond))
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	w.saved(a)
	dir = copied(t, dir)
	a.put(keys("l", 5)...)
	a.wire.cut()
	a.end()
	do(t, etcd, clientv3.OpDelete(layout.Records(metadata.ObjectEvents), clientv3.WithPrefix()))
	resp, err := etcd.Client(t).Get(t.Context(), layout.Head())
	if err != nil {
		t.Fatal(err)
	}
	etcd.Compact(t, resp.Header.Revision)
	a = w.start("a", stateIn(dir, time.Hour), func(c *promote.Config) { c.OwnsEtcd = true })
	a.keepsItsFile(5, "(compacted)")
}

// expired waits until etcd has ended the lease of a record that lives for as long as
// --events-ttl, and is written now.
func expired(t *testing.T, etcd *etcdtest.Cluster, ttl time.Duration) {
	t.Helper()
	client := etcd.Client(t)
	lease, err := client.Grant(t.Context(), int64((ttl+7*time.Second)/time.Second))
	if err != nil {
		t.Fatal(err)
	}
	const key = "/probe"
	do(t, etcd, clientv3.OpPut(key, "", clientv3.WithLease(lease.ID)))
	waitFor(t, "the end of a lease", func() bool {
		resp, err := client.Get(t.Context(), key)
		return err == nil && len(resp.Kvs) == 0
	})
}

// An etcd that compacts itself goes on compacting while all nodes are down. The commits that
// their files lack are in records, which stay until the files cover them, not only for
// --events-ttl.
func TestRestartBehindAnEtcdThatCompactsItself(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	dirs := map[string]string{"a": t.TempDir(), "b": t.TempDir()}
	external := func(c *promote.Config) { c.Compact, c.EventsTTL = false, time.Second }
	a := w.start("a", stateIn(dirs["a"], time.Hour), external)
	w.serving(a).mount()
	a.put(keys("k", 20)...)
	b := w.start("b", stateIn(dirs["b"], time.Hour), external)
	w.promotable(b)
	for _, n := range []*node{a, b} {
		waitFor(t, "the first file of "+n.id, func() bool { return n.Status().Saving.Saves > 0 })
	}
	for id, dir := range dirs {
		dirs[id] = copied(t, dir)
	}
	a.put(keys("l", 20)...) // behind the files
	for _, n := range []*node{b, a} {
		n.wire.cut()
		n.end()
	}
	expired(t, etcd, time.Second)
	do(t, etcd, clientv3.OpPut("/other", ""))
	resp, err := etcd.Client(t).Get(t.Context(), layout.Head())
	if err != nil {
		t.Fatal(err)
	}
	etcd.Compact(t, resp.Header.Revision)
	a, b = w.start("a", stateIn(dirs["a"], time.Hour), external), w.start("b", stateIn(dirs["b"], time.Hour), external)
	waitFor(t, "a node to serve, or to find records missing", func() bool {
		o := a.Status().Obstacle
		return a.serves() || b.serves() || o != nil && strings.Contains(o.Reason, "(compacted)")
	})
	if !a.serves() && !b.serves() {
		t.Fatal(a.Status().Obstacle.Reason)
	}
	primary := w.serving(a, b)
	primary.has(append(keys("k", 20), keys("l", 20)...)...)
	for _, n := range []*node{a, b} {
		w.promotable(n)
		if loads := n.Status().Loads; len(loads) > 0 {
			t.Errorf("%s loaded snapshots %v, want none: the records stand", n.id, loads)
		}
		if n != primary {
			w.equal(primary, n)
		}
	}
}

// A file is useful as long as the records reach back to it, even if etcd's history does not.
// When the records are gone as well, the next save is due at once.
func TestFileFromWhichRecordsLeadOn(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a", stateIn(t.TempDir(), time.Hour), func(c *promote.Config) { c.Compact = false })
	w.serving(a).mount()
	looks := func() {
		t.Helper()
		for range 3 {
			at := a.Status().Position.Seq // beats go on
			until := time.Now().Add(1100 * time.Millisecond)
			waitFor(t, "a second", func() bool { return a.Status().Position.Seq > at && time.Now().After(until) })
		}
	}
	compact := func() {
		t.Helper()
		resp, err := etcd.Client(t).Get(t.Context(), layout.Head())
		if err != nil {
			t.Fatal(err)
		}
		etcd.Compact(t, resp.Header.Revision)
	}
	a.put(keys("k", 5)...)
	looks()
	file := a.Status().Saving
	compact()
	looks()
	if s := a.Status().Saving; !s.Restorable || s.Saves != file.Saves {
		t.Errorf("behind a compaction: %+v, want that it is restorable, as %+v", s, file)
	}
	do(t, etcd, clientv3.OpDelete(layout.Records(metadata.ObjectEvents), clientv3.WithPrefix()))
	waitFor(t, "the next file", func() bool { return a.Status().Saving.Saves > file.Saves })
}

// A node that restarts from its file while etcd is wiped asks the living node, which it
// remembers. That one founds the journal anew, or this one if its file has more.
func TestFileBesideALivingNode(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]bool{"the file is behind": false, "the file is ahead": true} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t)
			w := newCluster(t, etcd)
			dir := t.TempDir()
			a := w.start("a", stateIn(dir, 100*time.Millisecond))
			w.serving(a).mount()
			a.put(keys("k", 5)...)
			b := w.start("b")
			w.promotable(b)
			w.saved(a)
			w.know(a, b)
			if ahead {
				b.wire.cut()
			}
			a.put(keys("l", 5)...)
			if ahead {
				w.saved(a)
			}
			dir = w.kill(a, dir)
			etcd.Wipe()
			a = w.start("a", stateIn(dir, time.Hour))
			waitFor(t, "a to miss its journal", func() bool { return a.Status().Self.Lost != "" })
			if ahead {
				b.wire.heal()
			}
			now := w.serving(a, b)
			now.has(append(keys("k", 5), keys("l", 5)...)...)
			if want := map[bool]string{true: "a", false: "b"}[ahead]; now.id != want {
				t.Errorf("%s founded the journal, want %s", now.id, want)
			}
			if ahead && quarantined(now) == 0 {
				t.Error("A: got nothing in quarantine, want some: a may have acknowledged more than its file has")
			}
		})
	}
}

// Without a usable state directory a node serves as usual, and reports the problem.
func TestStateThatCannotBeSaved(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := w.start("a", stateIn(file, time.Millisecond))
	w.serving(a).mount()
	a.put("k")
	if s := a.Status().Saving; s.Fault == nil || s.Failures != 1 {
		t.Errorf("got %+v, want one failure to save, and the fault", s)
	}
}

// Living nodes found the journal anew, and all of them are killed as soon as one has
// acknowledged something: its file leads to the new journal already.
func TestRestartAfterAFounding(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	dirs := map[string]string{"a": t.TempDir(), "b": t.TempDir()}
	soon := func(c *promote.Config) { c.FailoverAfter = 200 * time.Millisecond } // so, mostly, before the saver looks
	a := w.start("a", stateIn(dirs["a"], time.Hour), soon)
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	b := w.start("b", stateIn(dirs["b"], time.Hour), soon)
	w.promotable(b)
	w.know(a, b)
	waitFor(t, "b's first file", func() bool { return b.Status().Saving.Saves > 0 })
	before := w.serving(a, b) // the failover time is so short that b may have taken over
	before.put("l")
	w.equal(before, map[*node]*node{a: b, b: a}[before])
	do(t, etcd, clientv3.OpDelete(layout.Head()))
	w.founder(a, b).put("new")
	for id, dir := range dirs {
		dirs[id] = copied(t, dir)
	}
	for _, n := range []*node{b, a} {
		n.wire.cut()
	}
	for _, n := range []*node{b, a} {
		n.end()
	}
	resp, err := etcd.Client(t).Get(t.Context(), layout.Head())
	if err != nil {
		t.Fatal(err)
	}
	etcd.Compact(t, resp.Header.Revision) // as if the data were lost, and not the head alone
	a, b = w.start("a", stateIn(dirs["a"], time.Hour)), w.start("b", stateIn(dirs["b"], time.Hour))
	w.serving(a, b).has(append(keys("k", 5), "l", "new")...)
}

// A node that is stopped while its etcd is compacted or defragmented still saves its state, and
// ends in time.
func TestTheLastSaveDoesNotWaitForEtcd(t *testing.T) {
	t.Parallel()
	etcd, dir := etcdtest.Start(t), t.TempDir()
	hung, release := make(chan struct{}), make(chan struct{})
	run := &faultinject.Run{
		Kind: faultinject.QuestionLost, I: 1, Row: 1,
		OnFault: func() { close(hung); <-release },
		Skip:    func(method string, _ int) bool { return !strings.HasSuffix(method, "Maintenance/Status") },
	}
	w := newCluster(t, etcd)
	a := w.start("a", owner, stateIn(dir, time.Hour), func(c *promote.Config) { c.Client = etcd.Client(t, run.DialOptions()...) })
	w.serving(a).mount()
	run.Arm()
	<-hung
	a.put("k")
	want, begun := a.Status().Position.Seq, time.Now()
	a.end()
	took := time.Since(begun)
	close(release)
	if saved := a.Status().Saving.Seq; saved < want || took > 20*time.Second || !a.EtcdBusy() {
		t.Errorf("it ended after %v with a file of sequence %d, want soon, and %d (etcd is busy: %t)", took, saved, want, a.EtcdBusy())
	}
}
