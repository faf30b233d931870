package journal_test

import (
	"errors"
	"testing"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/journal"
)

// Revisions repeat in a restored etcd, so a writer compares the values of the leader key and the
// head. The same values written again change nothing. The leader key of another election fences the
// writer, whatever its revisions are.
func TestWritersCompareValues(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	p := newPrimary(t, client, 1<<20)
	for _, key := range []string{p.layout.Head(), p.layout.Leader()} {
		resp, err := client.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		value := string(resp.Kvs[0].Value)
		if _, err := client.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
		if err := p.writer.Commit(t.Context()); err != nil {
			t.Fatalf("a commit after %s was written again with the same value: got %v, want no error", key, err)
		}
	}
	other := journal.NewElection().LeaderPrefix() + "}"
	if _, err := client.Put(t.Context(), p.layout.Leader(), other); err != nil {
		t.Fatal(err)
	}
	if err := p.writer.Commit(t.Context()); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("a commit under the leader key of another election: got %v, want ErrFenced", err)
	}
}

// The history goes on from head to head. One without a name gets one as soon as
// every node reads it.
func TestHeadsNameTheirHistory(t *testing.T) {
	etcd := etcdtest.Start(t)
	p := newPrimary(t, etcd.Client(t), 1<<20)
	if h := p.log.Tip().Head; h.History != "" || h.Election != p.election {
		t.Errorf("the first head: got %+v, want no name of a history yet, and the election %q", h, p.election)
	}
	p.log.Histories = func() bool { return true }
	var first journal.History
	for range 2 {
		if err := p.writer.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		history := p.log.Tip().Head.History
		if first == "" {
			first = history
		}
		if len(history) != 32 || history != first {
			t.Errorf("got the history %q, want 32 characters, and the name of the heads before: %q", history, first)
		}
	}
}
