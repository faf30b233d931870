package judge

import "github.com/understudy-store/understudy/client"

// What no single key can show.

// sharedIDs looks for ids that two reservations were given: an id is never used
// again.
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

// wrongCounts looks for removals by pattern whose count cannot be: that report
// more than there are keys, or less than what nothing else can have removed. Of
// each key such a removal takes one object at most.
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
