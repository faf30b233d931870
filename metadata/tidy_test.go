package metadata_test

import (
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
			b.Fatal("an object under a lease was chosen")
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
	never := func() bool { return false }
	walk := func() (cut bool) {
		s.WithEvictable(func(evictable metadata.Evictable) {
			_, cut = evictable.Walk(false, evictable.Now(), most, func(metadata.Candidate) { t.Error("an object under a lease was visited") }, never)
		})
		return cut
	}
	for i := range n / most {
		if cut := walk(); cut != (i < n/most-1) {
			t.Fatalf("walk %d was cut short: %v", i, cut)
		}
	}
	if pass := eviction.Select(s, eviction.Bounds{Objects: 1}); pass != nil {
		t.Errorf("got %d victims under leases", pass.Victims)
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
		_, cut := evictable.Walk(false, evictable.Now(), 0, func(metadata.Candidate) {}, func() bool { return false })
		if cut {
			t.Error("an object is left in the place of its former lease")
		}
	})
}

// However many objects are filed in a short time, a walk can end among them.
func TestAWalkEndsAmongObjectsOfAShortTime(t *testing.T) {
	const n = 40_000 // in 80 commits, a millisecond apart
	s := metadata.New(metadata.Options{})
	fillStore(t, s, n)
	seen, last := 0, metadata.Time(0)
	s.WithEvictable(func(evictable metadata.Evictable) {
		through, _ := evictable.Walk(false, evictable.Now(), n, func(c metadata.Candidate) {
			seen, last = seen+1, max(last, c.Deadline())
		}, func() bool { return true })
		if through < last || last == 0 {
			t.Errorf("walked through %d, but visited an object of %d", through, last)
		}
	})
	if seen > 4096 {
		t.Errorf("visited %d objects of %d at once", seen, n)
	}
}
