package journal_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/etcdtest/faultinject"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// An electee is a node that was elected for term 1 of a journal without a head.
type electee struct {
	store  *metadata.Store
	log    *journal.EtcdLog
	writer *journal.Writer
}

// elect gives the leader key to a node, whoever had it, with a clock that
// stands still: heads of the same term differ in nothing then.
func elect(t *testing.T, client *clientv3.Client, layout journal.Layout) *electee {
	t.Helper()
	vacate(t, client, layout)
	election := journal.NewElection()
	if _, err := client.Put(t.Context(), layout.Leader(), election.LeaderPrefix()+"}"); err != nil {
		t.Fatal(err)
	}
	boot := clock.Boot()
	e := &electee{store: metadata.New(metadata.Options{})}
	e.log = journal.NewEtcdLog(client, layout, election, journal.Cursor{}, 5*time.Second, boot)
	e.writer = journal.NewWriter(journal.WriterConfig{
		Store: e.store, Queue: journal.NewQueue(e.store, 1<<20), Log: e.log, Term: 1, Hold: params.HoldTime(),
		Now: func() metadata.Time { return 1 }, Elapsed: boot,
	})
	return e
}

func vacate(t *testing.T, client *clientv3.Client, layout journal.Layout) {
	t.Helper()
	if _, err := client.Delete(t.Context(), layout.Leader()); err != nil {
		t.Error(err)
	}
}

func (e *electee) begin(ctx context.Context, empty bool) error {
	return e.writer.Commit(ctx, &metadata.TermStart{Term: 1, Params: params, Empty: empty})
}

// txnClient connects to an etcd with faults that hit transactions alone.
func txnClient(t *testing.T, etcd *etcdtest.Cluster, run *faultinject.Run) *clientv3.Client {
	t.Helper()
	run.Skip = func(method string, _ int) bool { return method != "/etcdserverpb.KV/Txn" }
	return etcd.Client(t, run.DialOptions()...)
}

// Two nodes are elected for one term, since the first one committed nothing in it. The first node must
// not take the second one's first entry for its own, although the heads may differ only in the
// election.
func TestAnotherNodesFirstEntryIsNotOurs(t *testing.T) {
	for name, sameHead := range map[string]bool{"another head": false, "the same head": true} {
		for _, lost := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				etcd := etcdtest.Start(t)
				client := etcd.Client(t)
				layout := journal.NewLayout("/understudy", "test")
				run := &faultinject.Run{Kind: faultinject.QuestionLost, I: 1, Row: 1}
				first := elect(t, txnClient(t, etcd, run), layout)
				var second *electee
				takeOver := func() {
					second = elect(t, client, layout)
					change := &metadata.TermStart{Term: 1, Params: params}
					if !sameHead {
						change.Guard = 10 * time.Second
					}
					if err := second.writer.Commit(t.Context(), change); err != nil {
						t.Error(err)
					}
				}
				if lost {
					run.OnFault = takeOver
					run.Arm()
				} else {
					takeOver()
				}
				err := first.begin(t.Context(), true)
				if err == nil || first.store.Position().Seq != 0 || first.log.Tip().Revision != 0 {
					t.Errorf("lost %v: the deposed node got %v at %+v, the other is at %+v; want an error, and no position",
						lost, err, first.log.Tip(), second.log.Tip())
				}
			})
		}
	}
}

// A commit of this node whose answer is lost succeeded, even if another node was
// elected since, and even if etcd does not hold who led. The next commit is fenced.
func TestOwnCommitBehindALostElection(t *testing.T) {
	for name, forgotten := range map[string]bool{"etcd knows": false, "etcd has forgotten": true} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t)
			client := etcd.Client(t)
			layout := journal.NewLayout("/understudy", "test")
			run := &faultinject.Run{Kind: faultinject.AnswerLost, I: 1, Row: 1}
			e := elect(t, txnClient(t, etcd, run), layout)
			run.OnFault = func() {
				vacate(t, client, layout)
				if forgotten {
					etcd.Compact(t, now(t, client).Revision)
				}
			}
			run.Arm()
			err := e.begin(t.Context(), false)
			if run.Fault() == "" {
				t.Fatal("got no fault, want the answer of the commit lost")
			}
			if err != nil || e.log.Tip().Head.Seq != 1 {
				t.Fatalf("a commit of this node whose answer is lost: got %v at %+v, want no error, at sequence 1",
					err, e.log.Tip())
			}
			if err := e.writer.Commit(t.Context()); !errors.Is(err, journal.ErrFenced) {
				t.Errorf("the next commit, as another node is elected: got %v, want ErrFenced", err)
			}
		})
	}
}
