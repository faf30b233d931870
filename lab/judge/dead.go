package judge

import (
	"slices"
	"time"

	"github.com/understudy-store/understudy/client"
)

// A grave records which objects of a key are gone for good, and since when.
type grave struct {
	since []time.Duration   // ascending
	upTo  []client.ObjectID // for each time in since: all ids up to this one are gone
	given map[client.ObjectID]time.Duration
}

// buried returns the objects of a key that are known to be gone. An acknowledged removal
// has ended whatever was reserved before it began. An object that is seen under the key
// has replaced all those with lower ids, since ids grow.
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

// resurrected looks for objects that were seen after they were gone, and reports whether
// there are any.
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
