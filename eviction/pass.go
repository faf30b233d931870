package eviction

import (
	"slices"

	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
)

// Bounds limit an eviction pass.
type Bounds struct {
	Objects       int           // evict at most so many
	IncludePinned bool          // softly pinned objects as well
	Below         metadata.Time // evict only what expired before; 0 for no such bound
}

// A Pass is an eviction pass that the primary has prepared: the renewals that
// must be journaled before its cutoff, and the cutoff.
type Pass struct {
	NearMisses []leasesync.Renewal
	Cutoff     *Cutoff
	Victims    int
	Bytes      uint64 // of memory that the victims hold
	More       bool   // the bounds ended the search; there are more candidates
}

// next returns which objects a pass would evict now.
func next(store *metadata.Store, b Bounds) (refs []metadata.Ref) {
	search(store, b, func(_ metadata.Evictable, chosen []candidate, _ bool) {
		for _, c := range chosen {
			if !c.renewed() {
				refs = append(refs, c.Ref())
			}
		}
	})
	return refs
}

// search gives the candidates of a pass to a function, which still has the lock under
// which they were found. What was renewed since the last pass is filed anew first, a
// slice at a time: others get the lock in between.
func search(store *metadata.Store, b Bounds, use func(evictable metadata.Evictable, chosen []candidate, more bool)) {
	for again := true; again; {
		store.WithEvictable(func(evictable metadata.Evictable) {
			if again = evictable.EndPins(evictable.Now(), maxMoved); again {
				return
			}
			limit := evictable.Now() - 1
			if b.Below != 0 {
				limit = min(limit, b.Below-1)
			}
			var chosen []candidate
			var more bool
			if chosen, more, again = candidates(evictable, metadata.Through(limit), b); !again {
				use(evictable, chosen, more)
			}
		})
	}
}

// Select prepares an eviction pass on the primary, oldest deadline first. It
// returns nil if nothing may be evicted now.
//
// Candidates are chosen by journaled state. Those renewed since are returned as
// near misses. The others become victims: they grant no new lease, and their
// readers wait for the outcome. Only one pass may be under way.
func Select(store *metadata.Store, b Bounds) (pass *Pass) {
	search(store, b, func(evictable metadata.Evictable, chosen []candidate, more bool) {
		if len(chosen) == 0 {
			return
		}
		now, last := evictable.Now(), chosen[len(chosen)-1]
		pass = &Pass{More: more, Cutoff: &Cutoff{
			Deadline: last.Deadline(), ID: last.ID(), PinTime: now, IncludePinned: b.IncludePinned, victims: store.NewVictims(len(chosen)),
		}}
		for _, c := range chosen {
			pass.add(c, now)
		}
	})
	return pass
}

// add makes a candidate a victim of the pass, or one of its near misses if it, or
// another member of its group, was renewed beyond the cutoff in the meantime, or is
// being copied, or if its group is set apart.
func (p *Pass) add(c candidate, now metadata.Time) {
	bytes, keptUntil := uint64(0), c.keptUntil
	if !c.apart && keptUntil <= p.Cutoff.Deadline { // else its group stays, however many members that has
		bytes, keptUntil = p.Cutoff.victims.Claim(c.Candidate, p.Cutoff.Deadline, now)
	}
	if keptUntil > p.Cutoff.Deadline {
		p.NearMisses = append(p.NearMisses, leasesync.Renewal{Ref: c.Ref(), Deadline: keptUntil})
		return
	}
	p.Victims++
	p.Bytes += bytes
}

// maxCandidates bounds how many objects one pass looks at, near misses
// included, so that it holds the lock for about a millisecond.
const maxCandidates = 1 << 11

// maxMoved bounds how many objects that were renewed in the meantime, or whose soft pins
// have ended, are filed anew under the lock.
const maxMoved = 1 << 10

// endPins has the soft pins that have ended count no more, a slice at a time.
func endPins(store *metadata.Store) {
	for more := true; more; {
		store.WithEvictable(func(evictable metadata.Evictable) { more = evictable.EndPins(evictable.Now(), maxMoved) })
	}
}

// candidates returns the objects that a pass considers, in the order of eviction, and
// whether there are more. It finds every object up to the last one it returns, and of a
// group every member that is as old as that. Those renewed since they were journaled do not
// count towards the bounds. If it has filed too many others anew, it finds none and sets
// again: call it once more.
func candidates(evictable metadata.Evictable, limit metadata.Rank, b Bounds) (found []candidate, more, again bool) {
	found, through, again := gather(evictable, limit, b, false)
	if !again && !through.WholeMilli() && slices.ContainsFunc(found, func(c candidate) bool { return c.Deadline() == through.At && c.Group() != nil }) {
		found, through, again = gather(evictable, limit, b, true)
	}
	if again {
		return nil, false, true
	}
	slices.SortFunc(found, func(a, b candidate) int { return a.rank.Compare(b.rank) })
	n := whole(found, within(found, b.Objects))
	return found[:n], n < len(found) || through.Compare(limit) < 0, false
}

// gather returns all objects up to a rank, at most limit: at least as many as a pass
// considers, if there are so many. millis has it end between two milliseconds.
func gather(evictable metadata.Evictable, limit metadata.Rank, b Bounds, millis bool) (found []candidate, through metadata.Rank, again bool) {
	found = make([]candidate, 0, min(b.Objects, maxCandidates))
	walk := func(pinned bool) {
		victims, before := 0, len(found)
		limit, again = evictable.Walk(pinned, limit, maxMoved, func(o metadata.Candidate) {
			c := candidate{Candidate: o, rank: o.Rank(), keptUntil: keptUntil(o, evictable.Now())}
			found = append(found, c)
			if !c.renewed() {
				victims++
			}
		}, func(through metadata.Rank) bool {
			return (victims > b.Objects || len(found)-before > maxCandidates) && (!millis || through.WholeMilli())
		})
	}
	if walk(false); b.IncludePinned && !again {
		walk(true)
	}
	found = slices.DeleteFunc(found, func(c candidate) bool { return c.rank.Compare(limit) > 0 })
	return found, limit, again
}

// groupSlack is the number of candidates by which a cutoff may be extended for a group
// that it would divide. A group has 1,024 members at most.
const groupSlack = 1024

// whole returns how many of the candidates a cutoff must cover, n or more, so that it
// divides no group among those as old as the n-th: a group falls under a cutoff when its
// youngest member does, see Victims.Claim.
//
// Groups that were put at the same time may interleave, each reaching behind the one
// before it, and would all go at once. So if others make room, whole sets the groups
// apart that reach too far: it keeps them for some milliseconds more, each until another
// time.
func whole(found []candidate, n int) int {
	if n == 0 || n == len(found) {
		return n
	}
	last := found[n-1].Deadline()
	ends := make(map[any]int) // the last member of each group among those that are as old
	for i := n; i < len(found) && found[i].Deadline() == last; i++ {
		if g := found[i].Group(); g != nil {
			ends[g] = i + 1
		}
	}
	most, some := n+groupSlack, false
	apart := make(map[any]metadata.Time)
	for i := 0; i < n; i++ {
		g := found[i].Group()
		switch end := ends[g]; {
		case found[i].keptUntil > last || apart[g] > 0: // a near miss
		case end <= max(n, most) || !some:
			n, some = max(n, end), true
		default:
			apart[g] = last + metadata.Time(len(apart)) + 1
		}
	}
	for i := range found[:n] {
		if until := apart[found[i].Group()]; until > 0 {
			found[i].keptUntil, found[i].apart = max(found[i].keptUntil, until), true
		}
	}
	return n
}

// within returns how many of the candidates, in the order of eviction, a cutoff
// may cover so that at most so many become victims. One that was renewed since it
// was journaled becomes a victim too if that lease ends before the cutoff.
func within(found []candidate, most int) int {
	var renewed []metadata.Time // ends of leases
	for _, c := range found {
		if c.renewed() {
			renewed = append(renewed, c.keptUntil)
		}
	}
	slices.Sort(renewed)
	plain, ended := 0, 0
	for i, c := range found {
		if plain+ended == most {
			return i
		}
		for ended < len(renewed) && renewed[ended] <= c.Deadline() {
			ended++
		}
		if !c.renewed() {
			plain++
		}
		if plain+ended > most {
			return i
		}
	}
	return len(found)
}

// A candidate knows until when it is kept: to the end of its lease as granted last, or
// longer while a client copies it.
type candidate struct {
	metadata.Candidate
	rank      metadata.Rank // here, as sorting would wait for the memory of the objects
	keptUntil metadata.Time
	apart     bool // its group is set apart, see whole
}

func (c candidate) renewed() bool { return c.keptUntil > c.Deadline() }

func keptUntil(c metadata.Candidate, now metadata.Time) metadata.Time {
	e := c.Lock()
	defer e.Unlock()
	return e.KeptUntil(now)
}
