package journal_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// A trimming is a primary whose records are trimmed back to a sequence.
type trimming struct {
	*primary
	covered atomic.Uint64
	now     atomic.Int64 // of the trimmer's clock
	looks   atomic.Int64
}

func newTrimming(t *testing.T, maxBytes int64) *trimming {
	t.Helper()
	tr := &trimming{primary: newPrimary(t, etcdtest.Start(t).Client(t), 1<<20).run().mount()}
	trimmer := &journal.Trimmer{
		Journal: tr.log, Clock: func() time.Duration { return time.Duration(tr.now.Load()) }, Log: slog.New(slog.DiscardHandler), Keep: time.Minute,
		MaxBytes: maxBytes, Covered: func(context.Context) (metadata.Seq, error) {
			tr.looks.Add(1)
			return metadata.Seq(tr.covered.Load()), nil
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); trimmer.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return tr
}

// puts makes commits, and returns the sequence of the last one.
func (tr *trimming) puts(n int) metadata.Seq {
	for range n {
		tr.mustPut(fmt.Sprint("k", tr.log.Tip().Head.Seq))
	}
	return tr.log.Tip().Head.Seq
}

func (tr *trimming) oldest() metadata.Seq {
	tr.t.Helper()
	oldest, err := (&journal.Reader{Client: tr.client, Layout: tr.layout}).Oldest(tr.t.Context(), 1, math.MaxInt64)
	if err != nil {
		tr.t.Fatal(err)
	}
	return oldest
}

// old waits until the trimmer has seen the current head, and has checked twice what is covered after
// the records up to it became old.
func (tr *trimming) old() {
	tr.t.Helper()
	before := tr.looks.Load()
	tr.now.Add(int64(time.Hour))
	waitFor(tr.t, "a look at what is covered", func() bool {
		tr.puts(1) // a mark of its own
		tr.now.Add(int64(time.Hour))
		return tr.looks.Load() > before+1
	})
}

// Records are deleted when they are old and state files cover them, and not before. Records beyond the
// files stay, however old they are.
func TestRecordsLiveUntilStateFilesCoverThem(t *testing.T) {
	t.Parallel()
	tr := newTrimming(t, 1<<40)
	covered := tr.puts(3 * 64) // several slices
	tr.puts(3)
	tr.old()
	if got := tr.oldest(); got != 1 {
		t.Fatalf("the oldest record is %d, want 1: no file covers it", got)
	}
	tr.covered.Store(uint64(covered))
	waitFor(t, "the end of the covered records", func() bool { return tr.oldest() == covered+1 })
	tr.covered.Store(math.MaxInt64)
	waitFor(t, "the end of all records", func() bool {
		tr.now.Add(int64(time.Minute))
		return tr.oldest() == math.MaxInt64
	})
}

// Young records stay although state files cover them, since followers read them after a compaction.
// While no record is old, the trimmer does not ask what is covered.
func TestYoungRecordsStay(t *testing.T) {
	t.Parallel()
	tr := newTrimming(t, 1<<40)
	tr.covered.Store(math.MaxInt64)
	last := tr.puts(5)
	tr.old()
	waitFor(t, "the end of the old records", func() bool { return tr.oldest() > last })
	young := tr.puts(5)
	looks := tr.looks.Load()
	for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got := tr.oldest(); got > young {
			t.Fatalf("the oldest record is %d, want %d at most: it is young", got, young)
		}
	}
	if got := tr.looks.Load(); got > looks+1 {
		t.Errorf("%d looks at what is covered while no record was old, want none", got-looks)
	}
}

// Records beyond the bound are deleted, whatever their age and whatever state files cover.
func TestRecordsBeyondTheBoundGo(t *testing.T) {
	t.Parallel()
	tr := newTrimming(t, 4<<10)
	first := tr.puts(1)
	waitFor(t, "the end of the oldest records", func() bool { tr.puts(1); return tr.oldest() > first })
	if tr.oldest() == math.MaxInt64 {
		t.Error("got no record left, want only those beyond the bound deleted")
	}
}

// A node that is no longer elected deletes nothing, since sequences may be used again.
func TestADeposedNodeTrimsNothing(t *testing.T) {
	t.Parallel()
	tr := newTrimming(t, 1<<40)
	tr.puts(5)
	tr.old()
	if _, err := tr.client.Put(t.Context(), tr.layout.Leader(), journal.NewElection().LeaderPrefix()+"}"); err != nil {
		t.Fatal(err)
	}
	tr.covered.Store(math.MaxInt64)
	looks := tr.looks.Load()
	waitFor(t, "two looks", func() bool { return tr.looks.Load() > looks+1 })
	if got := tr.oldest(); got != 1 {
		t.Errorf("the oldest record is %d, want 1", got)
	}
}
