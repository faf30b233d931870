package promote_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/etcdtest/faultinject"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// b is elected for term 2 and held up before its first entry; its session ends,
// and another is elected for term 2, too, and writes its own. b follows that.
func TestAnotherNodeInTheSameTerm(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	old := newPredecessor(t, etcd, "test")
	run := &faultinject.Run{Kind: faultinject.QuestionLost, I: 2, Row: 1}
	w, b := heir(t, etcd, old, run)
	waitFor(t, "b to have it all", func() bool { return b.Status().Position == old.store.Position() })
	came := make(chan metadata.Position, 1)
	run.OnFault = func() { came <- old.succeed(t) }
	run.Arm()
	old.leave(t)
	want := <-came
	waitFor(t, "b to have what the journal has", func() bool {
		s := b.Status()
		return s.Position == want && s.Self.Role == promote.Standby
	})
	old.leave(t)
	w.serving(b)
	if term := b.Status().Leader.Term; term != 3 {
		t.Errorf("b leads term %d, want 3", term)
	}
	b.has(old.keys...)
}

// heir starts node b behind a predecessor, with a run of faults at its
// transactions, and waits until it could take over.
func heir(t *testing.T, etcd *etcdtest.Cluster, old *predecessor, run *faultinject.Run) (*cluster, *node) {
	t.Helper()
	run.Skip = func(method string, _ int) bool { return method != "/etcdserverpb.KV/Txn" }
	w := newCluster(t, etcd)
	b := w.start("b", old.follow, func(c *promote.Config) { c.Client = etcd.Client(t, run.DialOptions()...) })
	w.promotable(b)
	return w, b
}

// succeed elects another node with the predecessor's state for the next term,
// with a first entry that b would not write, and returns where the journal
// stands then.
func (p *predecessor) succeed(t *testing.T) metadata.Position {
	p.leave(t)
	election := p.claim(t, promote.Leader{NodeID: "c", RPC: "c", Term: 2, State: promote.Elected})
	boot := clock.Boot()
	writer := journal.NewWriter(journal.WriterConfig{
		Store: p.store, Queue: journal.NewQueue(p.store, 1<<20), Term: 2, Hold: time.Second, Now: p.now, Elapsed: boot,
		Log: journal.NewEtcdLog(p.client, p.layout, election, p.log.Tip(), time.Minute, boot),
	})
	if err := writer.Commit(t.Context(), &metadata.TermStart{Term: 2, Params: params, Guard: time.Hour}); err != nil {
		t.Error(err)
	}
	return p.store.Position()
}
