package judge

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// A status is what is under a key.
type status uint8

const (
	absent   status = iota
	reserved        // a put is under way
	readable        // a put was ended
	closed          // the history is over: a call without an answer that did not work yet never will
)

// An alternative is one state that a key may be in.
type alternative struct {
	status status
	id     client.ObjectID // 0 if absent
	// from is the earliest time at which the key can be in this state: what a step without
	// an answer replaced had to be old enough.
	from time.Duration
	// held is when the lease that keeps the object ends; a removal may override it.
	held time.Duration
}

func (a alternative) is(status status, id client.ObjectID) bool {
	return a.status == status && a.id == id
}

// as returns the alternative with another object, or none, from then on.
func (a alternative) as(status status, id client.ObjectID) alternative {
	return alternative{status: status, id: id, from: a.from}
}

// A state is the set of states that a key may be in, as far as clients can tell. The
// alternatives differ by removals that may or may not have removed something. They are
// sorted, and there is at least one.
//
// Some calls without an answer have the same effect: puts that nobody can end, such
// upserts, and removals. It does not matter which of them worked, so the model lets them
// work in the order in which they were sent, if at all. The state counts those that did.
type state struct {
	may                     []alternative
	puts, upserts, removals int
}

// A step is one thing that happens to a key.
type step struct {
	*Record
	until   int64 // when it ended; never for a call without an answer
	maybe   bool  // it may have worked or done nothing: its answer does not tell
	close   bool  // the history is over
	ordinal int   // its number among the puts, or removals, without an answer
}

// never is the end of a call without an answer.
const never = math.MaxInt64

// A keyModel is the model of one key under the rules.
//
// An object may vanish by eviction, by the release of an abandoned put, or by a loss that
// the drill allows. The model keeps it in the state until an answer shows that it is gone.
// That covers every earlier moment, since an object that may vanish may also vanish later.
//
// A call without an answer works at some time after it was sent, or never. So it is a step
// without an end, which works where it can or comes after the end of the history.
type keyModel struct {
	rules    *Rules
	puts     map[client.ObjectID]*putInfo
	terms    map[uint64]time.Duration // for each term, until when it certainly lasted
	forgets  bool                     // acknowledged puts may vanish; answers that need this break D
	unleased bool                     // leases keep nothing; answers that need this break L
}

// porcupine returns the model in the checker's form.
func (m *keyModel) porcupine() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{may: []alternative{{}}} },
		Step: func(s, input, _ any) (bool, any) {
			next := m.step(s.(state), input.(*step))
			return len(next.may) > 0, next
		},
		Equal: func(x, y any) bool {
			a, b := x.(state), y.(state)
			return a.puts == b.puts && a.upserts == b.upserts && a.removals == b.removals && slices.Equal(a.may, b.may)
		},
		Hash: func(x any) uint64 {
			h := uint64(14695981039346656037)
			for _, a := range x.(state).may {
				h = (h ^ uint64(a.id)<<2 ^ uint64(a.status)) * 1099511628211
			}
			return h
		},
	}
}

// step returns the state after a step; without alternatives if the step is impossible.
func (m *keyModel) step(before state, s *step) state {
	next := state{may: make([]alternative, 0, len(before.may)+1), puts: before.puts, upserts: before.upserts, removals: before.removals}
	over := before.may[0].status == closed
	if s.Outcome == Ambiguous && !over && !next.take(s, m.rules.Unnumbered) {
		return next
	}
	for _, a := range before.may {
		switch {
		case s.close:
			next.may = append(next.may, alternative{status: closed})
		case over:
			if s.Outcome == Ambiguous {
				next.may = append(next.may, a)
			}
		case s.end() < a.from:
		case s.maybe:
			next.may = append(next.may, a)
			if worked, ok := m.work(a, s); ok {
				next.may = append(next.may, worked)
			}
		case s.Outcome == Ambiguous:
			if worked, ok := m.work(a, s); ok {
				next.may = append(next.may, worked)
			}
		default:
			if after, ok := m.answer(a, s); ok {
				next.may = append(next.may, after)
			}
		}
	}
	if len(next.may) > 1 {
		slices.SortFunc(next.may, func(a, b alternative) int {
			return cmp.Or(cmp.Compare(a.status, b.status), cmp.Compare(a.id, b.id), cmp.Compare(a.from, b.from), cmp.Compare(a.held, b.held))
		})
		next.may = slices.Compact(next.may)
	}
	return next
}

// take counts a call without an answer that worked. It reports false if an equal call must
// come first. Puts without request ids are never equal, since what they may replace depends on
// their client.
func (n *state) take(s *step, unnumbered bool) bool {
	switch {
	case s.Call == PutStart && !s.Upsert && unnumbered:
	case s.Call == PutStart && s.Upsert && s.ordinal == n.upserts:
		n.upserts++
	case s.Call == PutStart && !s.Upsert && s.ordinal == n.puts:
		n.puts++
	case s.removes() && s.ordinal == n.removals:
		n.removals++
	default:
		return s.named()
	}
	return true
}

// work returns the alternative after a mutation, and whether the mutation can work there.
func (m *keyModel) work(a alternative, s *step) (alternative, bool) {
	switch s.Call {
	case PutStart:
		if s.Upsert {
			return a.as(reserved, s.ID), true
		}
		from := min(m.goneFrom(a), m.discardFrom(a, s))
		return alternative{status: reserved, id: s.ID, from: max(a.from, from)}, reached(from, s)
	case PutEnd:
		return a.as(readable, s.ID), a.is(reserved, s.ID)
	case PutRevoke:
		return a.as(absent, 0), a.is(reserved, s.ID)
	case Remove:
		return alternative{from: max(a.from, a.held)}, a.status == readable && a.held <= s.end()
	case RemoveForce, RemoveRegex:
		return a.as(absent, 0), a.status == readable
	default:
		return a, false
	}
}

// answer returns the alternative after a call with an answer. It reports false if the answer is
// impossible.
func (m *keyModel) answer(a alternative, s *step) (alternative, bool) {
	if s.Outcome == OK {
		return m.success(a, s)
	}
	switch s.Kind {
	case errs.ObjectNotFound:
		if s.named() && s.Attempts > 1 && reached(m.discardFrom(a, s), s) {
			return a.as(absent, 0), true
		}
		if s.named() && a.status != absent && a.id != s.ID {
			return a, true // another put is there
		}
		return m.vanish(a, s)
	case errs.ReplicaNotReady: // of a removal: or while the object is copied
		return a, a.status == reserved || a.status == readable && (s.Call != Get || reached(m.unreadableFrom(a), s))
	case errs.ObjectExists:
		return a, a.status == reserved || a.status == readable
	case errs.NoAvailableHandle:
		if s.Upsert || reached(m.discardFrom(a, s), s) {
			return a, true
		}
		return m.vanish(a, s)
	case errs.ObjectHasLease: // of a reservation: that of its group
		return a, a.status != absent
	case errs.InvalidWrite:
		return a, a.is(readable, s.ID) // the answer to a revocation that comes too late
	default:
		return a, true // the answer shows nothing about the key
	}
}

// success is answer for a call that succeeded.
func (m *keyModel) success(a alternative, s *step) (alternative, bool) {
	switch s.Call {
	case Get:
		a.held = max(a.held, m.leasedTo(s))
		return a, a.is(readable, s.ID)
	case Exist:
		if s.Exists {
			return a, a.status == readable
		}
		if a.status == reserved {
			return a, true
		}
		return m.vanish(a, s)
	case PutEnd:
		if a.is(readable, s.ID) {
			return a, true // repeated
		}
		return m.work(a, s)
	default:
		return m.work(a, s)
	}
}

// named reports whether the call is about one put of the key.
func (s *step) named() bool { return s.Call == PutEnd || s.Call == PutRevoke }

// vanish returns the alternative without an object, and whether the object can have vanished by
// a step.
func (m *keyModel) vanish(a alternative, s *step) (alternative, bool) {
	from := m.goneFrom(a)
	return alternative{from: max(a.from, from)}, reached(from, s)
}

// goneFrom returns the time from which on the object may have vanished; forever if it may not.
// With forgets, that includes acknowledged objects.
func (m *keyModel) goneFrom(a alternative) time.Duration {
	p := m.puts[a.id]
	switch {
	case a.status == absent:
		return 0
	case p == nil:
		return forever
	case a.status == readable && m.forgets:
		return min(m.rules.vanishFrom(p), p.ended)
	case a.status == readable:
		return max(m.rules.vanishFrom(p), a.held)
	case m.forgets:
		return min(m.rules.releaseFrom(p), p.end)
	default:
		return m.rules.releaseFrom(p)
	}
}

// unreadableFrom returns the time from which on a readable object may have only a copy in
// progress left; forever if that is impossible.
func (m *keyModel) unreadableFrom(a alternative) time.Duration {
	p := m.puts[a.id]
	switch {
	case m.forgets:
		return m.goneFrom(a)
	case p == nil:
		return forever
	}
	return m.rules.lostFrom(p)
}

// leasedTo returns until when the lease of a Get certainly keeps its object. The next primary
// may not know of the lease: then it keeps the bytes, but not the object.
func (m *keyModel) leasedTo(s *step) time.Duration {
	p := m.puts[s.ID]
	if p == nil || m.unleased || m.forgets {
		return 0
	}
	to := min(s.Leased-clockSlack(s.Leased-s.Start), m.terms[s.Term])
	if lost := m.rules.lostFrom(p); lost <= to {
		return 0
	}
	return to
}

// discardFrom returns the time from which on a put may replace a reservation.
func (m *keyModel) discardFrom(a alternative, s *step) time.Duration {
	p := m.puts[a.id]
	switch {
	case a.status != reserved || p == nil:
		return forever
	case s.Call == PutStart && m.rules.mayBeReplaced(p, s.Client):
		return 0
	default:
		return m.rules.discardFrom(p)
	}
}

// reached reports whether a step may have taken effect at a time or later.
func reached(from time.Duration, s *step) bool { return from < forever && from <= s.end() }

// end returns when the step ended; never for one without an answer.
func (s *step) end() time.Duration { return time.Duration(s.until) }
