package metadata_test

import (
	"slices"
	"testing"
	"time"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
)

// renewAll journals renewals of the first n objects of fillStore, to end at a time.
func renewAll(tb testing.TB, s *metadata.Store, n int, end metadata.Time) {
	tb.Helper()
	var renewals []leasesync.Renewal
	for i := range n {
		e := s.Lock("default", benchKey(i))
		renewals = append(renewals, leasesync.Renewal{Ref: e.Ref(), Deadline: end})
		e.Unlock()
	}
	at := s.Position()
	if _, err := s.Apply(&metadata.Commit{Seq: at.Seq + 1, Term: 1, Time: at.Time, Changes: leasesync.Pack(renewals)}, nil); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkFirstPass is the first eviction pass after a time in which all leases were
// renewed. It reports the longest time for which another caller waited for the lock.
func BenchmarkFirstPass(b *testing.B) {
	const n = 200_000
	var longest time.Duration
	for b.Loop() {
		b.StopTimer()
		s := metadata.New(metadata.Options{})
		fillStore(b, s, n)
		renewAll(b, s, n, s.Position().Time+1_000_000)
		b.StartTimer()
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					began := time.Now()
					s.Position()
					longest = max(longest, time.Since(began))
				}
			}
		}()
		if pass := eviction.Select(s, eviction.Bounds{Objects: 100}); pass != nil {
			b.Fatalf("all objects are leased: got a pass with %d victims, want none", pass.Victims)
		}
		close(stop)
		<-stopped
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest")
}

func TestAWalkFilesABoundedNumberAnew(t *testing.T) {
	const n, most = 20_000, 1000
	s := metadata.New(metadata.Options{})
	fillStore(t, s, n)
	renewAll(t, s, n, s.Position().Time+1_000_000)
	walk := func() (cut bool) {
		s.WithEvictable(func(evictable metadata.Evictable) {
			_, cut = evictable.Walk(false, metadata.Through(evictable.Now()), most, func(c metadata.Candidate) {
				t.Errorf("all objects are leased: got a walk that visits one at %v, want none visited", c.Rank())
			}, never)
		})
		return cut
	}
	for i := range n / most {
		if cut := walk(); cut != (i < n/most-1) {
			t.Fatalf("walk %d files %d of %d objects at most: got it cut short: %v, want %v", i, most, n, cut, i < n/most-1)
		}
	}
	if pass := eviction.Select(s, eviction.Bounds{Objects: 1}); pass != nil {
		t.Errorf("all objects are leased: got %d victims, want none", pass.Victims)
	}
}

// A standby gets only cutoffs, so it must file objects anew by itself.
func TestTidyLeavesNothingToFileAnew(t *testing.T) {
	const n = 20_000
	s := metadata.New(metadata.Options{})
	fillStore(t, s, n)
	renewAll(t, s, n, s.Position().Time+1_000_000)
	for range 2 * n / 1000 {
		s.Tidy(1000)
	}
	s.WithEvictable(func(evictable metadata.Evictable) {
		_, cut := evictable.Walk(false, metadata.Through(evictable.Now()), 0, func(metadata.Candidate) {}, never)
		if cut {
			t.Error("after Tidy: got objects in the place of their former leases, want all filed anew")
		}
	})
}

func never(metadata.Rank) bool { return false }

// However many objects are filed in a short time, or at one time, a walk can end among them. Then
// it has visited all up to there.
func TestAWalkEndsAmongObjectsOfAShortTime(t *testing.T) {
	const n = 40_000 // in 80 commits, a millisecond apart
	for name, oneTime := range map[string]bool{"short": false, "one": true} {
		s := metadata.New(metadata.Options{})
		fillStore(t, s, n)
		if oneTime {
			renewAll(t, s, n, s.Position().Time+1)
			apply(t, s, s.Position().Time+2)
		}
		var all []metadata.Rank
		var through metadata.Rank
		seen, last, largest, before := 0, metadata.Rank{}, 0, 0
		s.WithEvictable(func(evictable metadata.Evictable) {
			until := metadata.Through(evictable.Now())
			evictable.Walk(false, until, n, func(c metadata.Candidate) { all = append(all, c.Rank()) }, func(metadata.Rank) bool {
				largest, before = max(largest, len(all)-before), len(all)
				return false
			})
			through, _ = evictable.Walk(false, until, n, func(c metadata.Candidate) {
				if seen++; c.Rank().Compare(last) > 0 {
					last = c.Rank()
				}
			}, func(metadata.Rank) bool { return true })
		})
		slices.SortFunc(all, metadata.Rank.Compare)
		if seen == 0 || seen > 512 || largest > 512 || len(all) != n {
			t.Errorf("%s time: visited %d objects of %d at once, then up to %d, and %d in all, want 512 at most at once", name, seen, n, largest, len(all))
		}
		if through.Compare(last) < 0 || seen < len(all) && all[seen].Compare(through) <= 0 {
			t.Errorf("%s time: walked through %v, and visited %d up to %v, the next is %v; want all up to there, and no more",
				name, through, seen, last, all[seen])
		}
	}
}

// apply applies the next commit to a store.
func apply(tb testing.TB, s *metadata.Store, now metadata.Time, changes ...metadata.Change) {
	tb.Helper()
	if _, err := s.Apply(&metadata.Commit{Seq: s.Position().Seq + 1, Term: 1, Time: now, Changes: changes}, nil); err != nil {
		tb.Fatal(err)
	}
}

// Objects whose leases end at one time are evicted in the order of their ids, by passes that look
// at few of them. A node that has filed them in another order evicts the same.
func TestObjectsOfOneDeadlineGoById(t *testing.T) {
	const n, slice = 20_000, 1000
	s := metadata.New(metadata.Options{})
	fillStore(t, s, n)
	renewAll(t, s, n, s.Position().Time+1)
	apply(t, s, s.Position().Time+2)
	follower := reload(t, s)
	for at := slice; at <= n; at += slice {
		pass := eviction.Select(s, eviction.Bounds{Objects: slice})
		if pass == nil || pass.Victims != slice {
			t.Fatalf("after %d of %d objects: got the pass %+v, want one with %d victims", at-slice, n, pass, slice)
		}
		apply(t, s, s.Position().Time+1, pass.Cutoff)
		apply(t, follower, s.Position().Time, &eviction.Cutoff{Deadline: pass.Cutoff.Deadline, ID: pass.Cutoff.ID, PinTime: pass.Cutoff.PinTime})
		if s.Position() != follower.Position() {
			t.Fatalf("S: the follower is at %+v, want it at the primary's position, %+v", follower.Position(), s.Position())
		}
		for _, i := range []int{at - 1, at} {
			if _, err := s.Inspect("default", benchKey(min(i, n-1))); (err == nil) != (i == at && at < n) {
				t.Errorf("after the first %d objects were evicted: object %d: got %v, want it to exist: %v",
					at, i, err, i == at && at < n)
			}
		}
	}
}

// BenchmarkPassesOverOneDeadline evicts 131,072 objects whose leases end at one time, a slice at a
// time. It reports the longest time for which one pass or one commit held the lock.
func BenchmarkPassesOverOneDeadline(b *testing.B) {
	const n, slice = 131_072, 2048
	var longest time.Duration
	timed := func(f func()) {
		began := time.Now()
		f()
		longest = max(longest, time.Since(began))
	}
	for b.Loop() {
		b.StopTimer()
		s := metadata.New(metadata.Options{})
		fillStore(b, s, n)
		renewAll(b, s, n, s.Position().Time+1)
		apply(b, s, s.Position().Time+2)
		b.StartTimer()
		for range n / slice {
			var pass *eviction.Pass
			timed(func() { pass = eviction.Select(s, eviction.Bounds{Objects: slice}) })
			timed(func() { apply(b, s, s.Position().Time+1, pass.Cutoff) })
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/object")
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest")
}
