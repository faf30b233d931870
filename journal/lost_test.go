package journal_test

import (
	"errors"
	"testing"

	"github.com/understudy-store/understudy/journal"
)

// If neither the head descends from the state nor the state from the head, there is a fork. A head of
// the same primary at or before the state's position means that the journal went back.
func TestAgainstAForkedJournal(t *testing.T) {
	at := func(h journal.Head) journal.Cursor {
		h.History = "h"
		value, err := h.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return journal.NewCursor(h, 1, value)
	}
	have := journal.Head{Term: 3, Seq: 10, Election: "a"}
	for name, tc := range map[string]struct {
		have, found  journal.Head
		lost, forked bool
	}{
		"the head itself":                          {have, have, false, false},
		"further on":                               {have, journal.Head{Term: 4, Seq: 11, Election: "b"}, false, false},
		"gone back":                                {have, journal.Head{Term: 3, Seq: 9, Election: "a"}, true, false},
		"gone back, an earlier term":               {have, journal.Head{Term: 2, Seq: 9, Election: "b"}, true, false},
		"a later term, behind":                     {have, journal.Head{Term: 4, Seq: 9, Election: "b"}, true, true},
		"a later term, here":                       {have, journal.Head{Term: 4, Seq: 10, Election: "b"}, true, true},
		"another primary of the term":              {have, journal.Head{Term: 3, Seq: 9, Election: "b"}, true, true},
		"an earlier term, further on":              {have, journal.Head{Term: 2, Seq: 11, Election: "b"}, true, true},
		"another primary of the term, further on":  {have, journal.Head{Term: 3, Seq: 11, Election: "b"}, true, true},
		"nobody says who wrote what is further on": {have, journal.Head{Term: 3, Seq: 11}, false, false},
		"nobody says who wrote it":                 {have, journal.Head{Term: 3, Seq: 9}, true, false},
	} {
		err := at(tc.have).Against(at(tc.found), nil)
		var lost *journal.LostError
		if errors.As(err, &lost) != tc.lost || tc.lost && lost.Forked != tc.forked {
			t.Errorf("%s: got %v; want a loss: %v, a fork: %v", name, err, tc.lost, tc.forked)
		}
	}
	if err := (journal.Cursor{Head: journal.Head{Seq: 10}}).Against(at(have), nil); err != nil {
		t.Errorf("a position in an older format, which names no term: got %v, want no loss", err)
	}
}

// A journal that gets its first history, once every node reads such heads, goes on from
// where it stands: nobody loads a snapshot.
func TestAgainstTheFirstHistory(t *testing.T) {
	have := journal.Cursor{Head: journal.Head{Term: 3, Seq: 10}}
	found := journal.Cursor{Head: journal.Head{Term: 3, Seq: 11, History: "h", Election: "a"}, Revision: 7}
	if err := have.Against(found, nil); err != nil {
		t.Errorf("got %v, want the same journal", err)
	}
	if err := found.Against(journal.Cursor{Head: journal.Head{Term: 4, Seq: 12}, Revision: 8}, nil); err != nil {
		t.Errorf("led by a node of the older format again: got %v, want the same journal", err)
	}
}
