package journal_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/journal/nowait"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
)

// from returns a context of a peer's calls.
func from(t testing.TB, peer string) context.Context {
	return context.WithValue(t.Context(), share.PeerKey{}, peer)
}

// However many calls of one peer wait for room, calls of another peer get in before them, and so do
// changes of the node itself.
func TestPeersShareTheQueue(t *testing.T) {
	const capacity, each = 64 << 20, 128 << 10
	synctest.Test(t, func(t *testing.T) {
		q := journal.NewQueue(metadata.New(metadata.Options{}), capacity)
		var admitted atomic.Int64
		for range 1000 {
			go func() {
				if _, err := q.Admit(from(t, "many"), each); err == nil {
					admitted.Add(each)
				}
			}()
		}
		synctest.Wait()
		if got := admitted.Load(); got < capacity/16 || got > capacity/6 {
			t.Errorf("one peer has %d bytes of %d in the queue, want a sixth at most", got, capacity)
		}
		for _, peer := range []string{"another", ""} {
			ctx, cancel := context.WithTimeout(from(t, peer), 10*time.Second)
			ticket, err := q.Admit(ctx, journal.MaxSubmissionBytes)
			if cancel(); err != nil {
				t.Fatalf("the peer %q, behind the many calls of another one: got %v, want room in the queue", peer, err)
			}
			ticket.Release()
		}
	}) // the others leave with the context
}

// A change that counts how often it was taken back.
type takenBack struct {
	metadata.Change
	times int
}

func (c *takenBack) Abort(*metadata.Store) { c.times++ }

// The change of a caller that goes while it is queued is aborted, once.
func TestAChangeThatIsTakenBackIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := journal.NewQueue(metadata.New(metadata.Options{}), 1<<20) // nobody commits
		ctx, gone := context.WithCancel(t.Context())
		change, outcome := &takenBack{Change: leasesync.NewFiller()}, make(chan error, 1)
		go func() {
			_, err := q.Submit(ctx, change)
			outcome <- err
		}()
		synctest.Wait()
		if _, n := q.Len(); n != 1 {
			t.Fatalf("%d submissions are queued, want one", n)
		}
		gone()
		if err := <-outcome; errs.KindOf(err) != errs.Unavailable {
			t.Errorf("got %v, want %v", err, errs.Unavailable)
		}
		if _, n := q.Len(); n != 0 || change.times != 1 {
			t.Errorf("%d submissions are queued, and the change was taken back %d times; want none, and once", n, change.times)
		}
	})
}

// The smallest queue has room for the largest submission.
func TestSmallestQueue(t *testing.T) {
	q := journal.NewQueue(metadata.New(metadata.Options{}), 1)
	for _, peer := range []string{"one", "another", ""} {
		for range 2 {
			ticket, err := q.Admit(from(t, peer), journal.MaxSubmissionBytes)
			if err != nil {
				t.Fatal(err)
			}
			ticket.Release()
			ticket.Release()
		}
	}
}

// The number of submissions in a queue is bounded, however small they are.
func TestQueueIsBounded(t *testing.T) {
	q := journal.NewQueue(metadata.New(metadata.Options{}), 64<<20)
	for _, peer := range []string{"one", ""} {
		full, n := error(nil), 0
		ctx, cancel := context.WithTimeout(from(t, peer), 100*time.Millisecond)
		defer cancel()
		for ; full == nil && n <= journal.MaxWaiting; n++ {
			_, full = q.Admit(ctx, 1)
		}
		if errs.KindOf(full) != errs.Unavailable || n > journal.MaxWaiting/2 {
			t.Errorf("%q got %d places, and then %v; want half of %d at most, and Unavailable", peer, n, full, journal.MaxWaiting)
		}
	}
}

// A place in a queue that is not full costs one allocation: its ticket.
func TestAdmissionAllocatesLittle(t *testing.T) {
	q := journal.NewQueue(metadata.New(metadata.Options{}), 64<<20)
	ctx := from(t, "one")
	if got := testing.AllocsPerRun(100, func() {
		ticket, err := q.Admit(ctx, 200)
		if err != nil {
			t.Fatal(err)
		}
		ticket.Release()
	}); got > 1 {
		t.Errorf("%v allocations, want one", got)
	}
}

// A call that must not wait does not wait for those who wait until the queue is idle, either.
func TestNoWaitBehindWhoWaitsForAnIdleQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := journal.NewQueue(metadata.New(metadata.Options{}), 1<<20)
		held, err := q.Admit(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = q.Idle(t.Context()) }()
		synctest.Wait()
		begun := time.Now()
		ctx, cancel := context.WithTimeout(nowait.Context(t.Context()), time.Minute)
		defer cancel()
		if _, err := q.Admit(ctx, 1); !errors.Is(err, nowait.Err) || time.Since(begun) > 0 {
			t.Errorf("got %v after %v, want %v at once", err, time.Since(begun), nowait.Err)
		}
		held.Release()
	})
}
