package promote_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/promote"
)

// stateIn lets a node keep its state files in a directory.
func stateIn(dir string, every time.Duration) func(*promote.Config) {
	return func(c *promote.Config) { c.StateDir, c.StateSaveInterval = dir, every }
}

// copied returns a copy of a directory as it is now: what a node would find that was
// killed at this moment.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "state")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
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
			n.net.t.Errorf("%s: %v", key, err)
		}
	}
}

// Nodes that all stop without a word come back with all that was acknowledged: from
// their files, and the journal behind them. None needs a snapshot.
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
			t.Errorf("%s loaded snapshots: %v", n.id, loads)
		}
		if n != primary {
			w.equal(primary, n)
		}
	}
}

// A lone node that is killed before its first interval is over loses nothing: it
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
	w := newCluster(t, etcdtest.Start(t))
	dir := t.TempDir()
	a := w.start("a", stateIn(dir, time.Hour))
	w.serving(a).mount()
	a.put(keys("k", 20)...)
	at := a.Status().Position.Seq
	a.end()
	a = w.start("a", stateIn(dir, time.Hour))
	if s := a.Status(); s.Saving.Seq != 0 && s.Saving.Seq < at {
		t.Errorf("the file leads to %d, not to %d", s.Saving.Seq, at)
	}
	w.serving(a).has(keys("k", 20)...)
	if saved := a.Status().Saving.Seq; saved < at {
		t.Errorf("the file leads to %d, not to %d", saved, at)
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
		t.Errorf("a served after %v", took)
	}
}

// A node whose journal is gone has the state that it saved: it founds no empty
// journal in its place.
func TestStateWithoutAJournal(t *testing.T) {
	w := newCluster(t, etcdtest.Start(t))
	dir := t.TempDir()
	a := w.start("a", stateIn(dir, time.Hour))
	w.serving(a).mount()
	a.put("k")
	a.end()
	w = newCluster(t, etcdtest.Start(t))
	a = w.start("a", stateIn(dir, time.Hour))
	waitFor(t, "the reason", func() bool { return strings.Contains(a.Status().Self.Why, "the journal is gone") })
	a.serveNot(time.Second)
	if objects := a.Store().Stats().Objects; objects != 1 {
		t.Errorf("%d objects", objects)
	}
}

// Without a directory that can be used a node serves as ever, and says so.
func TestStateThatCannotBeSaved(t *testing.T) {
	w := newCluster(t, etcdtest.Start(t))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := w.start("a", stateIn(file, time.Millisecond))
	w.serving(a).mount()
	a.put("k")
	if s := a.Status().Saving; s.Fault == nil || s.Failures != 1 {
		t.Errorf("%+v", s)
	}
}
