package promote_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// ownsEtcd makes a node one that starts empty by itself.
func ownsEtcd(c *promote.Config) {
	c.OwnsEtcd, c.RefoundWait, c.WaitForState = true, 100*time.Millisecond, 100*time.Millisecond
}

// Nothing of a state directory can be loaded, and etcd has lost the journal: the node does
// not start empty over its files, and says what helps. By an operator's order it does,
// and its saves leave the files alone.
func TestStateDirectoryThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(dir, file string) error
		kept  bool // also when the node has saved more than two files
	}{
		"a newer format": {func(_, file string) error {
			return os.WriteFile(file, []byte("understudy state\x02and more"), 0o600)
		}, true},
		"a file that cannot be read": {func(_, file string) error { // as with EIO or EACCES, which root never meets
			return errors.Join(os.Remove(file), os.Mkdir(file, 0o700))
		}, true},
		"damage": {func(_, file string) error { return os.Truncate(file, 100) }, false},
		"no lock": {func(dir, _ string) error {
			_ = os.Remove(filepath.Join(dir, "LOCK"))
			return os.Symlink("/nowhere/LOCK", filepath.Join(dir, "LOCK"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.Start(t)
			w := newCluster(t, etcd)
			dir := t.TempDir()
			a := w.start("a", stateIn(dir, time.Hour))
			w.serving(a).mount()
			a.put(keys("k", 5)...)
			a.end()
			files, err := filepath.Glob(filepath.Join(dir, "*.state"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if err := tc.spoil(dir, file); err != nil {
					t.Fatal(err)
				}
			}
			etcd.Wipe()
			a = w.start("a", stateIn(dir, 10*time.Millisecond), ownsEtcd)
			a.serveNot(2500 * time.Millisecond) // it saves no empty state meanwhile, nor at its end
			a.end()
			a = w.start("a", stateIn(dir, 10*time.Millisecond), ownsEtcd)
			waitFor(t, "a to say that it may have a state", func() bool {
				if a.serves() {
					t.Fatal("D: a serves, empty, over its files, want it to wait for an order")
				}
				o := a.Status().Obstacle
				return o != nil && o.Cause == promote.HoldsFile && strings.Contains(o.Reason, dir) && strings.Contains(o.Help, "start-empty --yes --node=a")
			})
			a.serveNot(500 * time.Millisecond)
			if err := a.AllowEmpty(t.Context(), 0, true); err != nil {
				t.Fatal(err)
			}
			w.serving(a).mount()
			for i := range 3 {
				a.put(fmt.Sprint("l", i))
				before := a.Status().Saving
				waitFor(t, "a save", func() bool { s := a.Status().Saving; return s.Fault != nil || s.Saves > before.Saves })
			}
			if _, err := os.Lstat(files[0]); tc.kept != (err == nil) {
				t.Errorf("%s: %v; want it kept: %v", files[0], err, tc.kept)
			}
		})
	}
}

// A node whose file the journal went on from, and which lost the journal since, does not
// start empty over that file.
func TestLostAfterItsFileWasProven(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	dir := t.TempDir()
	b := w.start("b")
	w.serving(b).mount()
	a := w.start("a", stateIn(dir, 100*time.Millisecond))
	w.promotable(a)
	w.saved(a)
	a.end()
	a = w.start("a", stateIn(dir, time.Hour), ownsEtcd, func(c *promote.Config) { c.Peers = noSnapshot{w} })
	w.promotable(a)
	a.wire.cut()
	b.put(keys("k", 5)...)
	b.vanish()
	do(t, etcd, clientv3.OpDelete(layout.Records(metadata.ObjectEvents), clientv3.WithPrefix()))
	head, err := etcd.Client(t).Get(t.Context(), layout.Head())
	if err != nil {
		t.Fatal(err)
	}
	etcd.Compact(t, head.Header.Revision)
	a.wire.heal()
	waitFor(t, "a to say that it has a file", func() bool {
		if a.serves() {
			t.Fatal("D: a serves, empty, over its file, want it to wait for an order")
		}
		o := a.Status().Obstacle
		return o != nil && o.Cause == promote.HoldsFile && strings.Contains(o.Reason, dir)
	})
	a.serveNot(500 * time.Millisecond)
}

// A directory that is full, or cannot be written, costs a node its saves and nothing
// else: it serves, says so, and deletes no file.
func TestStateDirectoryThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(file string) error{
		"full": func(file string) error { return os.Symlink("/dev/full", file+".tmp") },
		"not writable": func(file string) error {
			return os.MkdirAll(filepath.Join(file+".tmp", "x"), 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCluster(t, etcdtest.Start(t))
			dir := t.TempDir()
			a := w.start("a", stateIn(dir, 10*time.Millisecond))
			w.serving(a).mount()
			w.saved(a)
			for n := range 100 { // one of them is the next
				if err := spoil(filepath.Join(dir, fmt.Sprintf("%012d.state", n))); err != nil {
					t.Fatal(err)
				}
			}
			before, err := filepath.Glob(filepath.Join(dir, "*.state"))
			if err != nil {
				t.Fatal(err)
			}
			a.put("k")
			waitFor(t, "the failure", func() bool { return a.Status().Saving.Fault != nil })
			w.serving(a).has("k")
			for _, file := range before {
				if _, err := os.Stat(file); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
