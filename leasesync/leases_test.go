package leasesync_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// collect returns the renewals that a scan would journal.
func collect(t *testing.T, p *lonetest.Primary) (all []leasesync.Renewal) {
	t.Helper()
	err := leasesync.EachRound(p.Store, 1<<20, func(renewals []leasesync.Renewal) error {
		all = append(all, renewals...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func marked(p *lonetest.Primary) int { return p.Store.LeaseCounts().Marked }

func TestMarksStayUntilCommitted(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(nil, "k")
	p.Get("k")
	if n := len(collect(t, p)); n != 1 {
		t.Fatalf("got %d renewals after a read, want 1", n)
	}
	batch := collect(t, p) // the first batch was not committed
	if len(batch) != 1 {
		t.Fatalf("got %d renewals after a batch that was not committed, want the same one", len(batch))
	}
	p.Idle(time.Millisecond)
	p.Get("k") // renewed again while the batch is under way
	p.Commit(leasesync.Pack(batch)...)
	if n := len(collect(t, p)); n != 1 {
		t.Fatalf("got %d renewals after the batch, want the later one", n)
	}
	p.Scan()
	if n := len(collect(t, p)); n != 0 {
		t.Fatalf("got %d renewals after a scan, want 0", n)
	}
	if n := marked(p); n != 0 {
		t.Errorf("got %d marks, want 0", n)
	}
	p.Get("k")
	p.Commit(p.Remove("k", true))
	if n := len(collect(t, p)); n != 0 {
		t.Errorf("got %d renewals of a removed object, want 0", n)
	}
}

func TestRoundsAreBounded(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	keys := lonetest.Keys("k", 100)
	p.Put(nil, keys...)
	p.Get(keys...)
	total := 0
	err := leasesync.EachRound(p.Store, 10, func(renewals []leasesync.Renewal) error {
		if n := len(renewals); n > 20 {
			t.Errorf("got %d renewals in a round, want about 10", n)
		}
		total += len(renewals)
		return nil
	})
	if total != 100 || err != nil {
		t.Errorf("got %d renewals, %v; want 100", total, err)
	}
}

func TestCriticalRenewals(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Leases = leasesync.New(leasesync.Leases{
		Store: p.Store, Journal: p.Queue, CriticalWindow: time.Second, Counters: new(leasesync.Counters), Log: zerolog.Nop(),
	})
	p.Put(nil, "k")
	for _, tc := range []struct {
		what string
		wait time.Duration
		want int64
	}{
		{"an expired lease under watermark", 0, 0},
		{"renewed again, journaled long enough", 5 * time.Second, 0},
		{"the journaled lease is about to end", params.HoldTime() - 900*time.Millisecond, 1},
		{"the journaled lease has ended", 2 * params.HoldTime(), 0},
	} {
		p.Idle(tc.wait)
		before := p.Leases.Counters.Critical.Load()
		p.Get("k")
		if got := p.Leases.Counters.Critical.Load() - before; got != tc.want {
			t.Errorf("%s: got %d critical renewals, want %d", tc.what, got, tc.want)
		}
		p.Scan()
	}
}

func TestLeaseCounts(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(nil, lonetest.Keys("k", 4)...)
	remove := func(key string, force bool) func() { return func() { p.Commit(p.Remove(key, force)) } }
	for _, step := range []struct {
		what string
		do   func()
		want metadata.LeaseCounts
	}{
		{"nothing was read", func() {}, metadata.LeaseCounts{}},
		{"the first reads", func() { p.Get("k0", "k1", "k2") }, metadata.LeaseCounts{Granted: 3, Marks: 3, Marked: 3}},
		{"no time has passed", func() { p.Get("k0") }, metadata.LeaseCounts{Granted: 3, Marks: 3, Marked: 3}},
		{"a live lease is extended", func() { p.Idle(time.Second); p.Get("k0") }, metadata.LeaseCounts{Granted: 3, Renewed: 1, Marks: 3, Marked: 3}},
		{"a scan journals the leases", p.Scan, metadata.LeaseCounts{Granted: 3, Renewed: 1, Marks: 3, Marked: 3}},
		{"the next scan takes off the marks", p.Scan, metadata.LeaseCounts{Granted: 3, Renewed: 1, Marks: 3}},
		{"an ended lease is granted anew", func() { p.Idle(2 * params.HoldTime()); p.Get("k0") },
			metadata.LeaseCounts{Granted: 4, Renewed: 1, Expired: 1, Marks: 4, Marked: 1}},
		{"an object goes whose lease had ended", remove("k1", false),
			metadata.LeaseCounts{Granted: 4, Renewed: 1, Expired: 2, Marks: 4, Marked: 1}},
		{"an object goes by force whose lease is live", remove("k0", true),
			metadata.LeaseCounts{Granted: 4, Renewed: 1, Expired: 2, Revoked: 1, Marks: 4, Marked: 1}},
		{"one that was never read goes", remove("k3", false),
			metadata.LeaseCounts{Granted: 4, Renewed: 1, Expired: 2, Revoked: 1, Marks: 4, Marked: 1}},
		{"a segment takes a live lease along", func() {
			p.Get("k2")
			p.Unmount(segment.ID{1})
			for p.Store.Sweep(metadata.ShardCount) {
			}
		}, metadata.LeaseCounts{Granted: 5, Renewed: 1, Expired: 3, Revoked: 2, Marks: 5, Marked: 2}},
	} {
		step.do()
		if got := p.Store.LeaseCounts(); got != step.want {
			t.Errorf("%s:\n got %+v\nwant %+v", step.what, got, step.want)
		}
	}
	if got := p.Follower.LeaseCounts(); got != (metadata.LeaseCounts{}) {
		t.Errorf("the follower granted leases: got %+v, want none", got)
	}
}

// A countedJournal counts what is submitted to it.
type countedJournal struct {
	leasesync.Journal
	submitted int
}

func (j *countedJournal) Submit(ctx context.Context, changes ...metadata.Change) ([]error, error) {
	j.submitted++
	return j.Journal.Submit(ctx, changes...)
}

// A scan works in small rounds, or in larger ones if there would be too many.
func TestLargeScansTakeFewRounds(t *testing.T) {
	if testing.Short() {
		t.Skip("it puts 200,000 objects")
	}
	const objects, chunk = 200_000, 1000
	p := lonetest.Start(t, metadata.Options{}, params, 1<<30)
	keys := make([]string, objects)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	for part := range slices.Chunk(keys, chunk) {
		var starts, ends []metadata.Change
		for _, key := range part {
			starts = append(starts, p.PutStart(nil, key))
		}
		p.Commit(starts...)
		for _, key := range part {
			ends = append(ends, p.PutEnd(key))
		}
		p.Commit(ends...)
	}
	journal := &countedJournal{Journal: p.Leases.Journal}
	p.Leases.Journal = journal
	for i, most := range []int{objects/9000 + 1, 17} { // rounds of the least size; a 16th of the scan before
		p.Idle(time.Millisecond)
		p.Get(keys...)
		journal.submitted = 0
		p.Scan()
		if journal.submitted > most || i == 0 && journal.submitted <= 17 {
			t.Errorf("scan %d took %d rounds, want at most %d, and more than 17 of the first one", i+1, journal.submitted, most)
		}
		if n := len(collect(t, p)); n != 0 {
			t.Errorf("scan %d left %d renewals, want 0", i+1, n)
		}
	}
}
