package promote_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/promote"
)

// unreadable puts directories in place of the state files of a directory, as with EIO or
// EACCES, which root never meets.
func unreadable(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.state"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the state files in %s: got %v, %v, want some", dir, files, err)
	}
	for _, file := range files {
		if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
}

// patient is a master that would start empty after an hour without those it awaits.
func patient(c *promote.Config) {
	c.OwnsEtcd, c.Alone, c.RefoundWait, c.WaitForState = true, false, 100*time.Millisecond, time.Hour
}

// stopped runs a cluster until nobody is left who holds a state, but b, which was complete,
// in its file.
func stopped(t *testing.T) (w *cluster, dir string) {
	w = newCluster(t, etcdtest.Start(t))
	a := w.start("a", patient)
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	dir = t.TempDir()
	b := w.start("b", stateIn(dir, 10*time.Millisecond))
	w.promotable(b)
	w.equal(a, b)
	w.saved(b)
	w.listedComplete("a", "b")
	dir = w.kill(b, dir)
	a.vanish()
	w.unregistered("a")
	w.unregistered("b")
	return w, dir
}

// A node that was complete is back and cannot read its state files: a master without a
// state does not start empty beside it, and says why. It comes back with everything when
// it can read them.
func TestEmptyBesideUnreadFiles(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string][]clientv3.Op{
		"with the journal": nil,
		"with no head":     {clientv3.OpDelete(layout.Head())},
		"with nothing":     {clientv3.OpDelete(layout.Head()), clientv3.OpDelete(layout.Complete(), clientv3.WithPrefix())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, dir := stopped(t)
			for _, op := range lost {
				do(t, w.etcd, op)
			}
			spoiled := copied(t, dir)
			unreadable(t, spoiled)
			b := w.start("b", stateIn(spoiled, time.Hour), func(c *promote.Config) { c.MayStartEmpty = false })
			a := w.start("a", patient)
			waitFor(t, "b to be registered", func() bool { nodes, err := a.Nodes(t.Context()); return err == nil && isListed(nodes, "b") })
			waitFor(t, "a to say that it waits for b", func() bool {
				o := a.Status().Obstacle
				return o != nil && o.Cause == promote.AwaitsComplete && o.Awaited == 1 && strings.Contains(o.Reason, "b (everything up to") == (len(lost) < 2)
			})
			a.serveNot(4 * time.Second)
			if o := a.Status().Obstacle; o == nil || !strings.Contains(o.Reason, "files that it could not read") || !strings.Contains(o.Help, "start them again") {
				t.Errorf("a gives the reason %+v, want files that it could not read, and how to start again", o)
			}
			if s := b.Status().Self; !strings.Contains(s.Why, "files that it could not read") {
				t.Errorf("b says %+v, want files that it could not read", s)
			}
			if err := a.AllowEmpty(t.Context(), 0, true); err == nil {
				t.Error("an order to a to start empty beside b: got no error, want a refusal")
			}
			if o, listed := a.Status().Obstacle, len(lost) < 2; o == nil || strings.Contains(o.Help, "or stop them, and give up what they hold: masterctl forget --yes b") != listed {
				t.Errorf("a helps with %+v, want that b be stopped and then forgotten: %v", o, listed)
			} else if err := a.Forget(t.Context(), "b"); listed && (err == nil || !strings.Contains(err.Error(), "without a state; stop it")) {
				t.Errorf("giving up b while it runs: got %v, want to be told to stop it", err)
			}
			b.end()
			if len(lost) > 1 { // nothing in etcd speaks for b any more
				return
			}
			if len(lost) > 0 {
				b = w.start("b", stateIn(spoiled, time.Hour))
				waitFor(t, "b to find its files again", func() bool { return b.Status().Saving.Unread != nil })
				a.serveNot(time.Second)
				return
			}
			b = w.start("b", stateIn(dir, time.Hour))
			if w.serving(a, b) != b {
				t.Fatal("D: a serves empty, want b, which came back with its state")
			}
			b.has(keys("k", 5)...)
		})
	}
}

// A node that is back with its file is awaited until it has compared that with the journal.
func TestEmptyBesideAFileThatIsNotCompared(t *testing.T) {
	t.Parallel()
	w, dir := stopped(t)
	var journal wire
	journal.cut()
	b := w.start("b", stateIn(dir, time.Hour), func(c *promote.Config) {
		c.Client, c.SessionTTL = journal.client(t, w.etcd.Endpoints()), 10*time.Second
	})
	a := w.start("a", patient)
	waitFor(t, "a to wait for b, which runs", func() bool {
		if a.serves() {
			t.Fatal("D: a serves empty, want it to wait for b, which came back with its state")
		}
		o := a.Status().Obstacle
		return o != nil && o.Cause == promote.AwaitsComplete && strings.Contains(o.Reason, "which runs, but it has not compared its state file")
	})
	journal.heal()
	if w.serving(a, b) != b {
		t.Fatal("D: a serves empty, want b, which came back with its state")
	}
	b.has(keys("k", 5)...)
}

// Those who found a lost journal anew wait for a node that cannot read its state files as
// for one that does not answer.
func TestRefoundBesideUnreadFiles(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	wait := func(c *promote.Config) { c.RefoundWait = time.Hour }
	a := w.start("a", wait)
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	dir := t.TempDir()
	b, c := w.start("b", stateIn(dir, 10*time.Millisecond)), w.start("c", wait)
	w.promotable(b)
	w.promotable(c)
	w.saved(b)
	w.listedComplete("a", "b", "c")
	w.know(a, b, c)
	dir = w.kill(b, dir)
	w.unregistered("b")
	spoiled := copied(t, dir)
	unreadable(t, spoiled)
	b = w.start("b", stateIn(spoiled, time.Hour), func(c *promote.Config) { c.Peers = noSnapshot{w} })
	waitFor(t, "b to be registered", func() bool { nodes, err := a.Nodes(t.Context()); return err == nil && isListed(nodes, "b") })
	do(t, w.etcd, clientv3.OpDelete(layout.Head()))
	for _, n := range []*node{a, c} {
		waitFor(t, n.id+" to find the journal lost", func() bool { return n.Status().Loss.Err != nil })
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if a.serves() || c.serves() {
			t.Fatalf("D: got a serving: %v, and c: %v; want no journal founded without what b may hold", a.serves(), c.serves())
		}
	}
	b.end()
	b = w.start("b", stateIn(dir, time.Hour))
	w.serving(a, b, c).has(keys("k", 5)...)
}

func isListed(nodes []promote.NodeInfo, id string) bool {
	for _, n := range nodes {
		if n.ID == id {
			return true
		}
	}
	return false
}

// A master that needs an order to start empty says which nodes hold the state, and are away:
// the order is refused as long.
func TestNodesThatAreAwayAreNamed(t *testing.T) {
	t.Parallel()
	w, _ := stopped(t)
	a := w.start("a", patient, func(c *promote.Config) { c.OwnsEtcd = false })
	waitFor(t, "a to name b", func() bool {
		o := a.Status().Obstacle
		return o != nil && o.Cause == promote.NoneCan && strings.Contains(o.Reason, "b (everything up to sequence") && strings.Contains(o.Help, "masterctl forget --yes b")
	})
}
