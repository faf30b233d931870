package journal_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

func TestCompactorKeepsTheHistoryShort(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	p := newPrimary(t, client, 1<<20).run().mount()
	boot := clock.Boot()
	for name, tc := range map[string]struct {
		keep  time.Duration
		from  int64
		bytes int64
	}{
		"by age":               {500 * time.Millisecond, 1 << 40, 1 << 40},
		"by bytes":             {time.Hour, 1 << 40, 100},
		"by bytes though kept": {500 * time.Millisecond, 1, 100},
	} {
		t.Run(name, func(t *testing.T) {
			start := p.log.Tip()
			c := journal.NewCompactor(journal.Compactor{
				Client: client, Layout: p.layout, Tip: p.tip, Clock: boot, Log: slog.New(slog.DiscardHandler), Keep: tc.keep, MaxBytes: tc.bytes,
				KeepFrom: func(context.Context) int64 { return tc.from },
			})
			go func() { _ = c.Run(t.Context()) }()
			n := 0
			waitFor(t, "the compaction", func() bool {
				n++
				p.mustPut(fmt.Sprint(name, n))
				_, err := client.Get(t.Context(), p.layout.Head(), clientv3.WithRev(start.Revision))
				return errors.Is(err, rpctypes.ErrCompacted)
			})
			if tc.bytes == 100 {
				// The cut is at a mark, where a commit stands, not at its own deletes:
				// the history of every record that is kept is there.
				cut := (<-client.Watch(t.Context(), p.layout.Head(), clientv3.WithRev(1))).CompactRevision
				kept, err := client.Get(t.Context(), p.layout.Records(metadata.ObjectEvents), clientv3.WithPrefix())
				if err != nil || len(kept.Kvs) == 0 || kept.Kvs[0].CreateRevision <= cut {
					t.Errorf("history is compacted to %d: got %v and the records %v, want each record whole, with its creation",
						cut, err, kept.Kvs)
				}
				resp, err := client.Get(t.Context(), p.layout.Record(metadata.ObjectEvents, start.Head.Seq))
				if err != nil || len(resp.Kvs) != 0 {
					t.Errorf("a record beyond the bound of bytes: got %v, %v, want it deleted", resp.Kvs, err)
				}
			}
		})
	}
}

// History is kept back to the positions of state files, however old it is.
func TestCompactorKeepsWhatStateFilesNeed(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	p := newPrimary(t, client, 1<<20).run().mount()
	var from atomic.Int64
	from.Store(p.log.Tip().Revision)
	c := journal.NewCompactor(journal.Compactor{
		Client: client, Layout: p.layout, Tip: p.tip, Clock: clock.Boot(), Log: slog.New(slog.DiscardHandler), Keep: time.Millisecond,
		MaxBytes: 1 << 40, KeepFrom: func(context.Context) int64 { return from.Load() },
	})
	go func() { _ = c.Run(t.Context()) }()
	reader := &journal.Reader{Client: client, Layout: p.layout, Codec: codec}
	kept := p.log.Tip()
	compacted := func(at journal.Cursor) bool {
		p.mustPut(fmt.Sprint("k", p.log.Tip().Head.Seq))
		why, err := reader.Continues(t.Context(), at)
		return err == nil && why != nil
	}
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if compacted(kept) {
			t.Fatal("got history compacted beyond the position of a state file, want it kept")
		}
	}
	from.Store(math.MaxInt64)
	waitFor(t, "the compaction", func() bool { return compacted(kept) })
}

// Of several nodes with a member of etcd only one compacts the history.
func TestOnlyOneNodeCuts(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	p := newPrimary(t, client, 1<<20).run().mount()
	var asked atomic.Int64
	var cuts atomic.Bool
	c := journal.NewCompactor(journal.Compactor{
		Client: client, Layout: p.layout, Tip: p.tip, Clock: clock.Boot(), Log: slog.New(slog.DiscardHandler), Keep: time.Millisecond, MaxBytes: 1,
		Cuts: func(bool) bool { asked.Add(1); return cuts.Load() },
	})
	go func() { _ = c.Run(t.Context()) }()
	reader := &journal.Reader{Client: client, Layout: p.layout, Codec: codec}
	kept := p.log.Tip()
	compacted := func() bool {
		p.mustPut(fmt.Sprint("k", p.log.Tip().Head.Seq))
		why, err := reader.Continues(t.Context(), kept)
		return err == nil && why != nil
	}
	waitFor(t, "three looks", func() bool {
		if compacted() {
			t.Fatal("got history compacted by a node that may not, want that left to the other node")
		}
		return asked.Load() >= 3
	})
	cuts.Store(true)
	waitFor(t, "the compaction", compacted)
}

// Members of etcd are defragmented one at a time, and again when the turn is over.
func TestDefragmentingInTurn(t *testing.T) {
	etcd := etcdtest.Start(t)
	node := func() *journal.Compactor {
		return journal.NewCompactor(journal.Compactor{Client: etcd.Client(t), Layout: journal.NewLayout("/u", "c"), Cuts: func(bool) bool { return false }})
	}
	a, b := node(), node()
	runs := 0
	count := func(context.Context) error { runs++; return nil }
	err := a.InTurn(t.Context(), func(ctx context.Context) error { return b.InTurn(ctx, count) })
	if err != nil || runs != 0 {
		t.Errorf("while another one is defragmented: got %d runs, %v; want none", runs, err)
	}
	if err := b.InTurn(t.Context(), count); err != nil || runs != 1 {
		t.Errorf("after that: got %d runs, %v; want 1", runs, err)
	}
	// Without a lease it would be the turn of somebody's hand for ever.
	if _, err := etcd.Client(t).Put(t.Context(), a.Layout.Defragmenting(), "nonsense"); err != nil {
		t.Fatal(err)
	}
	if err := b.InTurn(t.Context(), count); err != nil || runs != 2 {
		t.Errorf("beside a key without a lease: got %d runs, %v; want 2", runs, err)
	}
}
