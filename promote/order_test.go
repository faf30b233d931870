package promote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/promote/statefile"
)

// refound orders a node to found the journal anew, and waits until it serves.
func (w *cluster) refound(n *node, file []byte, giveUp ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	term, _, err := n.refoundNow(ctx, file, giveUp...)
	if err != nil {
		w.t.Fatalf("refounding with %s: got %v, want no error", n.id, err)
	}
	waitFor(w.t, n.id+" to serve", func() bool { return n.serves() && n.Status().Leader.Term >= term })
}

// follows waits until a node follows the journal of another one, and compares their states.
// Until it learns of that journal, it is complete in the earlier one.
func (w *cluster) follows(now, n *node) {
	w.t.Helper()
	waitFor(w.t, n.id+" to go on with the new journal", func() bool {
		s := n.Status()
		return s.Self.Promotable && s.Head.History == now.Status().Head.History
	})
	w.equal(now, n)
}

func (n *node) refoundNow(ctx context.Context, file []byte, giveUp ...string) (metadata.Term, metadata.Seq, error) {
	if file == nil {
		return n.Refound(ctx, giveUp, nil)
	}
	return n.Refound(ctx, giveUp, &statefile.Upload{Reader: bytes.NewReader(file)})
}

// refused checks that an order is refused, with a reason.
func (w *cluster) refused(n *node, file []byte, kind errs.Kind, reason string, giveUp ...string) {
	w.t.Helper()
	_, _, err := n.refoundNow(w.t.Context(), file, giveUp...)
	if errs.KindOf(err) != kind || !strings.Contains(err.Error(), reason) {
		w.t.Errorf("refounding with %s, giving up %q: got %v; want %v with %q", n.id, giveUp, err, kind, reason)
	}
}

// An unreadFile counts how many bytes are read of it.
type unreadFile struct {
	*bytes.Reader
	size      int
	announced uint64
	head      string
}

func unread(file []byte) *unreadFile {
	return &unreadFile{Reader: bytes.NewReader(file), size: len(file)}
}

// announcedAs returns an unread file with the announcement of its head in the journal and of
// its size.
func (w *cluster) announcedAs(file []byte, bytes uint64) *unreadFile {
	w.t.Helper()
	name := filepath.Join(w.t.TempDir(), "state")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		w.t.Fatal(err)
	}
	info, err := statefile.Inspect(name)
	if err != nil {
		w.t.Fatal(err)
	}
	head, err := json.Marshal(info.Head)
	if err != nil {
		w.t.Fatal(err)
	}
	u := unread(file)
	u.announced, u.head = bytes, string(head)
	return u
}

// refusedUnread checks that an order is refused after at most most bytes of its file were read.
func (w *cluster) refusedUnread(n *node, file *unreadFile, most int, kind errs.Kind, reason string, giveUp ...string) {
	w.t.Helper()
	_, _, err := n.Refound(w.t.Context(), giveUp, &statefile.Upload{Reader: file, Bytes: file.announced, Head: file.head})
	if errs.KindOf(err) != kind || !strings.Contains(err.Error(), reason) {
		w.t.Errorf("refounding with %s, giving up %q: got %v; want %v with %q", n.id, giveUp, err, kind, reason)
	}
	if read := file.size - file.Len(); read > most {
		w.t.Errorf("%d bytes of the file were read, want %d at most", read, most)
	}
}

// An order founds the journal anew from a backup of a running node, on a standby or on the
// primary, if it gives up exactly what would be lost. All other nodes go on with that journal.
func TestRefoundFromABackup(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a", steady, stateIn(t.TempDir(), time.Hour))
	w.serving(a).mount()
	a.put(keys("k", 20)...)
	b, c := w.start("b", steady, stateIn(t.TempDir(), time.Hour)), w.start("c", steady)
	w.promotable(b)
	w.promotable(c)
	w.know(a, b, c)
	w.equal(a, b)
	var file bytes.Buffer
	if err := b.Backup(t.Context(), &file); err != nil {
		t.Fatal(err)
	}
	a.put(keys("l", 20)...)
	w.equal(a, b)
	w.equal(a, c)

	w.refused(b, nil, errs.Unavailable, "handover")
	w.refused(b, file.Bytes()[:file.Len()/2], errs.InvalidParams, "the file that was sent", "a")
	w.refusedUnread(b, unread(file.Bytes()), 0, errs.Unavailable, "whatever the file holds, this would be lost: what a acknowledged as the primary")
	whole := uint64(file.Len())
	w.refusedUnread(b, w.announcedAs(file.Bytes(), whole), 0, errs.Unavailable, "--yes=a,b,c")
	w.refusedUnread(b, w.announcedAs(file.Bytes(), whole), 0, errs.Unavailable, "--yes=a,b,c", "a")
	w.refusedUnread(b, w.announcedAs(file.Bytes(), 1<<60), 0, errs.InvalidParams, "free some, or send it to another node", "a", "b", "c")
	lies := w.announcedAs(file.Bytes(), whole)
	lies.head = "{}"
	w.refusedUnread(b, lies, 0, errs.InvalidParams, "where the file leads in the journal", "a", "b", "c")
	w.refusedUnread(b, unread([]byte(strings.Repeat("x", 1<<20))), 64<<10, errs.InvalidParams, "it is no state file", "a")
	other := bytes.Replace(file.Bytes(), []byte(`"cluster_id":"`), []byte(`"cluster_id":"x`), 1)
	other[len("understudy state")+2]++ // the length of its header
	w.refusedUnread(b, unread(append(other, make([]byte, 1<<20)...)), 64<<10, errs.InvalidParams, "it is of cluster", "a")
	w.refused(b, file.Bytes(), errs.Unavailable, "--yes=a,b,c", "a")
	w.refused(b, file.Bytes(), errs.Unavailable, "what a acknowledged as the primary", "b", "c")
	do(t, etcd, clientv3.OpPut(layout.CompleteNode("z"), `{"node_id":"z","rpc_address":"z","term":1,"sequence":9}`))
	w.refused(b, file.Bytes(), errs.Unavailable, "what z may hold, which does not answer or cannot read its state files; to give that up, add --yes=a,b,c,z", "a", "b", "c")
	b.forget("z")
	w.know(a, b, c) // and no more z
	w.refused(b, file.Bytes(), errs.Unavailable, "--yes=a,b,c", "a", "b", "c", "d")
	before, _ := readHead(t, etcd)
	w.refound(b, file.Bytes(), "c", "b", "a")
	after := func(now *node, others ...*node) {
		t.Helper()
		now.has(keys("k", 20)...)
		for _, key := range keys("l", 20) {
			if err := now.get(key); errs.KindOf(err) != errs.ObjectNotFound {
				t.Errorf("%s, which was put behind the backup: got %v, want ObjectNotFound", key, err)
			}
		}
		if s := now.Store().Stats(); s.Quarantined+s.Busy < s.Capacity {
			t.Errorf("A: got %d bytes in quarantine and %d in use of %d, want all of them: free memory may be another object's",
				s.Quarantined, s.Busy, s.Capacity)
		}
		for _, n := range others {
			w.follows(now, n)
		}
	}
	head, _ := readHead(t, etcd)
	if head.History == before.History || head.Parent != before.History || head.Term < before.Term+1024 {
		t.Errorf("the head is %+v; want a history founded from %s, in a term far above %d", head, before.History, before.Term)
	}
	after(b, a, c)
	if a.serves() {
		t.Error("b has founded the journal anew: a serves, want it replaced")
	}
	if saved := b.Status().Saving; saved.Seq < head.Fork {
		t.Errorf("b's state file leads to %d; want one of the new journal, founded at %d", saved.Seq, head.Fork)
	}

	w.refused(b, nil, errs.Unavailable, "elected already")
	w.refused(b, file.Bytes(), errs.Unavailable, "what b acknowledged as the primary", "a")
	w.refused(b, file.Bytes(), errs.Unavailable, "--yes=a,b,c", "a", "b")
	w.refound(b, file.Bytes(), "a", "b", "c")
	after(b, a, c)
	list, err := b.Terms(t.Context())
	if err != nil || len(list) < 3 || !strings.Contains(list[1].End, "an operator's order") {
		t.Errorf("got %+v, %v; want three terms, of which the second ended by an operator's order", list, err)
	}
}

// The journal is lost, and the last primary does not answer. A node that would wait for it
// founds the journal at once if an operator's order names that primary.
func TestRefoundWithoutWaiting(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	patient := func(c *promote.Config) { c.RefoundWait = time.Hour }
	a := w.start("a", patient)
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	b := w.start("b", patient)
	w.promotable(b)
	w.know(a, b)
	w.equal(a, b)
	a.ended.Store(true) // it answers nobody
	a.wire.cut()
	do(t, etcd, clientv3.OpDelete(layout.Root, clientv3.WithPrefix()))
	waitFor(t, "b to see the loss", func() bool { return b.Status().Loss.Err != nil })
	w.refused(b, nil, errs.Unavailable, "a may hold, which does not answer or cannot read its state files; to give that up, add --yes=a")
	begun := time.Now()
	w.refound(b, nil, "a")
	t.Logf("served %v after the order", time.Since(begun))
	b.has(keys("k", 5)...)
	if said := b.Status().Founded; !strings.Contains(said, "what a held beyond that is given up") {
		t.Errorf("it says %q, want what a held beyond that is given up", said)
	}
}

// A node that was started with a state file without its journal founds a journal from the file
// when an operator orders it.
func TestRefoundFromAStateFile(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	dir := t.TempDir()
	a := w.start("a", stateIn(dir, time.Hour))
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	a.end()
	w = newCluster(t, etcdtest.Start(t))
	a = w.start("a", stateIn(dir, time.Hour))
	waitFor(t, "a to be refounded from", func() bool {
		_, _, err := a.refoundNow(t.Context(), nil)
		return err == nil || a.serves()
	})
	w.serving(a).has(keys("k", 5)...)
}

// An operator gives up a journal that began while a node with a complete state was away, in
// favour of that state. The nodes of that journal then follow.
func TestRefoundOverAnotherJournal(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a")
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	var file bytes.Buffer
	if err := a.Backup(t.Context(), &file); err != nil {
		t.Fatal(err)
	}
	a.end()
	do(t, etcd, clientv3.OpDelete(layout.Root, clientv3.WithPrefix()))
	b := w.start("b", steady)
	w.serving(b).mount()
	b.put(keys("x", 5)...)
	c := w.start("c", steady)
	w.promotable(c)
	w.refused(c, file.Bytes(), errs.Unavailable, "what b acknowledged as the primary")
	w.refound(c, file.Bytes(), "b", "c")
	c.has(keys("k", 5)...)
	w.follows(c, b)
	if loads := b.Status().Loads[journal.ReasonFounded]; loads != 1 {
		t.Errorf("b loaded %d snapshots of the new journal, want 1", loads)
	}
}

// A node comes back with its state, and etcd has a journal that others founded while it was
// away. The node keeps the state. An order makes it the primary with that state, and the
// others follow.
func TestRefoundFromANodeThatWasAway(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a", stateIn(t.TempDir(), time.Hour))
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	a.wire.cut()
	waitFor(t, "the end of a's answers", func() bool { return !a.serves() })
	do(t, etcd, clientv3.OpDelete(layout.Root, clientv3.WithPrefix()))
	b := w.start("b")
	w.serving(b).mount()
	b.put(keys("x", 5)...)
	a.wire.heal()
	waitFor(t, "a to see another journal", func() bool { l := a.Status().Loss.Err; return l != nil && l.Foreign })
	w.refused(a, nil, errs.Unavailable, "what b acknowledged as the primary")
	w.refound(a, nil, "b")
	a.has(keys("k", 5)...)
	if b.serves() {
		t.Error("a has founded the journal anew: b serves, want it replaced")
	}
	w.follows(a, b)
}

// The founder of a journal fails before the first commit of its term. The node that is elected
// next must commit the quarantine in its place.
func TestRefoundThatFailsAtItsFirstCommit(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a")
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	var b *node
	var once sync.Once
	ready := make(chan struct{})
	b = w.start("b", func(c *promote.Config) {
		c.LeaderChanged = func(l promote.Leader) {
			if l.NodeID == "b" && l.Term > 1024 {
				<-ready
				once.Do(b.wire.cut) // the journal is founded, and nothing is committed in it
			}
		}
	})
	close(ready)
	w.promotable(b)
	w.know(a, b)
	w.equal(a, b)
	a.ended.Store(true)
	a.wire.cut()
	do(t, etcd, clientv3.OpDelete(layout.Root, clientv3.WithPrefix()))
	waitFor(t, "b to see the loss", func() bool { return b.Status().Loss.Err != nil })
	if _, _, err := b.refoundNow(t.Context(), nil, "a"); err != nil {
		t.Fatal(err)
	}
	founded, _ := readHead(t, etcd)
	waitFor(t, "the end of b's election", func() bool {
		resp, err := etcd.Client(t).Get(t.Context(), layout.Leader())
		return err == nil && len(resp.Kvs) == 0
	})
	b.wire.heal()
	w.serving(b).has(keys("k", 5)...)
	if term := b.Status().Leader.Term; term <= founded.Term {
		t.Fatalf("b serves in term %d, in which the journal was founded; want a later one", term)
	}
	if s := b.Store().Stats(); s.Quarantined+s.Busy < s.Capacity {
		t.Errorf("A: got %d bytes in quarantine and %d in use of %d, want all of them: free memory may be another object's",
			s.Quarantined, s.Busy, s.Capacity)
	}
}
