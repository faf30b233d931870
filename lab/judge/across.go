package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/metadata"
)

// The checks that need the histories of several keys.

// sharedIDs looks for ids that two reservations got. No id may be used twice.
func sharedIDs(history []Record, t *tally) {
	given := make(map[client.ObjectID]*Record)
	for i := range history {
		r := &history[i]
		if r.Call != PutStart || r.Outcome != OK {
			continue
		}
		if before := given[r.ID]; before != nil {
			t.add(X, "object %v was given twice\n  key %s: %v\n  key %s: %v", r.ID, before.Key, before, r.Key, r)
		}
		given[r.ID] = r
	}
}

// wrongCounts looks for removals by pattern with an impossible count: above the number of
// keys that match, or below the number of objects that nothing else can have removed.
// Such a removal takes at most one object of each key.
func wrongCounts(history []Record, keys []*keyHistory, t *tally) {
	matched, needed := make(map[*Record]uint64), make(map[*Record]uint64)
	for _, h := range keys {
		for _, s := range h.steps {
			if s.Call == RemoveRegex {
				matched[s.Record]++
			}
		}
		for _, r := range h.needed {
			needed[r]++
		}
	}
	for i := range history {
		r := &history[i]
		if r.Call != RemoveRegex || r.Outcome != OK {
			continue
		}
		if r.Count > matched[r] {
			t.add(V, "keys %s*: a removal reports more than the %d that there are\n  %v", r.Key, matched[r], r)
		}
		if r.Count < needed[r] {
			t.add(D, "keys %s*: a removal has taken more than it reports, for nothing else can explain what is gone of %d keys\n  %v", r.Key, needed[r], r)
		}
	}
}

// lowerTerms looks for answers of a lower term to calls that were sent after some
// client had got an answer of a higher one. It judges only answers whose exact term is
// known: those to probes, and reservations, whose ids contain it.
func lowerTerms(history []Record, t *tally) {
	type answer struct {
		at   time.Duration
		term uint64
	}
	var known []answer
	for i := range history {
		if r := &history[i]; r.Term > 0 && r.answered() {
			known = append(known, answer{r.End, max(r.Term, r.exactTerm())})
		}
	}
	slices.SortFunc(known, func(a, b answer) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(known); i++ {
		known[i].term = max(known[i].term, known[i-1].term)
	}
	for i := range history {
		r := &history[i]
		if !r.answered() || !r.probe() && (r.Call != PutStart || r.ID == 0) || r.Call == Mark {
			continue
		}
		n, _ := slices.BinarySearchFunc(known, r.Start, func(h answer, at time.Duration) int { return cmp.Compare(h.at, at) })
		if n > 0 && known[n-1].term > r.exactTerm() {
			t.add(F, "key %s\n  %v\n  in term %d, although term %d had answered before that was sent", r.Key, r, r.exactTerm(), known[n-1].term)
		}
	}
}

// exactTerm returns the term in which an answer was given. Of a client's calls only
// reservations show it; for the others the result is a lower bound.
func (r *Record) exactTerm() uint64 {
	if !r.probe() && r.Call == PutStart && r.ID != 0 {
		return uint64(metadata.ObjectID(r.ID).Term())
	}
	return r.Term
}
