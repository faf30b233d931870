// Package kvevents keeps the newest changes of keys (stored, removed, evicted) for
// those who follow the cache, such as routers that place requests by it.
//
// Every node derives the same events from the same journal, so a subscriber goes on
// with the next primary where it stood. A feed never skips in silence what it does not
// keep any more: it has the subscriber begin anew, and sends all keys that there are. The
// package must never hold up a commit, and needs no goroutine.
package kvevents

import (
	"sort"
	"sync"

	"github.com/understudy-store/understudy/metadata"
)

// A Checkpoint says up to where in the journal a subscriber has seen everything.
type Checkpoint struct {
	History string // of the journal; empty without HA on older clusters
	Term    metadata.Term
	Seq     metadata.Seq
}

// maxBytes bounds the names that a feed keeps; a key may have 64 KiB.
const maxBytes = 64 << 20

// maxTerms is how many terms a checkpoint may be behind.
const maxTerms = 64

// A Feed keeps the newest events of the store that applies commits.
type Feed struct {
	capacity int
	history  func() string

	mu       sync.Mutex // a leaf, below the locks of the store
	of       *metadata.Store
	epoch    int // counts the stores
	ring     []entry
	bytes    int
	first    uint64       // number of the oldest event in the ring
	next     uint64       // number of the next event
	whole    uint64       // events below this number may be given out
	base     metadata.Seq // all events behind it are in the ring
	through  metadata.Seq
	terms    []termStart // the oldest first
	sweeping bool
	held     metadata.Seq  // while sweeping: the checkpoint that subscribers have
	changed  chan struct{} // closed when there is more; nil while nobody waits
	counts   Counts
}

type entry struct {
	seq  metadata.Seq
	what metadata.MediaChange
}

type termStart struct {
	term metadata.Term
	from metadata.Seq
}

// Counts are figures of a feed since the program started.
type Counts struct {
	Events      uint64 // kept at some time
	Subscribers int    // at present
	Resyncs     uint64 // subscribers that were told to begin anew
	Dropped     uint64 // subscribers that were too slow
}

// New returns a feed that keeps so many events. history returns the name of the
// journal that is followed now.
func New(capacity int, history func() string) *Feed {
	return &Feed{capacity: capacity, history: history}
}

// Counts returns the figures.
func (f *Feed) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

// MediaChanged keeps an event (metadata.Watcher).
func (f *Feed) MediaChanged(of *metadata.Store, at metadata.Seq, what *metadata.MediaChange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.follow(of, at)
	for f.next-f.first == uint64(f.capacity) || f.bytes > maxBytes && f.next > f.first {
		f.drop()
	}
	e := entry{at, *what}
	if len(f.ring) < f.capacity {
		f.ring = append(f.ring, e)
	} else {
		f.ring[f.next%uint64(f.capacity)] = e
	}
	f.next++
	f.bytes += e.bytes()
	f.counts.Events++
}

// Applied makes visible what a commit did (metadata.Watcher).
//
// The events of an unmount come later than its commit, on each node at another time.
// Until the feed has all of them, the checkpoint of subscribers stays before that
// commit: a subscriber that goes on elsewhere gets them there, some of them twice.
func (f *Feed) Applied(of *metadata.Store, term metadata.Term, at metadata.Seq, sweeping bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.follow(of, at)
	if sweeping && !f.sweeping {
		f.held = at - 1
	}
	f.sweeping, f.through, f.whole = sweeping, at, f.next
	if n := len(f.terms); n == 0 || f.terms[n-1].term != term {
		f.terms = append(f.terms, termStart{term, at})
		f.terms = f.terms[max(0, len(f.terms)-maxTerms):]
	}
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// follow begins anew when another store applies commits: what lies between the two is
// not known. Needs mu.
func (f *Feed) follow(of *metadata.Store, at metadata.Seq) {
	if f.of == of {
		return
	}
	f.of, f.base, f.through = of, at, at
	f.epoch++
	f.ring, f.bytes, f.first, f.next, f.whole = nil, 0, 0, 0, 0
	f.terms, f.sweeping, f.held = nil, false, 0
}

// drop gives up the oldest event. Needs mu.
func (f *Feed) drop() {
	oldest := f.at(f.first)
	f.base = oldest.seq
	f.bytes -= oldest.bytes()
	oldest.what = metadata.MediaChange{}
	f.first++
}

// at returns an event of the ring by its number. Needs mu.
func (f *Feed) at(number uint64) *entry { return &f.ring[number%uint64(f.capacity)] }

func (e *entry) bytes() int { return len(e.what.Key) + len(e.what.Group) + len(e.what.Tenant) }

// checkpoint returns the checkpoint of a subscriber that has seen everything. Needs mu.
func (f *Feed) checkpoint(history string) Checkpoint {
	p := Checkpoint{History: history, Seq: f.through}
	if f.sweeping {
		p.Seq = f.held
	}
	p.Term = f.termAt(p.Seq)
	return p
}

// termAt returns the term of a sequence, 0 if that is not known any more. Needs mu.
func (f *Feed) termAt(seq metadata.Seq) metadata.Term {
	for i := len(f.terms) - 1; i >= 0; i-- {
		if f.terms[i].from <= seq {
			return f.terms[i].term
		}
	}
	return 0
}

// find returns the number of the first event behind a checkpoint, false if not all events
// behind it are kept. Needs mu.
func (f *Feed) find(p Checkpoint, history string) (uint64, bool) {
	if p.History != history || p.Seq < f.base || p.Seq > f.through || p.Term == 0 || p.Term != f.termAt(p.Seq) {
		return 0, false
	}
	kept := int(f.next - f.first)
	return f.first + uint64(sort.Search(kept, func(i int) bool { return f.at(f.first+uint64(i)).seq > p.Seq })), true
}
