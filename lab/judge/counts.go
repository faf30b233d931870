package judge

import (
	"slices"

	"github.com/understudy-store/understudy/client"
)

// What no single key can show.

// givenTwice looks for ids that two reservations were given: an id is never used
// again.
func givenTwice(history []Record, t *tally) {
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

// overdone looks for removals by pattern whose count cannot be: that say more
// than there are keys, or less than what nothing else can have removed. Of each
// key such a removal takes one object at most.
func overdone(history []Record, keys []*keyHistory, t *tally) {
	matched, needed := make(map[*Record]uint64), make(map[*Record]uint64)
	for _, h := range keys {
		for _, s := range h.steps {
			if s.Call == RemoveRegex {
				matched[s.Record]++
			}
		}
		for _, s := range h.neededRemovals() {
			needed[s.Record]++
		}
	}
	for i := range history {
		r := &history[i]
		if r.Call != RemoveRegex || r.Outcome != OK {
			continue
		}
		if r.Count > matched[r] {
			t.add(V, "keys %s*: a removal says that it took more than the %d that there are\n  %v", r.Key, matched[r], r)
		}
		if r.Count < needed[r] {
			t.add(D, "keys %s*: a removal has taken more than it says, for nothing else can explain what is gone of %d keys\n  %v", r.Key, needed[r], r)
		}
	}
}

// neededRemovals returns the removals by pattern without which something of the
// key would be gone, and nothing to explain it.
func (h *keyHistory) neededRemovals() (list []*step) {
	if !slices.ContainsFunc(h.steps, (*step).byPattern) || h.lost(new(tally)) {
		return nil
	}
	for i, s := range h.steps {
		if !s.byPattern() {
			continue
		}
		without := *h
		without.steps = slices.Delete(slices.Clone(h.steps), i, i+1)
		if without.lost(new(tally)) {
			list = append(list, s)
		}
	}
	return list
}

// byPattern reports whether a step may have removed the key's object, with
// others.
func (s *step) byPattern() bool { return s.maybe && s.Call == RemoveRegex }
