package journal_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// An older node joins, so heads must not carry a window any more. Until the first such head is written,
// followers depose by the previous one.
func TestSessionCountsFromTheFirstCommitWithoutAWindow(t *testing.T) {
	const window, failover, session = 600 * time.Millisecond, time.Second, 5 * time.Second
	now := time.Hour
	right := journal.NewRight(func() time.Duration { return now })
	right.Session(now + session)
	right.Sending(now, window, failover)
	right.Committed(now, window)
	if !right.Valid() {
		t.Fatal("after a commit: got a right that is not valid, want it extended")
	}

	now += 100 * time.Millisecond
	right.Sending(now, 0, 0)
	right.Session(now + session)
	now += window
	if right.Valid() {
		t.Error("before a commit without a window has succeeded: got the right valid by the session, want it ended with the window")
	}
	right.Committed(now, 0)
	if !right.Valid() {
		t.Error("after a commit without a window: got the right not valid, want it valid as long as the session")
	}
	now += session - time.Second
	right.Session(now + session)
	now += session - time.Second
	if !right.Valid() {
		t.Error("after a keepalive: got a right that is not valid, want it extended")
	}

	right.Sending(now, window, failover)
	right.Session(now + session)
	now += window
	if right.Valid() {
		t.Error("a commit with a window may have been written: got the right valid by the session, want it ended with the window")
	}
}

// The clock of a primary runs 1/1000 too slow, and that of the elected node 1/1000 too fast. When the
// elected node has waited for the window, the right has ended. So it has if the primary sent a shorter
// window, and the elected node waits only for that.
func TestTheRightAllowsForClockRates(t *testing.T) {
	const window, short, failover = 600 * time.Millisecond, 300 * time.Millisecond, time.Second
	for _, next := range []time.Duration{window, short} {
		now := time.Hour
		right := journal.NewRight(func() time.Duration { return now })
		right.Sending(now, window, failover)
		right.Committed(now, window)
		right.Sending(now, next, failover)
		waited := time.Duration(float64(next) / 1.001) // in true time
		if now += waited * 999 / 1000; right.Valid() {
			t.Errorf("another node has waited for the window %v: got the right still valid, want it ended", next)
		}
		if now -= 2 * time.Millisecond; !right.Valid() {
			t.Errorf("2ms before the right for %v ends: got it not valid, want it valid: clocks differ by 1/1000 at most", next)
		}
	}
}

// A scriptedLog fails as it is told to.
type scriptedLog struct{ err error }

func (l *scriptedLog) Append(context.Context, *journal.Sealed) error { return l.err }

// writerWithRight returns a writer of term 1, whose right lasts for a minute once it has
// committed something.
func writerWithRight(log journal.Log) (*journal.Writer, *journal.Right) {
	now := time.Hour
	elapsed := func() time.Duration { return now }
	right := journal.NewRight(elapsed)
	right.Session(now + time.Minute)
	store := metadata.New(metadata.Options{})
	return journal.NewWriter(journal.WriterConfig{
		Store: store, Queue: journal.NewQueue(store, 1<<20), Log: log, Term: 1, Hold: params.HoldTime(),
		Now: metadata.NewClock(elapsed, 0), Elapsed: elapsed, Right: right,
	}), right
}

// A watchedStart is a change that records whether its node may still answer when it is aborted.
type watchedStart struct {
	metadata.TermStart
	right          *journal.Right
	aborted, valid bool
}

func (c *watchedStart) Abort(*metadata.Store) { c.aborted, c.valid = true, c.right.Valid() }

// If a failed commit may be in the journal, or another node is elected, the right to answer ends before
// the changes are aborted, since that wakes readers that waited for the outcome.
func TestRightEndsBeforeChangesAreTakenBack(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		valid bool
	}{
		"no answer":                 {errors.New("no answer"), false},
		"the writer's context":      {context.Canceled, false},
		"another node is elected":   {journal.ErrFenced, false},
		"surely not in the journal": {&journal.RefusedError{Err: errors.New("too large")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(scriptedLog)
			w, right := writerWithRight(log)
			start := metadata.TermStart{Term: 1, Params: params}
			if err := w.Commit(t.Context(), &start); err != nil || !right.Valid() {
				t.Fatalf("the first commit: got %v, and the right valid: %v; want no error, and valid", err, right.Valid())
			}
			log.err = tc.err
			change := &watchedStart{TermStart: start, right: right}
			if err := w.Commit(t.Context(), change); err == nil || !change.aborted {
				t.Fatalf("a commit that fails: got %v, and its change taken back: %v; want an error, and taken back",
					err, change.aborted)
			}
			if change.valid != tc.valid || right.Valid() != tc.valid {
				t.Errorf("the right was valid when the change was taken back: %v, and is: %v; want %v", change.valid, right.Valid(), tc.valid)
			}
		})
	}
}
