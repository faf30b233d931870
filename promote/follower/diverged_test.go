package follower_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/follower"
)

// standingAt returns a store at a sequence.
func standingAt(t *testing.T, seq metadata.Seq) *metadata.Store {
	t.Helper()
	store := metadata.New(metadata.Options{})
	if err := store.StartAt(seq, 1); err != nil {
		t.Fatal(err)
	}
	return store
}

// A state that must be kept stays so until it is: also if the disk fails at first, and the
// node meets the same head again.
func TestAStateStaysToBeKept(t *testing.T) {
	full, kept := errors.New("test: the disk is full"), 0
	f := follower.New(follower.Config{
		Log: zerolog.Nop(), Clock: clock.Boot(), Diverged: func(context.Context, *metadata.Store, journal.Cursor, metadata.Seq) error {
			kept++
			return full
		},
	}, standingAt(t, 950), journal.NewCursor(journal.Head{Term: 132, Seq: 950, History: "h"}, 7, "v"))
	b := &journal.BrokenError{Reason: journal.ReasonFounded, Fork: 1000, Beside: true, Err: errors.New("founded")}
	f.Lose(b)
	if err := f.KeepDiverged(t.Context()); !errors.Is(err, full) {
		t.Fatalf("got %v, want that the disk is full", err)
	}
	f.Lose(b)
	full = nil
	if err := f.KeepDiverged(t.Context()); err != nil || kept != 2 {
		t.Errorf("D: the state was to be kept %d times (%v), want twice: it may be replaced now", kept, err)
	}
}

// A head that founds the journal anew ahead of a state is left to the watch, which says whether
// the journal before went on to there from the state.
func TestAFoundingAheadIsLeftToTheWatch(t *testing.T) {
	client, layout := etcdtest.Start(t).Client(t), journal.NewLayout("/understudy", "test")
	const head = `{"format":2,"term":133,"sequence":1000,"checked_digest":"0","history":%q,"parent_history":%q,"fork_sequence":1000}`
	before, after := journal.NewHistory(), journal.NewHistory()
	if _, err := client.Put(t.Context(), layout.Head(), fmt.Sprintf(head, after, before)); err != nil {
		t.Fatal(err)
	}
	for revision, left := range map[int64]bool{1: true, 1 << 40: false} { // of an etcd that was wiped meanwhile the watch says nothing
		f := follower.New(follower.Config{
			Log: zerolog.Nop(), Clock: clock.Boot(), Reader: &journal.Reader{Client: client, Layout: layout},
		}, standingAt(t, 950), journal.NewCursor(journal.Head{Term: 132, Seq: 950, History: before}, revision, "v"))
		if err := f.CheckLag(t.Context()); (err == nil) != left {
			t.Errorf("D: at revision %d the check of the lag says %v, want that it is left to the watch: %v", revision, err, left)
		}
	}
}
