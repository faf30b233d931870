package leasesync_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var params = metadata.Params{LeaseTTL: 10 * time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}

func TestBatchRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var renewals []leasesync.Renewal
		for range rapid.IntRange(0, 50).Draw(t, "n") {
			renewals = append(renewals, leasesync.Renewal{
				Ref: metadata.Ref{
					Shard: uint16(rapid.IntRange(0, metadata.ShardCount-1).Draw(t, "shard")),
					ID:    metadata.ObjectID(rapid.Uint64().Draw(t, "id")),
				},
				Deadline: metadata.Time(rapid.Int64().Draw(t, "deadline")),
			})
		}
		for _, b := range leasesync.Pack(renewals) {
			enc := metadata.Encode(nil, b)
			got, err := leasesync.Decode(enc)
			if err != nil {
				t.Fatal(err)
			}
			again := metadata.Encode(nil, got)
			if !bytes.Equal(enc, again) || len(got.(*leasesync.Batch).Renewals) != len(b.(*leasesync.Batch).Renewals) {
				t.Fatalf("a batch that is decoded and encoded again: got %+v, want %+v", got, b)
			}
		}
	})
}

func TestBatchesFit(t *testing.T) {
	worst := make([]leasesync.Renewal, 2*leasesync.MaxBatch+1)
	for i := range worst {
		worst[i] = leasesync.Renewal{Ref: metadata.Ref{Shard: uint16(i % metadata.ShardCount), ID: math.MaxUint64 / 2}, Deadline: math.MaxInt64}
		if i%2 == 0 {
			worst[i].ID, worst[i].Deadline = 1, math.MinInt64
		}
	}
	batches := leasesync.Pack(worst)
	if len(batches) != 3 {
		t.Errorf("got %d batches for one renewal more than two can hold, want 3", len(batches))
	}
	for _, b := range batches {
		enc := metadata.Encode(nil, b)
		if len(enc) > metadata.MaxChangeBytes {
			t.Errorf("a batch takes %d bytes, want at most %d", len(enc), metadata.MaxChangeBytes)
		}
	}
	// What it usually takes: ids of one term, deadlines within a second.
	usual := make([]leasesync.Renewal, leasesync.MaxBatch)
	for i := range usual {
		usual[i] = leasesync.Renewal{
			Ref:      metadata.Ref{Shard: uint16(i * 7919 % metadata.ShardCount), ID: metadata.NewObjectID(3, uint64(i*104729%1_000_000))},
			Deadline: metadata.Time(1_000_000 + i%1000),
		}
	}
	enc := metadata.Encode(nil, leasesync.Pack(usual)[0])
	if per := float64(len(enc)) / float64(len(usual)); per > 16 {
		t.Errorf("a usual batch takes %.1f bytes a renewal, want 16 at most", per)
	} else {
		t.Logf("%.1f bytes a renewal", per)
	}
}

// start runs the leases of a primary. Renewals by p.Get wake them.
func start(t *testing.T, p *lonetest.Primary, j leasesync.Journal, interval time.Duration) *leasesync.Counters {
	t.Helper()
	counters := new(leasesync.Counters)
	s := leasesync.New(leasesync.Leases{
		Store: p.Store, Journal: j, Interval: interval, CriticalWindow: time.Hour, CriticalDelay: time.Millisecond,
		Counters: counters, Log: zerolog.Nop(),
	})
	p.Leases = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return counters
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	waittest.Until(t, 20*time.Second, what, cond)
}

func TestScannerCommitsMarks(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	keys := lonetest.Keys("k", 500)
	p.Put(nil, keys...)
	p.Get(keys...)
	p.Get(keys...) // a second renewal joins the first mark
	counters := start(t, p, p.Queue, 50*time.Millisecond)
	waitFor(t, "the renewals", func() bool { return marked(p) == 0 })
	if n := counters.Committed.Load(); n != 500 {
		t.Errorf("%d renewals committed, want 500", n)
	}
}

func TestCriticalRenewalsComeEarly(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	counters := start(t, p, p.Queue, time.Hour)
	p.Put(nil, "k")
	p.Get("k") // its journaled lease has ended: not critical under watermark
	p.Scan()
	p.Pass(time.Second)
	p.Get("k") // its journaled lease ends within the window
	waitFor(t, "the critical renewal", func() bool { return counters.Committed.Load() == 2 })
	if n := counters.CriticalScans.Load(); n != 1 {
		t.Errorf("got %d critical scans, want 1", n)
	}
}

// A journal that fails at first.
type unsure struct {
	leasesync.Journal
	failures atomic.Int32
}

func (u *unsure) Submit(ctx context.Context, changes ...metadata.Change) ([]error, error) {
	if u.failures.Add(-1) >= 0 {
		return nil, errs.Wrap(errs.Unavailable, "test", errors.New("etcd is away"))
	}
	return u.Journal.Submit(ctx, changes...)
}

func TestFailedScansLoseNothing(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	keys := lonetest.Keys("k", 20)
	p.Put(nil, keys...)
	p.Get(keys...)
	j := &unsure{Journal: p.Queue}
	j.failures.Store(3)
	counters := start(t, p, j, 50*time.Millisecond)
	waitFor(t, "the renewals", func() bool { return counters.Committed.Load() == 20 })
	if n := counters.Failed.Load(); n != 3 {
		t.Errorf("%d scans failed, want 3", n)
	}
}

func TestFullSync(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(nil, "k")
	p.Get("k")
	list := collect(t, p)
	gone := leasesync.Renewal{Ref: metadata.Ref{Shard: 1, ID: 99}, Deadline: 1}
	records := func(term metadata.Term, renewals ...leasesync.Renewal) leasesync.Records {
		return func(_ context.Context, _ metadata.Seq, visit func(metadata.Term, metadata.Seq, []metadata.Change) error) error {
			return visit(term, 4711, leasesync.Pack(renewals))
		}
	}
	counters := new(leasesync.Counters)
	sync := func(r leasesync.Records) int {
		t.Helper()
		missing, first, err := leasesync.FullSync(t.Context(), p.Store, r, counters)
		if err != nil || first != 4711 && missing > 0 {
			t.Fatalf("got %v, and %d as the first difference's sequence; want no error, and 4711 if any renewal is missing",
				err, first)
		}
		return missing
	}
	if n := sync(records(1, list[0], gone)); n != 1 {
		t.Errorf("%d renewals missing, want the one that is not applied", n)
	}
	if n := sync(records(7, list[0])); n != 0 {
		t.Errorf("got %d renewals of another term missing, want none: only those of this term are compared", n)
	}
	p.Commit(leasesync.Pack(list)...)
	if n := sync(records(1, list[0], gone)); n != 0 {
		t.Errorf("got %d renewals missing after they were applied, want none", n)
	}
	wrong := func(_ context.Context, _ metadata.Seq, visit func(metadata.Term, metadata.Seq, []metadata.Change) error) error {
		return visit(1, 1, []metadata.Change{&metadata.Discard{}})
	}
	if _, _, err := leasesync.FullSync(t.Context(), p.Store, wrong, counters); err == nil {
		t.Error("an event of another kind among the renewals: got no error, want it refused")
	}
	if counters.Synced.Load() != 3 || counters.Differed.Load() != 1 {
		t.Errorf("got %d full syncs and %d differences counted, want 3 and 1", counters.Synced.Load(), counters.Differed.Load())
	}
}
