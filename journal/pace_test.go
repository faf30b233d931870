package journal_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/understudy-store/understudy/journal"
)

// The primary of an earlier term may still answer, and some node cannot read windows. So a term that
// ends at once must pass that primary's window on to the next term.
func TestPaceKeepsTheWindowOfAnEarlierTerm(t *testing.T) {
	const window, failover = 600 * time.Millisecond, time.Second
	pace := journal.NewPace(failover, 5*time.Second, slog.New(slog.DiscardHandler))
	pace.AtLeast(window)
	if w, d := pace.Windows(); w != window || d != failover {
		t.Errorf("heads carry %v and %v while an earlier primary may answer, want %v and %v", w, d, window, failover)
	}
	pace.AtLeast(0)
	if w, d := pace.Windows(); w != 0 || d != 0 {
		t.Errorf("a node does not read windows: got %v and %v in heads, want none", w, d)
	}
}
