package judge

import (
	"slices"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// lost looks for what was acknowledged and is gone although nothing can have
// taken it away. It reports whether something is.
func (h *keyHistory) lost(t *tally) bool {
	found := false
	for _, s := range h.steps {
		if h.lostBeforeItsEnd(s) {
			t.add(D, "key %s\n  %v\n  and no attempt before can have ended it: neither a removal nor time can have taken it away", h.key, s)
			found = true
		}
		if s.Outcome != OK {
			continue
		}
		var how *step
		switch s.Call {
		case PutStart:
			how = h.lostReservation(s)
		case PutEnd:
			how = h.lostObject(s)
		default:
		}
		if how != nil {
			t.add(D, "key %s\n  %v\n  %v\n  and nothing in between can explain it", h.key, s, how)
			found = true
		}
	}
	return found
}

// lostReservation returns the step that shows a reservation to be gone, nil if
// none does. Until its writer ends or revokes it, only time can take it away.
func (h *keyHistory) lostReservation(start *step) *step {
	there := alternative{reserved, start.ID}
	own := slices.IndexFunc(h.steps, func(s *step) bool { return s.named() && s.ID == start.ID })
	limit := forever
	if own >= 0 {
		limit = h.steps[own].Start
	}
	for _, s := range h.after(start.End) {
		if !s.definite() {
			continue
		}
		if s.End < limit || own >= 0 && s == h.steps[own] {
			next, ok := h.answer(there, s)
			switch {
			case !ok && (s.premature() || h.discardable(there, s)):
				return nil // that is another fault, or none
			case !ok:
				return s
			case next != there:
				return nil // it ended, or time took it away
			}
		}
		if s.Start > limit {
			return nil
		}
	}
	return nil
}

// lostBeforeItsEnd reports whether a PutEnd that was repeated has not found its
// put, although nothing can have removed that: if an attempt before has ended it,
// it must be there.
func (h *keyHistory) lostBeforeItsEnd(s *step) bool {
	if !s.maybe || s.Call != PutEnd || s.Kind != errs.ObjectNotFound {
		return false
	}
	p := h.puts[s.ID]
	return p != nil && !h.rules.mayVanish(p, s.End) && !h.rules.mayBeDiscarded(p, s.End) && !h.removedBetween(p.start, s.End)
}

// premature reports whether a step took what is reserved for readable.
func (s *step) premature() bool {
	switch s.Call {
	case Get:
		return s.Outcome == OK
	case Exist:
		return s.Exists
	case Remove, RemoveForce, RemoveRegex:
		return s.Outcome == OK || s.Kind == errs.ObjectHasLease
	default:
		return false
	}
}

// lostObject returns the step that shows a readable object to be gone, nil if
// none does or something can have removed it.
func (h *keyHistory) lostObject(end *step) *step {
	there := alternative{readable, end.ID}
	for _, s := range h.after(end.End) {
		if !s.definite() {
			continue
		}
		next, ok := h.answer(there, s)
		switch {
		case !ok && (h.gone(there, s) || h.removedBetween(end.Start, s.End)):
			return nil
		case !ok:
			return s
		case next != there:
			return nil // removed, or it may have vanished
		}
	}
	return nil
}

// removedBetween reports whether anything can have removed an object in a time.
func (h *keyHistory) removedBetween(from, to time.Duration) bool {
	return slices.ContainsFunc(h.steps, func(s *step) bool {
		return s.removes() && s.Start < to && int64(from) < s.until
	})
}

// A grave says which puts of a key are gone for ever, and since when.
type grave struct {
	since []time.Duration   // ascending
	upTo  []client.ObjectID // from then on, all ids up to this one
	given map[client.ObjectID]time.Duration
}

// buried returns what is known of a key's dead. A removal that was acknowledged
// has ended whatever was reserved before it began, and who is seen under the key
// has replaced all with lower ids, for ids grow.
func (h *keyHistory) buried() grave {
	type death struct {
		at   time.Duration
		upTo client.ObjectID
	}
	var deaths []death
	g := grave{given: make(map[client.ObjectID]time.Duration)}
	for _, s := range h.steps {
		if s.Outcome != OK || s.maybe {
			continue
		}
		switch s.Call {
		case Remove, RemoveForce, RemoveRegex:
			var last client.ObjectID
			for id, p := range h.puts {
				if p.end < s.Start {
					last = max(last, id)
				}
			}
			deaths = append(deaths, death{s.End, last})
		case PutStart, PutEnd, Get:
			deaths = append(deaths, death{s.End, s.ID - 1})
		case PutRevoke:
			g.given[s.ID] = s.End
		default:
		}
	}
	slices.SortFunc(deaths, func(a, b death) int { return int(a.at - b.at) })
	var upTo client.ObjectID
	for _, d := range deaths {
		if d.upTo > upTo {
			upTo = d.upTo
			g.since, g.upTo = append(g.since, d.at), append(g.upTo, upTo)
		}
	}
	return g
}

// dead reports whether an object was known to be gone before some time.
func (g *grave) dead(id client.ObjectID, when time.Duration) bool {
	if at, ok := g.given[id]; ok && at < when {
		return true
	}
	n, _ := slices.BinarySearch(g.since, when)
	return n > 0 && id <= g.upTo[n-1]
}

// resurrected looks for objects that are seen after they were gone. It reports
// whether there are some.
func (h *keyHistory) resurrected(g *grave, t *tally) bool {
	found := false
	for _, s := range h.steps {
		if s.Outcome == OK && (s.Call == Get || s.Call == PutEnd) && g.dead(s.ID, s.Start) {
			t.add(X, "key %s\n  %v\n  although that was removed, or replaced, and that acknowledged before", h.key, s)
			found = true
		}
	}
	return found
}
