package judge

import (
	"cmp"
	"slices"
	"time"
)

// A hold is a time in which an object certainly was in memory.
type hold struct {
	from, to time.Duration
	size     uint64
}

// overQuota looks for moments at which objects of Tenant certainly took more memory than its
// quota: reservations that were not ended yet, and objects under a lease. An object counts
// once, however many copies it has.
func overQuota(keys []*keyHistory, rules *Rules, t *tally) {
	if rules.Quota == 0 {
		return
	}
	t.checked(Q)
	type edge struct {
		at   time.Duration
		more int64 // bytes
	}
	var edges []edge
	terms := lastAnswers(keys)
	for _, h := range keys {
		if !h.metered() {
			continue
		}
		for _, one := range h.holds(terms) {
			edges = append(edges, edge{one.from, int64(one.size)}, edge{one.to, -int64(one.size)})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.more, b.more)) })
	used, over := int64(0), false
	for _, e := range edges {
		used += e.more
		if now := used > int64(rules.Quota); now != over {
			if over = now; over {
				t.add(Q, "%v: objects of tenant %s take at least %d bytes, its quota is %d", seconds(e.at), Tenant, used, rules.Quota)
			}
		}
	}
}

// lastAnswers returns until when each term certainly lasted: just after its last answer.
func lastAnswers(keys []*keyHistory) map[uint64]time.Duration {
	last := make(map[uint64]time.Duration)
	for _, h := range keys {
		for _, s := range h.steps {
			if s.Outcome == OK {
				last[s.Term] = max(last[s.Term], s.End+1)
			}
		}
	}
	return last
}

// holds returns the times in which objects of a key certainly were in memory, in order.
// Nothing is certain from the sending of a call that may have changed something to its end.
func (h *keyHistory) holds(terms map[uint64]time.Duration) []hold {
	next := make([]time.Duration, len(h.steps)) // when the next such call was sent
	at := forever
	for i, s := range slices.Backward(h.steps) {
		if next[i] = at; s.changes() {
			at = s.Start
		}
	}
	var all []hold
	changing := time.Duration(-1) // until then, earlier calls may still take effect
	for i, s := range h.steps {
		one := hold{from: s.End, to: min(s.surely(h.rules), next[i]), size: s.Size}
		if s.Call == Get { // the next primary may not know of the lease: it keeps the bytes, but not the object
			one.to = min(one.to, terms[s.Term])
		}
		if s.Outcome == OK && changing < s.Start && one.from < one.to {
			all = append(all, one)
		}
		if s.changes() {
			changing = max(changing, time.Duration(s.until))
		}
	}
	return apart(all)
}

// changes reports whether a step may have changed what is under the key.
func (s *step) changes() bool { return s.Call.mutates() && s.Outcome != Failed }

// surely returns until when the object of a step is in memory if no later call changes that.
func (s *step) surely(rules *Rules) time.Duration {
	one := &putInfo{start: s.Start}
	switch s.Call {
	case PutStart:
		return rules.discardFrom(one)
	case Get:
		return min(s.Leased, rules.lostFrom(one))
	default:
		return 0
	}
}

// apart joins holds that overlap, since a key has at most one object at any time.
func apart(all []hold) (joined []hold) {
	slices.SortFunc(all, func(a, b hold) int { return cmp.Compare(a.from, b.from) })
	for _, one := range all {
		if n := len(joined) - 1; n >= 0 && one.from <= joined[n].to {
			joined[n].to = max(joined[n].to, one.to)
		} else {
			joined = append(joined, one)
		}
	}
	return joined
}
