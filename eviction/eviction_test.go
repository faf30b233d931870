package eviction_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/metadata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var params = metadata.Params{LeaseTTL: 10 * time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}

func loop(p *lonetest.Primary, policy eviction.Policy) *eviction.Loop {
	return eviction.NewLoop(&eviction.Loop{
		Store: p.Store, Journal: p.Queue, Policy: policy, Every: 10 * time.Millisecond, Now: p.Now,
		Counters: new(eviction.Counters), Log: zerolog.Nop(),
	})
}

func round(t *testing.T, l *eviction.Loop) int {
	t.Helper()
	n, err := l.Round(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWatermarkPlan(t *testing.T) {
	st := func(used, capacity uint64, evictable int64) metadata.Stats {
		return metadata.Stats{Busy: used, Capacity: capacity, Evictable: evictable}
	}
	head := eviction.Watermark{High: 0.90, Ratio: 0.05, SoftPins: true} // HEAD's defaults
	for name, tc := range map[string]struct {
		policy eviction.Watermark
		st     metadata.Stats
		armed  bool
		want   eviction.Plan
	}{
		"low usage":                      {head, st(50, 100, 400), false, eviction.Plan{}},
		"at the watermark":               {head, st(90, 100, 400), false, eviction.Plan{}},
		"a failed allocation":            {head, st(90, 100, 400), true, eviction.Plan{Target: 20, Least: 10}},
		"above the watermark":            {head, st(95, 100, 400), false, eviction.Plan{Target: 40, Least: 20}},
		"far above":                      {head, st(100, 100, 1000), false, eviction.Plan{Target: 150, Least: 100}},
		"ratio 0 never answers failures": {eviction.Watermark{High: 0.9}, st(80, 100, 400), true, eviction.Plan{}},
		"soft pins must not go":          {eviction.Watermark{High: 0.9, Ratio: 0.05}, st(90, 100, 400), true, eviction.Plan{Target: 20}},
		"nothing mounted":                {head, st(0, 0, 0), true, eviction.Plan{}},
		"the rest is in quarantine": {
			head, metadata.Stats{Busy: 100, Quarantined: 30, Capacity: 100, Evictable: 400}, false, eviction.Plan{},
		},
	} {
		got := tc.policy.Plan(tc.st, tc.armed)
		if diff := got.Target - tc.want.Target; diff < 0 || diff > 1 { // rounding of ratios
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		if diff := got.Least - tc.want.Least; diff < 0 || diff > 1 {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestWatermarkRounds(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 104*100)
	soft := func(put *metadata.Put) { put.SoftPin = time.Hour }
	p.Put(soft, lonetest.Keys("soft", 50)...)
	p.Pass(time.Millisecond)
	p.Put(nil, lonetest.Keys("plain", 30)...)
	p.Pass(time.Minute)
	l := loop(p, eviction.Watermark{High: 0.9, Ratio: 0.1, SoftPins: true})
	if n := round(t, l); n != 0 {
		t.Fatalf("got %d evicted at 80 %% usage with all leases ended, want none", n)
	}
	p.Put(nil, lonetest.Keys("more", 12)...)
	p.Pass(time.Minute)
	if n := round(t, l); n < 11 || n > 13 || p.Alive(lonetest.Keys("plain", 30)...) != 30-n {
		t.Fatalf("at 92 %% usage got %d evicted and %d of the 30 oldest left, want 11 to 13 evicted, all among those 30",
			n, p.Alive(lonetest.Keys("plain", 30)...))
	}
	l.AllocationFailed(104, p.Store.Time())
	if n := round(t, l); n < 8 || n > 9 {
		t.Errorf("%d evicted for a failed allocation, want a tenth of 80", n)
	}
	if n := round(t, l); n != 0 {
		t.Errorf("got %d evicted once more for the same failed allocation, want none", n)
	}
	// Only softly pinned ones are left: the least of a round takes them.
	for range 5 {
		l.AllocationFailed(104, p.Store.Time())
		round(t, l)
	}
	if left := p.Alive(append(lonetest.Keys("plain", 30), lonetest.Keys("more", 12)...)...); left != 0 {
		t.Fatalf("got %d objects without a pin left after five failed allocations, want none: they go before soft pins", left)
	}
	left := p.Alive(lonetest.Keys("soft", 50)...)
	if left == 50 || left < 25 {
		t.Errorf("got %d of 50 softly pinned objects left, want some evicted", left)
	}
	never := loop(p, eviction.Watermark{High: 0.9, Ratio: 0.1})
	never.AllocationFailed(104, p.Store.Time())
	if n := round(t, never); n != 0 {
		t.Errorf("got %d softly pinned objects evicted, want none where that is not allowed", n)
	}
}

func TestLeasedObjectsAndNearMisses(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 104*50)
	p.Put(nil, lonetest.Keys("k", 50)...)
	p.Pass(time.Minute)
	p.Get(lonetest.Keys("k", 50)...) // in memory only
	l := loop(p, eviction.Watermark{High: 0.5, Ratio: 0.5})
	if n := round(t, l); n != 0 {
		t.Fatalf("got %d leased objects evicted, want none (L)", n)
	}
	if l.Counters.NearMisses.Load() == 0 {
		t.Error("got no near misses journaled for leased candidates, want some")
	}
	p.Pass(params.HoldTime() + time.Second)
	if n := round(t, l); n < 25 {
		t.Errorf("got %d evicted after the leases ended, want at least half of 50", n)
	}
}

// After a takeover all freed memory waits in quarantine, so evicting more does not help a put
// that fails in that time.
func TestNothingIsArmedInTheGuardWhileQuarantineWouldHoldIt(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 104*10)
	p.Put(nil, lonetest.Keys("k", 10)...)
	p.Commit(&metadata.TermStart{Term: 1, Params: params, Guard: params.HoldTime()})
	p.Pass(time.Second)
	l := loop(p, eviction.Watermark{High: 1, Ratio: 0.1})
	fails := func(size uint64, want int, what string) {
		t.Helper()
		l.AllocationFailed(size, p.Store.Time())
		if n := round(t, l); n != want {
			t.Errorf("%s: %d evicted, want %d", what, n, want)
		}
	}
	fails(104, 1, "nothing is in quarantine")
	fails(104, 0, "the quarantine will have room for it")
	fails(105, 1, "the quarantine will not have room enough")
	p.Pass(params.HoldTime())
	intoQuarantine(p, "k9")
	p.Pass(time.Second)
	fails(1, 1, "the guard is over")
}

// After a fork without the last primary, the guard waits for writers, for minutes. Memory that is
// freed in that time helps no put, so failing puts must not empty a full cache.
func TestALongGuardDoesNotEmptyTheCache(t *testing.T) {
	for name, free := range map[string]uint64{"with free memory": 5, "without": 0} {
		t.Run(name, func(t *testing.T) {
			p := lonetest.Start(t, metadata.Options{}, params, 104*(100+free))
			p.Put(nil, lonetest.Keys("k", 100)...)
			p.Commit(&metadata.TermStart{Term: 1, Params: params, Guard: params.ReleaseTimeout}, &metadata.Fork{Hold: params.ReleaseTimeout})
			l := loop(p, eviction.Watermark{High: 0.9, Ratio: 0.05})
			for range 59 {
				p.Pass(10 * time.Second)
				l.AllocationFailed(104, p.Store.Time())
				round(t, l)
			}
			if n := p.Alive(lonetest.Keys("k", 100)...); n < 85 {
				t.Errorf("%d objects of 100 are left after ten minutes in which puts failed, want what the watermark leaves", n)
			}
			p.Pass(10*time.Second + params.HoldTime())
			if st := p.Store.Stats(); st.Quarantined != 0 || st.Busy == st.Capacity {
				t.Errorf("after the guard got %d bytes in quarantine and %d of %d busy, want none, and some free",
					st.Quarantined, st.Busy, st.Capacity)
			}
		})
	}
}

// Memory that the guard held is freed by the first commit after the guard. A put that fails before
// that commit must not start a pass, which would evict the objects that are put next.
func TestNothingIsArmedBeforeTheCommitThatEndsTheGuard(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 104*10)
	p.Put(nil, lonetest.Keys("k", 10)...)
	p.Commit(&metadata.TermStart{Term: 1, Params: params, Guard: params.HoldTime()})
	intoQuarantine(p, "k9")
	p.Pass(time.Second)
	l := loop(p, eviction.Watermark{High: 1, Ratio: 0.1})
	asOf := p.Store.Time()
	fails := func(want int, what string) {
		t.Helper()
		l.AllocationFailed(104, asOf)
		if n := round(t, l); n != want {
			t.Errorf("%s: %d evicted, want %d", what, n, want)
		}
	}
	p.Idle(params.HoldTime())
	fails(0, "the guard is over, the commit is to come")
	p.Pass(0)
	fails(0, "the commit came while the put was tried")
	asOf = p.Store.Time()
	fails(1, "the put was tried behind the commit")
}

// A commit frees a limited number of ranges whose quarantine has ended. While some still wait, a
// failing put starts no eviction, unless it was its key that found no room.
func TestNothingIsArmedWhileQuarantineEmpties(t *testing.T) {
	const ranges = 12_000 // commits free 4,096 each
	p := lonetest.Start(t, metadata.Options{}, params, 104*(ranges+10))
	keys := lonetest.Keys("k", ranges)
	p.Put(nil, keys...)
	p.Put(nil, lonetest.Keys("stays", 10)...)
	p.Commit(&metadata.TermStart{Term: 1, Params: params, Guard: params.HoldTime()})
	var removals []metadata.Change
	for _, key := range keys {
		removals = append(removals, p.Remove(key, true))
	}
	p.Commit(removals...)
	p.Pass(params.HoldTime()) // the writer goes on to commit by itself
	forKey := loop(p, eviction.Watermark{High: 1, Ratio: 0.1})
	if forKey.AllocationFailed(math.MaxUint64, p.Store.Time()); round(t, forKey) == 0 {
		t.Error("a put whose key found no room: got nothing evicted, want some")
	}
	for p.Store.Releasing() {
		l := loop(p, eviction.Watermark{High: 1, Ratio: 0.1})
		size := p.Store.Stats().LeavingSoon
		l.AllocationFailed(size, p.Store.Time())
		if p.Store.Releasing() && p.Store.Stats().LeavingSoon == size && round(t, l) != 0 {
			t.Fatalf("objects are evicted with %d bytes about to come free, want none", size)
		}
	}
	if st := p.Store.Stats(); st.Quarantined != 0 {
		t.Errorf("%d bytes stay in quarantine, want none", st.Quarantined)
	}
	l := loop(p, eviction.Watermark{High: 1, Ratio: 0.1})
	l.AllocationFailed(104, p.Store.Time())
	if n := round(t, l); n != 1 {
		t.Errorf("%d evicted behind it, want one", n)
	}
}

// Outside of a guard a failing put starts an eviction, although there is always some memory in
// quarantine. Otherwise most puts would starve.
func TestQuarantineDoesNotStarvePuts(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 104*100)
	p.Put(nil, lonetest.Keys("k", 100)...)
	for i := range 20 {
		intoQuarantine(p, fmt.Sprint("k", 80+i))
	}
	l := loop(p, eviction.Watermark{High: 0.9, Ratio: 0.05})
	for i := range 10 {
		p.Pass(10 * time.Millisecond)
		l.AllocationFailed(104, p.Store.Time())
		if n := round(t, l); n == 0 {
			t.Fatalf("got nothing evicted for failed put number %d, want room made although memory is in quarantine", i+1)
		}
	}
}

// Objects whose renewed leases ended before the next scan are victims like any other, and count for
// the target.
func TestLeasesShorterThanAScanKeepToTheTarget(t *testing.T) {
	short := params
	short.LeaseTTL = 500 * time.Millisecond
	p := lonetest.Start(t, metadata.Options{}, short, 104*6000)
	p.Put(nil, lonetest.Keys("k", 5000)...)
	p.Pass(100 * time.Millisecond)
	p.Get(lonetest.Keys("k", 5000)...) // in memory only
	p.Pass(600 * time.Millisecond)
	p.Put(nil, "new")
	p.Pass(100 * time.Millisecond)
	l := loop(p, eviction.Watermark{High: 0.9, Ratio: 0.01, SoftPins: true})
	for range 4 {
		l.AllocationFailed(100, p.Store.Time())
		if n := round(t, l); n > 51 {
			t.Errorf("got %d evicted in a round, want 51 at most: the target is 1 in 100 of 5,001", n)
		}
		p.Pass(time.Second)
	}
	if n := p.Alive(lonetest.Keys("k", 5000)...); n == 5000 {
		t.Error("got nothing evicted in four rounds, want some once the leases ended")
	}
}

// A failed put that no eviction could help has no later effect.
func TestNothingIsEvictedForAPutOfLongAgo(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 104*10)
	l := loop(p, eviction.Watermark{High: 0.9, Ratio: 0.05})
	l.AllocationFailed(1<<30, p.Store.Time())
	round(t, l)
	p.Put(nil, "first")
	p.Pass(time.Second)
	if n := round(t, l); n != 0 {
		t.Errorf("got %d evicted later for a put that failed in an empty store, want none", n)
	}
}

// Objects with a copy on a disk keep their keys, so evicting them makes no room for other keys.
func TestNothingIsEvictedForKeysThatStay(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 104*1000)
	onDisk := func(put *metadata.Put) { put.DiskPath = "/shared/" + put.Key }
	keys := lonetest.Keys("k", 20)
	for _, key := range keys {
		p.Put(onDisk, key)
		ref := p.Ref(key)
		ref.Selector = metadata.SelectDisk
		e, _, err := p.Store.PreparePutEnd(ref, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.Commit(e)
	}
	p.Put(nil, "single")
	p.Pass(time.Minute)
	l := loop(p, eviction.Watermark{High: 0.9, Ratio: 0.5})
	l.AllocationFailed(math.MaxUint64, p.Store.Time())
	if n := round(t, l); n != 0 {
		t.Errorf("got %d evicted for keys, want none: most keys stay, with a copy on a disk", n)
	}
	p.Put(nil, lonetest.Keys("single", 30)...)
	p.Pass(time.Minute)
	l.AllocationFailed(math.MaxUint64, p.Store.Time())
	if n := round(t, l); n == 0 {
		t.Error("got nothing evicted for keys, want some: most keys would go with their objects")
	}
}

// intoQuarantine removes a key under a reader's lease.
func intoQuarantine(p *lonetest.Primary, key string) {
	p.Get(key)
	p.Commit(p.Remove(key, true))
}

func TestExpiryPolicy(t *testing.T) {
	life := params
	life.LeaseOnPutEnd = true
	p := lonetest.Start(t, metadata.Options{}, life, 104*5000)
	p.Put(nil, lonetest.Keys("k", 30)...)
	l := loop(p, eviction.Expiry{})
	p.Pass(5 * time.Second)
	if n := round(t, l); n != 0 {
		t.Fatalf("got %d evicted 5s after their puts, want none before their life of 10s ends", n)
	}
	p.Get(lonetest.Keys("k", 10)...)
	p.Pass(6 * time.Second)
	if n := round(t, l); n != 20 || p.Alive(lonetest.Keys("k", 10)...) != 10 {
		t.Errorf("%d evicted after their life, want 20", n)
	}
}

func TestLoopEvictsAndReapsUntilItIsStopped(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 104*5000)
	p.Put(nil, lonetest.Keys("k", 4800)...)
	p.Commit(p.PutStart(nil, "open"))
	p.Pass(20 * time.Minute)
	l := loop(p, eviction.Watermark{High: 0.5, Ratio: 0.05})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	deadline := time.Now().Add(20 * time.Second)
	for eviction.Used(p.Store.Stats()) > 0.5 || l.Counters.Discarded.Load() == 0 {
		if time.Now().After(deadline) {
			t.Fatalf("after 20s got %v of the memory used and %d puts discarded, want 0.5 at most and the open put discarded",
				eviction.Used(p.Store.Stats()), l.Counters.Discarded.Load())
		}
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if l.Counters.Cutoffs.Load() < 2 {
		t.Errorf("got %d cutoffs for %d objects, want 2 or more: each frees a bounded number",
			l.Counters.Cutoffs.Load(), l.Counters.Objects.Load())
	}
}
