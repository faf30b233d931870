package sim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/metadata"
)

// deleteRecords deletes all records of the journal, as if they had expired.
func (w *world) deleteRecords() {
	for stream := range metadata.StreamCount {
		w.do(clientv3.OpDelete(w.layout.Records(stream), clientv3.WithPrefix()))
	}
}

// do changes etcd by hand.
func (w *world) do(op clientv3.Op) {
	client, err := w.etcd.Link("admin").Client()
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.Do(context.Background(), op); err != nil {
		w.t.Error(err)
	}
}

// The primary dies, and etcd's history is compacted before the standby, which was cut
// off, can read it. It takes over if it has everything or the records still stand.
func TestCompactionBehindTheLastStandby(t *testing.T) {
	for name, play := range map[string]func(story){
		"it has everything": func(s story) {
			s.world.node("a").kill()
			time.Sleep(10 * time.Millisecond)
			s.world.node("b").cut()
			s.afterCompaction()
			s.primary()
			s.reads("k1")
		},
		"the records stand": func(s story) {
			s.world.node("b").cut()
			s.puts("k2")
			time.Sleep(failoverAfter)
			s.puts("k3")
			s.world.node("a").kill()
			s.afterCompaction()
			s.primary()
			s.reads("k1", "k2", "k3")
		},
		"the records are gone": func(s story) {
			s.world.node("b").cut()
			s.puts("k2")
			s.world.node("a").kill()
			s.world.deleteRecords()
			s.afterCompaction()
			time.Sleep(5 * sessionTTL)
			if b := s.world.node("b"); b.serves() || b.Status().Self.Promotable {
				s.world.judge.find("D", "b takes over without k2")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var broken []string
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				defer w.end()
				c := w.callers(1, 0, 1)[0]
				c.name = "app"
				w.begin("a", "b")
				s := story{c, w}
				s.puts("k1")
				play(s)
				if broken = w.judge.broken(); len(broken) > 0 {
					t.Log(w.transcript.String())
				}
			})
			for _, b := range broken {
				t.Error(b)
			}
		})
	}
}

// afterCompaction lets b reach etcd again when its history is gone, before anybody can
// be elected.
func (s story) afterCompaction() {
	for range 3 {
		s.world.do(clientv3.OpPut("other", ""))
	}
	s.world.compact()
	s.world.node("b").heal()
}
