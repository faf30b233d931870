package journal

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
)

const (
	testWindow   = 600 * time.Millisecond
	testFailover = time.Second
)

// commits extends a right as a commit does that takes a time.
func (r *Right) commits(took, window, failover time.Duration) {
	sent := r.clock()
	r.sending(sent, window, failover)
	time.Sleep(took)
	r.committed(sent, window)
}

// left returns how long the right lasts from now on.
func (r *Right) left() time.Duration {
	until, _ := r.Until()
	return until - r.clock()
}

func TestRightCountsFromTheSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRight(clock.Runtime())
		time.Sleep(time.Second)
		if r.Valid() {
			t.Error("no commit has extended the right: got it valid, want not")
		}
		r.commits(200*time.Millisecond, testWindow, testFailover)
		if got, want := r.left(), 400*time.Millisecond-testWindow/500; got != want || !r.Valid() {
			t.Errorf("after a commit of 200 ms: %v left, want %v", got, want)
		}
		r.commits(2*time.Second, testWindow, testFailover)
		if r.Valid() || r.Lapses() != 0 {
			t.Errorf("a commit that took longer than the window: got valid: %v and %d lapses, want not valid and 0",
				r.Valid(), r.Lapses())
		}
		r.commits(0, testWindow, testFailover)
		if !r.Valid() || r.Lapses() != 1 {
			t.Errorf("after a quick commit: valid %v, %d lapses, want 1", r.Valid(), r.Lapses())
		}
		r.Stop()
		r.commits(0, testWindow, testFailover)
		if r.Valid() {
			t.Error("a commit after the right was given up: got it valid, want it to stay given up")
		}
	})
}

func TestShorterWindowCutsTheRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRight(clock.Runtime())
		time.Sleep(time.Second)
		r.commits(0, 2*testWindow, 2*testFailover)
		r.sending(r.clock(), testWindow, testFailover) // and no answer comes
		if got := r.left(); got > testWindow {
			t.Errorf("a head with a window of %v was sent: got %v left, want at most that window", testWindow, got)
		}
	})
}

// A caller waits for the commit that renews the right, at most until the failover time after the
// last commit, or until its own deadline. The number of waiting callers is bounded.
func TestFenceWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRight(clock.Runtime())
		time.Sleep(time.Second)
		r.commits(0, testWindow, testFailover)
		begun := r.clock()
		time.Sleep(testWindow)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if err := r.Fence(t.Context()); err != nil || r.clock()-begun != 800*time.Millisecond {
				t.Errorf("a caller that waits for a commit: got %v after %v, want no error, after the 800ms until the commit",
					err, r.clock()-begun)
			}
		})
		waiting.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := r.Fence(ctx); errs.KindOf(err) != errs.NotLeader || r.clock()-begun != 650*time.Millisecond {
				t.Errorf("a caller with a deadline of its own: got %v after %v, want NotLeader at its deadline, after 650ms",
					err, r.clock()-begun)
			}
		})
		time.Sleep(200 * time.Millisecond)
		r.commits(0, testWindow, testFailover)
		waiting.Wait()

		begun = r.clock()
		time.Sleep(testWindow)
		for range maxWaiting {
			waiting.Go(func() {
				if err := r.Fence(t.Context()); errs.KindOf(err) != errs.NotLeader || r.clock()-begun > testFailover {
					t.Errorf("a caller that waits in vain: got %v after %v, want NotLeader within %v",
						err, r.clock()-begun, testFailover)
				}
			})
		}
		synctest.Wait()
		if err := r.Fence(t.Context()); errs.KindOf(err) != errs.NotLeader || r.clock()-begun != testWindow {
			t.Errorf("one caller more than may wait: got %v after %v, want NotLeader at once, after %v",
				err, r.clock()-begun, testWindow)
		}
		waiting.Wait()
	})
}

func TestSlowCommitsRaiseThePace(t *testing.T) {
	p := NewPace(testFailover, 5*time.Second, slog.New(slog.DiscardHandler))
	want := func(when string, window, failover time.Duration) {
		t.Helper()
		if w, d := p.Windows(); w != window || d != failover {
			t.Errorf("%s: got %v and %v, want %v and %v", when, w, d, window, failover)
		}
	}
	want("off", 0, 0)
	p.Turn(true)
	want("on", testWindow, testFailover)
	now := time.Hour
	p.took(now, 301*time.Millisecond)
	p.took(now+2*time.Second, 301*time.Millisecond)
	p.took(now+61*time.Second, 301*time.Millisecond) // the first was longer ago than a minute
	want("three slow commits in more than a minute", testWindow, testFailover)
	p.took(now+61*time.Second, 301*time.Millisecond)
	want("three in a minute", 2*testWindow, 2*testFailover)
	for range slowCommits {
		p.took(now+62*time.Second, 2*time.Second)
	}
	want("much slower ones", 3*time.Second, 5*time.Second)
	p.took(now+62*time.Second+calmAfter-1, 0)
	want("almost a quiet quarter of an hour", 3*time.Second, 5*time.Second)
	p.took(now+62*time.Second+calmAfter, 0)
	want("a quiet quarter of an hour", testWindow, testFailover)
	if got := p.Raised(); got != 2 {
		t.Errorf("raised %d times, want 2", got)
	}
	p.AtLeast(3 * time.Second)
	want("behind a term with a longer window", 3*time.Second, 5*time.Second)
	p.AtLeast(0)
	want("when that is over", testWindow, testFailover)
	p.Resume(2*now, 3*testFailover)
	want("behind a term with a raised pace", 2400*time.Millisecond, 4*time.Second)
	p.took(2*now+calmAfter-1, 0)
	want("almost a quiet quarter of an hour later", 2400*time.Millisecond, 4*time.Second)
	p.took(2*now+calmAfter, 0)
	want("a quiet quarter of an hour later", testWindow, testFailover)
}
