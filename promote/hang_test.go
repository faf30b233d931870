package promote_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/understudy-store/understudy/etcdtest"
)

// hang makes writes to a state directory hang until the test ends, as on a hanging disk: it
// puts pipes, from which nobody reads, in place of the files.
func hang(t *testing.T, dir string) {
	t.Helper()
	names := []string{"cluster"}
	for n := range 100 {
		names = append(names, fmt.Sprintf("%012d.state", n))
	}
	for i, name := range names {
		names[i] = filepath.Join(dir, name+".tmp")
		if err := unix.Mkfifo(names[i], 0o600); err != nil && !errors.Is(err, os.ErrExist) { // it is being written
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, name := range names {
			if pipe, err := os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK, 0); err == nil {
				t.Cleanup(func() { _ = pipe.Close() })
			}
			_ = os.Remove(name)
		}
	})
}

// While a node's disk hangs, it is elected, serves, ends its term, follows again, founds the
// journal anew and stops, each in about the usual time.
func TestAHangingStateDisk(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a")
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	dir := t.TempDir()
	b := w.start("b", stateIn(dir, 10*time.Millisecond))
	w.promotable(b)
	w.know(a, b)
	w.saved(b)
	var file bytes.Buffer
	if err := b.Backup(t.Context(), &file); err != nil {
		t.Fatal(err)
	}
	hang(t, dir)
	c := w.start("c")
	w.promotable(c)
	waitFor(t, "b to write down that there is c", func() bool { return b.Known() == 2 })
	saved := b.Status().Saving.Saves
	a.put("l")
	w.equal(a, b)

	waitFor(t, "b to be the primary", func() bool {
		if a.serves() {
			_, _, _ = a.Handover(t.Context(), 0, "b")
		}
		return b.serves()
	})
	b.put("m")
	b.wire.cut()
	w.serving(a, c)
	b.wire.heal()
	waitFor(t, "b to follow again", func() bool { return b.Status().Self.Promotable && !b.serves() })
	w.refound(b, file.Bytes(), "a", "b", "c")
	b.has(keys("k", 5)...)
	if s := b.Status().Saving; s.Saves > saved+1 { // one may have been under way
		t.Fatalf("b's disk hangs: got %d saves, want %d as before, or one that was under way", s.Saves, saved)
	}
	b.end()
}
