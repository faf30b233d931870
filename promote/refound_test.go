package promote_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/promote/statefile"
)

// losses are ways to lose the journal while nodes live on.
var losses = map[string]func(t *testing.T, etcd *etcdtest.Cluster, old string){
	"head deleted": func(t *testing.T, etcd *etcdtest.Cluster, _ string) {
		do(t, etcd, clientv3.OpDelete(layout.Head()))
	},
	"garbage": func(t *testing.T, etcd *etcdtest.Cluster, _ string) {
		do(t, etcd, clientv3.OpPut(layout.Head(), "garbage"))
	},
	"an old head": func(t *testing.T, etcd *etcdtest.Cluster, old string) {
		do(t, etcd, clientv3.OpPut(layout.Head(), old))
	},
	"everything deleted": func(t *testing.T, etcd *etcdtest.Cluster, _ string) {
		do(t, etcd, clientv3.OpDelete(layout.Root, clientv3.WithPrefix()))
	},
	"etcd wiped": func(_ *testing.T, etcd *etcdtest.Cluster, _ string) { etcd.Wipe() },
}

func do(t *testing.T, etcd *etcdtest.Cluster, op clientv3.Op) {
	t.Helper()
	if _, err := etcd.Client(t).Do(t.Context(), op); err != nil {
		t.Fatal(err)
	}
}

func readHead(t *testing.T, etcd *etcdtest.Cluster) (journal.Head, string) {
	t.Helper()
	client := etcd.Client(t)
	defer func() { _ = client.Close() }() // now, as tests read it until it changes
	resp, err := client.Get(t.Context(), layout.Head())
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("reading the head: got %v, %v, want one key", resp, err)
	}
	head, err := journal.DecodeHead(resp.Kvs[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	return head, string(resp.Kvs[0].Value)
}

// The journal is lost, and complete nodes live. One of them founds it anew, with the whole
// state, in a new history and a much higher term. The others follow without a snapshot.
func TestTheJournalIsFoundedAnew(t *testing.T) {
	t.Parallel()
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t)
			w := newCluster(t, etcd)
			a := w.start("a")
			w.serving(a).mount()
			_, old := readHead(t, etcd)
			a.put(keys("k", 20)...)
			b, c := w.start("b"), w.start("c")
			w.promotable(b)
			w.promotable(c)
			w.know(a, b, c)
			before, _ := readHead(t, etcd)
			begun := time.Now()
			lose(t, etcd, old)
			now := w.founder(a, b, c)
			t.Logf("served again after %v", time.Since(begun))
			now.has(keys("k", 20)...)
			now.put("new")
			head, _ := readHead(t, etcd)
			if head.History == before.History || head.Parent != before.History || head.Term < before.Term+1024 || head.Fork < before.Seq {
				t.Errorf("got head %+v behind %+v, want a new history that forks there or later, with a term 1024 above", head, before)
			}
			for _, n := range []*node{a, b, c} {
				if n != now {
					w.promotable(n)
					w.equal(now, n)
					if loads := n.Status().Loads[journal.ReasonFounded]; loads > 0 {
						t.Errorf("%s loaded %d snapshots, want none: it was where the founder was", n.id, loads)
					}
				}
			}
			if free := quarantined(now); free != 0 {
				t.Errorf("got %d bytes in quarantine, want none: the last primary took part", free)
			}
		})
	}
}

func quarantined(n *node) uint64 { return n.Store().Stats().Quarantined }

// founder waits for the node that serves because it has founded the journal anew.
func (w *cluster) founder(nodes ...*node) (now *node) {
	w.t.Helper()
	defer func() {
		for _, n := range nodes {
			if s := n.Status(); now == nil {
				w.t.Logf("%s: role %v, term %d, serves %v, loss %v, obstacle %+v", n.id, s.Self.Role, s.Leader.Term, n.serves(), s.Loss.Err, s.Obstacle)
			}
		}
	}()
	waitFor(w.t, "the new term", func() bool {
		for _, n := range nodes {
			if n.serves() && n.Status().Founded != "" {
				now = n
			}
		}
		return now != nil
	})
	return now
}

// know waits until each node remembers the others and the primary.
func (w *cluster) know(nodes ...*node) {
	w.t.Helper()
	for _, n := range nodes {
		waitFor(w.t, n.id+" to know the others", func() bool { return n.Known() == len(nodes)-1 && n.Kept() })
	}
}

// etcd has the head of another history. That journal may be all that other nodes have, so nodes
// keep their state and found nothing over it.
func TestAForeignJournalIsNotFoundedOver(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a", stateIn(t.TempDir(), time.Hour))
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	b := w.start("b", stateIn(t.TempDir(), time.Second)) // a state that stays the same is saved each 10 s
	w.promotable(b)
	w.know(a, b)
	foreign := `{"term":9,"sequence":1000000,"checked_digest":"0","history":"00000000000000000000000000000000"}`
	do(t, etcd, clientv3.OpPut(layout.Head(), foreign))
	for _, n := range []*node{a, b} {
		waitFor(t, n.id+" to find the journal lost", func() bool { return n.Status().Loss.Err != nil })
	}
	resp, err := etcd.Client(t).Get(t.Context(), layout.Head())
	if err != nil {
		t.Fatal(err)
	}
	etcd.Compact(t, resp.Header.Revision) // so that the files are not what the journal goes on from
	w.saved(b)
	saves := b.Status().Saving.Saves
	b.serveNot(2500 * time.Millisecond)
	if now := b.Status().Saving.Saves; now != saves {
		t.Errorf("b saved the state %d times more, want it left alone: nothing changes", now-saves)
	}
	if a.serves() {
		t.Error("a founded its journal over another one: got it serving, want not")
	}
	if resp, err := etcd.Client(t).Get(t.Context(), layout.Head()); err != nil || string(resp.Kvs[0].Value) != foreign {
		t.Errorf("the head is %v (%v), want the other journal's", resp, err)
	}
}

// A master without a state, on an etcd that lost its journal, waits for other nodes to
// register. The one that holds everything founds the journal anew.
func TestAFreshMasterWaitsForOthers(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a, b := w.pair(5)
	b.wire.cut()
	a.wire.cut()
	a.ended.Store(true)
	etcd.Wipe()
	fresh := w.start("m", func(c *promote.Config) { c.Alone, c.RefoundWait = false, 5*time.Second })
	waitFor(t, "m to see nothing", func() bool { return fresh.Status().Self.Role == promote.Standby && fresh.Store() != nil })
	b.wire.heal()
	if now := w.serving(fresh, b); now != b {
		t.Fatalf("%s serves, want b, which holds the state", now.id)
	}
	b.has(keys("k", 5)...)
	w.promotable(fresh)
	w.equal(b, fresh)
}

// If no other node registers, a fresh master founds the journal after the wait. A new cluster
// starts like that, so the master logs the wait, but no warning.
func TestAFreshMasterFoundsAfterTheWait(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	var log waittest.Buffer
	begun := time.Now()
	w.serving(w.start("m", func(c *promote.Config) {
		c.Alone, c.RefoundWait, c.Log = false, time.Second, zerolog.New(&log)
	}))
	if took := time.Since(begun); took < time.Second {
		t.Errorf("it serves after %v, want a second or more for others to show themselves", took)
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "no node serves") && !strings.HasPrefix(line, `{"level":"info"`) {
			t.Errorf("it logs %s; want that as info", line)
		}
	}
	if !strings.Contains(log.String(), "before it founds one") {
		t.Errorf("got this log, want \"before it founds one\" in it:\n%s", log.String())
	}
}

// If the head cannot be read and no node holds a state, an operator can order an empty start,
// in a term above all recorded ones.
func TestStartEmptyOverGarbage(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a")
	w.serving(a)
	waitFor(t, "the record of the term", func() bool { list, err := a.Terms(t.Context()); return err == nil && len(list) == 1 })
	a.end()
	do(t, etcd, clientv3.OpPut(layout.Head(), "garbage"))
	m := w.start("m")
	m.serveNot(500 * time.Millisecond)
	m.forget("a")
	if err := m.AllowEmpty(t.Context(), 0, true); err != nil {
		t.Fatal(err)
	}
	w.serving(m).mount()
	if s := m.Status(); !s.Empty || s.Leader.Term < 1024 {
		t.Errorf("it leads %+v, empty: %v; want an empty term of 1024 or more", s.Leader, s.Empty)
	}
}

// etcd comes back from an old backup: it repeats revisions, the head is behind every node, and
// the leader key and nodes/ are out of date.
func TestARestoredBackup(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a")
	w.serving(a).mount()
	a.put(keys("old", 5)...)
	restore := etcd.Backup()
	b := w.start("b")
	w.promotable(b)
	now := w.serving(a, b)
	now.put(keys("k", 20)...)
	w.promotable(a)
	w.know(a, b)
	before, _ := readHead(t, etcd)
	restore()
	begun := time.Now()
	now = w.founder(a, b)
	t.Logf("served again after %v", time.Since(begun))
	now.has(append(keys("k", 20), keys("old", 5)...)...)
	if head, _ := readHead(t, etcd); head.Parent != before.History || head.Term < before.Term+1024 {
		t.Errorf("got head %+v behind %+v, want one founded from it with a term 1024 above", head, before)
	}
	for _, n := range []*node{a, b} {
		if n != now {
			w.promotable(n)
			w.equal(now, n)
		}
	}
}

// A node has commits that the founder did not know: it keeps them in a file before it
// takes the founder's state.
func TestDivergedStateIsKept(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	dir := t.TempDir()
	a := w.start("a", stateIn(dir, time.Hour))
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	b := w.start("b")
	w.promotable(b)
	w.know(a, b)
	b.wire.cut()
	a.put(keys("l", 5)...)
	a.ended.Store(true) // it answers nobody
	a.wire.cut()
	etcd.Wipe() // with its history, from which b would read the rest
	b.wire.heal()
	w.serving(b)
	a.ended.Store(false)
	a.wire.heal()
	waitFor(t, "a's snapshot", func() bool { return a.Status().Loads[journal.ReasonFounded] == 1 })
	w.promotable(a)
	w.equal(b, a)
	files, err := filepath.Glob(filepath.Join(dir, "diverged-*.state"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the files are %v (%v), want one", files, err)
	}
	s, err := statefile.Read(files[0], "test", metadata.Options{}, codec)
	if err != nil {
		t.Fatal(err)
	}
	head, _ := readHead(t, etcd)
	if s.Store.Stats().Objects != 10 || s.At.Head.Seq <= head.Fork || s.At.Head.History != head.Parent {
		t.Errorf("D: the file has %d objects at %+v, want 10, beyond the fork at %d of %s", s.Store.Stats().Objects, s.At.Head, head.Fork, head.Parent)
	}
}

// A journal that names no history yet, because of a node of an older version, is founded anew.
// The other nodes go on with it.
func TestFoundedFromAJournalWithoutAHistory(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	old, err := json.Marshal(promote.NodeInfo{ID: "old", Formats: [2]int{1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	registered(t, etcd, "old", string(old))
	a, b := w.pair(5)
	if head, _ := readHead(t, etcd); head.History != "" {
		t.Fatalf("got history %s, want none from a node of an older format", head.History)
	}
	do(t, etcd, clientv3.OpDelete(layout.Head()))
	now := w.founder(a, b)
	now.has(keys("k", 5)...)
	for _, n := range []*node{a, b} {
		if n != now {
			w.promotable(n)
			w.equal(now, n)
		}
	}
}

// etcd comes back empty, and another tenant has written so much that its revisions are ahead of
// those that the nodes know. A node founds the journal anew, and the next takeover works as
// usual, with the whole state.
func TestWipedEtcdWithRevisionsAhead(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a, b := w.pair(5)
	resp, err := etcd.Client(t).Get(t.Context(), layout.Head())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{a, b} {
		n.wire.cut()
	}
	etcd.Wipe()
	client := etcd.Client(t)
	for ahead := int64(0); ahead <= 2*resp.Header.Revision; {
		put, err := client.Put(t.Context(), "tenant", "")
		if err != nil {
			t.Fatal(err)
		}
		ahead = put.Header.Revision
	}
	for _, n := range []*node{a, b} {
		n.wire.heal()
	}
	first := w.founder(a, b)
	first.has(keys("k", 5)...)
	first.put("new")
	second := map[*node]*node{a: b, b: a}[first]
	w.promotable(second)
	w.equal(first, second)
	first.wire.cut()
	first.end()
	w.serving(second).has(append(keys("k", 5), "new")...)
}

// Two nodes hold the same state. The one that would found the journal anew cannot reach etcd,
// so after a while the other one founds it.
func TestANodeWithoutEtcdIsNotWaitedForByItsEqual(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	impatient := func(c *promote.Config) { c.RefoundWait = 500 * time.Millisecond }
	a := w.start("a", impatient)
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	b := w.start("b", impatient)
	w.promotable(b)
	w.know(a, b)
	a.wire.cut() // others still reach it
	waitFor(t, "b to have what a has", func() bool { return b.Status().Position.Seq >= a.Status().Position.Seq })
	etcd.Wipe()
	now := w.founder(b)
	now.has(keys("k", 5)...)
	now.put("new")
	a.wire.heal()
	w.follows(now, a)
}
