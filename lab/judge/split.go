package judge

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// A keyHistory is all that is known of one key.
type keyHistory struct {
	keyModel
	key    string
	steps  []*step   // by their start; only those that show or may change something
	needed []*Record // removals by pattern that have removed something
}

// split divides a history by keys, and returns them in order. It leaves out calls that show
// nothing about a key.
func split(history []Record, rules *Rules) []*keyHistory {
	names, terms := make(map[string]*keyHistory), lastProbes(history)
	for i := range history {
		r := &history[i]
		if r.Call == Mark || r.Call == RemoveRegex && !r.Exact || names[r.Key] != nil {
			continue
		}
		names[r.Key] = &keyHistory{key: r.Key, keyModel: keyModel{rules: rules, terms: terms, puts: make(map[client.ObjectID]*putInfo)}}
	}
	sorted := slices.Sorted(maps.Keys(names))
	for i := range history {
		r := &history[i]
		if r.Call != RemoveRegex || r.Exact {
			if h := names[r.Key]; h != nil {
				h.add(r)
			}
			continue
		}
		for _, name := range under(sorted, r.Key) {
			names[name].add(r)
		}
	}
	all := make([]*keyHistory, len(sorted))
	for i, name := range sorted {
		all[i] = names[name]
		slices.SortStableFunc(all[i].steps, func(a, b *step) int { return cmp.Compare(a.Start, b.Start) })
		all[i].number()
	}
	return all
}

// lastProbes returns until when each term certainly lasted, by its last answer to a probe. For
// a client's call only a lower bound of the term is known.
func lastProbes(history []Record) map[uint64]time.Duration {
	last := make(map[uint64]time.Duration)
	for i := range history {
		if r := &history[i]; r.probe() && r.Outcome == OK {
			last[r.Term] = max(last[r.Term], r.Start)
		}
	}
	return last
}

// number numbers the puts, the upserts and the removals without an answer.
func (h *keyHistory) number() {
	puts, upserts, removals := 0, 0, 0
	for _, s := range h.steps {
		switch {
		case s.Outcome != Ambiguous:
		case s.Call == PutStart && s.Upsert:
			s.ordinal = upserts
			upserts++
		case s.Call == PutStart:
			s.ordinal = puts
			puts++
		case s.removes():
			s.ordinal = removals
			removals++
		}
	}
}

// add takes in a record of the key, or of a pattern that matches it.
func (h *keyHistory) add(r *Record) {
	if r.Outcome == Failed && !r.answered() {
		return
	}
	s := &step{Record: r, until: int64(r.End)}
	switch {
	case r.Outcome == Ambiguous && !r.Call.mutates():
		return
	case r.Outcome == Ambiguous:
		s.until = never
		if r.Call == PutStart {
			s.Record = h.unknownPut(r)
		}
	case r.Call == RemoveRegex && (r.Outcome == Failed || r.Count == 0):
		return // it does not report what it skips
	case r.Call == RemoveRegex && !r.Exact:
		s.maybe = true
	case r.Call == PutEnd && (r.Kind == errs.ObjectNotFound || r.Kind == errs.IllegalClient) && r.Attempts > 1:
		// An attempt before, whose answer was lost, may have ended the put; then it
		// was removed, and perhaps another client put the key.
		h.steps = append(h.steps, &step{Record: r, until: s.until, maybe: true})
	case r.Call == PutEnd && r.Outcome == OK && h.puts[r.ID] != nil:
		h.puts[r.ID].ended = r.End
	case r.Call == PutStart && r.Outcome == OK:
		p := &putInfo{start: r.Start, end: r.End, ended: forever, host: r.Host, pinned: r.Pinned, metered: h.metered(), client: r.Client}
		if to, ok := h.rules.Moved[r.ID]; ok {
			p.host = to
		}
		h.puts[r.ID] = p
	}
	h.steps = append(h.steps, s)
}

// metered reports whether the key belongs to the tenant with a quota.
func (h *keyHistory) metered() bool { return strings.HasPrefix(h.key, label(Tenant, "")) }

// unknownPut gives a PutStart without an answer an id that no other put has. Its
// client does not know it, so nobody can end that put.
func (h *keyHistory) unknownPut(r *Record) *Record {
	known := *r
	known.ID = client.ObjectID(math.MaxUint64 - uint64(len(h.steps)))
	h.puts[known.ID] = &putInfo{start: r.Start, end: forever, ended: forever, pinned: r.Pinned, metered: h.metered(), client: r.Client}
	return &known
}

// removes reports whether a step can have removed a readable object.
func (s *step) removes() bool {
	switch s.Call {
	case Remove, RemoveForce, RemoveRegex:
		return s.Outcome != Failed
	default:
		return false
	}
}

// definite reports whether a step's answer is the whole truth.
func (s *step) definite() bool { return !s.maybe && !s.close && s.Outcome != Ambiguous }
