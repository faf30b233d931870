package sim

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

var update = flag.Bool("update", false, "write the stories in testdata anew")

// A story has one caller, and notes what is done to the nodes.
type story struct {
	*caller
	world *world
}

func stories() map[string]func(story) {
	return map[string]func(story){
		"clean_failover":       cleanFailover,
		"failover_in_a_commit": failoverInACommit,
		"stopped_and_woken":    stoppedAndWoken,
		"partition_from_etcd":  partitionFromEtcd,
		"lost_answer":          lostAnswer,
		"late_standby":         lateStandby,
		"compaction":           compaction,
		"handover":             handover,
		"double_failover":      doubleFailover,
		"etcd_outage":          etcdOutage,
		"transfers":            transfers,
	}
}

func TestStories(t *testing.T) {
	for name, play := range stories() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got string
			var broken []string
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				defer w.end()
				c := w.callers(1, 0, 1)[0]
				c.name = "app"
				play(story{c, w})
				got, broken = w.transcript.String(), w.judge.broken()
			})
			for _, b := range broken {
				t.Error(b)
			}
			compareWith(t, filepath.Join("testdata", name+".txt"), got)
		})
	}
}

func compareWith(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("the transcript: got error %v, want it recorded; write the story with -update", err)
	}
	if got != string(b) {
		t.Errorf("the transcript: got another than %s, want it unchanged; if it is right, write it anew with -update. Want:\n%sGot:\n%s", file, b, got)
	}
}

// note records what is about to be done.
func (s story) note(format string, args ...any) {
	time.Sleep(100 * time.Millisecond)
	s.world.transcript.note("--", format, args...)
}

// puts puts an object at once.
func (s story) puts(key string) {
	s.next += 2
	var id metadata.ObjectID
	if s.putStart(key, false, s.next, &id) == nil {
		_ = s.putEnd(key, s.next+1, id)
	}
}

func (s story) reads(keys ...string) {
	for _, key := range keys {
		_ = s.get(key)
	}
}

// primary returns the node that serves, as soon as there is one.
func (s story) primary() *node {
	s.world.await("a primary", func() bool { return s.world.serving() != nil })
	return s.world.serving()
}

// equal ends a story: all nodes are healthy and have one state.
func (s story) equal() {
	if !s.world.settle() {
		s.world.judge.find("LIVE", "the nodes are not healthy")
		return
	}
	s.world.equal()
	if len(s.world.judge.broken()) == 0 {
		s.note("all %d nodes are healthy and have the same digest", len(s.world.living()))
	}
}

func cleanFailover(s story) {
	s.world.begin("a", "b", "c")
	s.puts("k1")
	s.puts("k2")
	_ = s.remove("k2")
	s.note("a is killed")
	s.world.node("a").kill()
	s.primary()
	s.reads("k1", "k2")
	s.puts("k2")
	s.note("a is started again")
	s.world.start("a")
	s.equal()
}

// The answer to a commit is on its way when the primary dies. The caller does
// not know, asks the successor with the same request id, and gets the same
// reservation.
func failoverInACommit(s story) {
	s.world.begin("a", "b", "c")
	s.note("the watches of b and c are held back: they must catch up before they serve")
	s.world.node("b").links[0].HoldWatches()
	s.world.node("c").links[0].HoldWatches()
	s.puts("k0")
	s.world.lose(s.world.node("a"), Lose, 1)
	var id metadata.ObjectID
	s.next += 2
	_ = s.putStart("k1", false, s.next, &id)
	s.note("a is killed")
	s.world.node("a").kill()
	s.world.etcd.Fault(nil)
	time.Sleep(2 * sessionTTL)
	s.note("the watches are released")
	s.world.node("b").links[0].ReleaseWatches()
	s.world.node("c").links[0].ReleaseWatches()
	s.primary()
	s.reads("k0")
	_ = s.putStart("k1", false, s.next, &id)
	_ = s.putEnd("k1", s.next+1, id)
	s.reads("k1")
	s.world.start("a")
	s.equal()
}

func stoppedAndWoken(s story) {
	s.world.begin("a", "b", "c")
	s.puts("k1")
	a := s.world.node("a")
	s.note("a is stopped")
	a.pause()
	s.only = "a"
	s.reads("k1") // answered when a goes on
	s.only = ""
	s.primary()
	s.only = s.primary().id
	_ = s.remove("k1")
	s.puts("k2")
	time.Sleep(2 * sessionTTL)
	s.note("a is continued, and asked at once")
	s.only = "a"
	a.wake()
	time.Sleep(time.Millisecond) // the read from before is answered first
	s.reads("k1", "k2")
	s.only = ""
	s.equal()
	s.reads("k1", "k2")
}

func partitionFromEtcd(s story) {
	s.world.begin("a", "b", "c")
	s.puts("k1")
	a := s.world.node("a")
	s.note("a is cut off from etcd; callers still reach it")
	a.cut()
	cut, last := s.world.transcript.now(), time.Duration(0)
	s.only = "a"
	for s.world.node("b").serves() == s.world.node("c").serves() {
		time.Sleep(300 * time.Millisecond)
		if err := s.get("k1"); err == nil {
			last = s.world.transcript.now()
		}
	}
	if last-cut > sessionTTL {
		s.world.judge.find("F", "a answered for %v after it was cut off, want at most %v", last-cut, sessionTTL)
	}
	s.only = s.primary().id
	s.reads("k1")
	s.puts("k2")
	s.only = ""
	s.note("a reaches etcd again")
	a.heal()
	s.equal()
}

// The first answer is lost with its connection and resolved at once; the second
// never comes, which takes the primary AttemptTimeout to notice.
func lostAnswer(s story) {
	s.world.begin("a", "b")
	s.note("the connection breaks under an answer")
	s.world.lose(s.world.node("a"), Break, 1)
	s.puts("k1")
	s.note("an answer never comes")
	s.world.lose(s.world.node("a"), Lose, 1)
	var id metadata.ObjectID
	s.next += 2
	_ = s.putStart("k2", false, s.next, &id)
	time.Sleep(3 * time.Second)
	s.note("the caller repeats the call, with the same request id")
	_ = s.putStart("k2", false, s.next, &id)
	_ = s.putEnd("k2", s.next+1, id)
	s.reads("k1", "k2")
	s.equal()
}

func lateStandby(s story) {
	s.world.begin("a")
	for i := range 4 {
		s.puts(fmt.Sprint("k", i))
	}
	s.note("b is started")
	b := s.world.start("b")
	for i := range 3 { // while it loads
		s.puts(fmt.Sprint("l", i))
	}
	s.world.await("b", func() bool { return b.Status().Self.Promotable })
	s.equal()
	s.note("a is killed")
	s.world.node("a").kill()
	s.primary()
	s.reads("k0", "k3", "l0", "l2")
}

func compaction(s story) {
	s.world.begin("a", "b")
	b := s.world.node("b")
	s.note("b is cut off from etcd")
	b.cut()
	s.puts("k1")
	s.note("the records expire, and the journal is compacted")
	time.Sleep(time.Second)
	s.world.deleteRecords()
	s.world.compact()
	s.puts("k2")
	s.note("b reaches etcd again")
	b.heal()
	s.world.await("b to load a snapshot", func() bool { return b.Status().Loads["compacted"] == 1 })
	s.equal()
	s.note("a is killed")
	s.world.node("a").kill()
	s.primary()
	s.reads("k1", "k2")
}

func handover(s story) {
	s.world.begin("a", "b")
	s.puts("k1")
	s.reads("k1")
	s.world.await("b in the list", func() bool {
		nodes, err := s.world.node("a").Nodes(context.Background())
		return err == nil && len(nodes) == 2 && nodes[1].Promotable
	})
	s.note("a is asked to hand over")
	begun := s.world.transcript.now()
	if _, _, err := s.world.node("a").Handover(context.Background(), 0, ""); err != nil {
		s.world.judge.find("LIVE", "the handover: %v", err)
	}
	s.primary()
	if took := s.world.transcript.now() - begun; took > 300*time.Millisecond {
		s.world.judge.find("LIVE", "the handover took %v, want at most 300ms", took)
	}
	s.reads("k1")
	s.puts("k2")
	s.equal()
	if st := s.primary().Store().Stats(); st.Quarantined != 0 {
		s.world.judge.find("W", "%d bytes are in quarantine after a clean handover, want none", st.Quarantined)
	}
}

// Two primaries die within a lease TTL of each other's serving.
func doubleFailover(s story) {
	s.world.begin("a", "b", "c")
	s.puts("k1")
	s.note("a is killed")
	s.world.node("a").kill()
	first := s.primary()
	s.reads("k1")
	s.puts("k2")
	s.note("%s is killed", first.id)
	first.kill()
	s.primary()
	s.reads("k1", "k2")
	_ = s.remove("k1")
	s.puts("k3") // not on the bytes of k1, which the first primary may have leased
	s.note("both are started again")
	s.world.start("a")
	s.world.start(first.id)
	s.equal()
	s.reads("k1", "k2", "k3")
}

func etcdOutage(s story) {
	s.world.begin("a", "b", "c")
	s.puts("k1")
	s.note("etcd goes down")
	s.world.etcd.Down()
	s.puts("k2") // its fate is open
	for range 3 {
		time.Sleep(500 * time.Millisecond)
		s.reads("k1")
	}
	time.Sleep(30 * time.Second)
	if s.world.serving() != nil {
		s.world.judge.find("F", "a node serves 30 s after etcd went down, want none")
	}
	s.note("etcd comes back")
	s.world.etcd.Up()
	s.primary()
	s.reads("k1")
	time.Sleep(2 * time.Second) // the writer retries with jitter
	s.puts("k3")
	s.equal()
}

// A copy and a move begin at one primary and end at the next: what is written
// is given to nobody else meanwhile, and is readable when they end, not before.
func transfers(s story) {
	s.world.begin("a", "b", "c")
	s.world.mount(1)
	s.puts("k1")
	for _, move := range []bool{false, true} {
		list, err := s.read("k1")
		if err != nil {
			return
		}
		t, err := s.transferStart("k1", list.Replicas[0], move)
		if err != nil {
			return
		}
		p := s.primary()
		s.note("%s is killed", p.id)
		p.kill()
		s.primary()
		s.puts(fmt.Sprint("k2-", move))
		s.reads("k1")
		_ = s.transferEnd("k1", move, t)
		_ = s.transferEnd("k1", move, t)
		s.reads("k1")
		s.world.start(p.id)
	}
	s.equal()
}
