package journal_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/journal"
)

// An older node joins, so heads are to carry no window any more. Until the first
// of them is written, followers depose by the one before.
func TestSessionCountsFromTheFirstCommitWithoutAWindow(t *testing.T) {
	const window, failover, session = 600 * time.Millisecond, time.Second, 5 * time.Second
	now := time.Hour
	right := journal.NewRight(func() time.Duration { return now })
	right.Session(now + session)
	right.Sending(now, window, failover)
	right.Committed(now, window)
	if !right.Valid() {
		t.Fatal("a commit does not extend the right")
	}

	now += 100 * time.Millisecond
	right.Sending(now, 0, 0)
	right.Session(now + session)
	now += window
	if right.Valid() {
		t.Error("the session counts before a commit without a window has succeeded")
	}
	right.Committed(now, 0)
	if !right.Valid() {
		t.Error("the session does not count behind a commit without a window")
	}
	now += session - time.Second
	right.Session(now + session)
	now += session - time.Second
	if !right.Valid() {
		t.Error("a keepalive does not extend the right")
	}

	right.Sending(now, window, failover)
	right.Session(now + session)
	now += window
	if right.Valid() {
		t.Error("the session counts although a commit with a window may have been written")
	}
}
