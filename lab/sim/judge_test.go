package sim

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

// A judge knows what callers know, and nothing else: which answer each call got,
// when it was sent and when it was answered. From that it finds broken promises
// (design section 1).
//
// A key has one writer at a time, so its puts and removals have an order.
// Readers are many.
type judge struct {
	transcript *transcript

	mu       sync.Mutex // guards all below
	objects  map[metadata.ObjectID]*object
	inOrder  []*object // all objects, as they became known
	keys     map[string][]*object
	removing map[string]int // removals of a key that have no answer yet
	answered map[metadata.Term]time.Duration
	states   map[metadata.Seq]state
	findings []string
	acks     int
}

// An object is one put of one key, as far as callers know. A zero time stands
// for never.
type object struct {
	id          metadata.ObjectID
	key         string
	put         []bytes       // where PutStart reserved
	places      []*place      // where its bytes are, or are to be
	reserved    time.Duration // PutStart was acknowledged
	endAsked    time.Duration // the first PutEnd was sent
	readable    time.Duration // PutEnd was acknowledged, or a reader saw it
	removeAsked time.Duration // the first removal that may have hit it was sent
	removed     time.Duration // a removal was acknowledged, or a reader missed it
}

// bytes are some memory of the cluster.
type bytes struct{ from, to uint64 }

func (b bytes) overlap(a bytes) bool { return b.from < a.to && a.from < b.to }

// A place is memory that holds an object's bytes, or will.
type place struct {
	bytes
	transfer bool          // it is where a copy or a move puts them
	endAsked time.Duration // of a transfer: its first end was sent
	there    time.Duration // of a transfer: its end was acknowledged
	leaves   bool          // the end of a move away from here was sent
	left     time.Duration // such an end was acknowledged
	leased   time.Duration // a reader relies on it until then
}

type state struct {
	node   string
	digest metadata.Digest
}

// A call is one call's time, and the term of who answered it.
type call struct {
	client     string
	sent, came time.Duration
	term       metadata.Term
}

func newJudge(t *transcript) *judge {
	return &judge{
		transcript: t, objects: make(map[metadata.ObjectID]*object), keys: make(map[string][]*object), removing: make(map[string]int),
		answered: make(map[metadata.Term]time.Duration), states: make(map[metadata.Seq]state),
	}
}

// find notes a broken promise.
func (j *judge) find(promise, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.findLocked(promise, format, args...)
}

func (j *judge) findLocked(promise, format string, args ...any) {
	text := fmt.Sprintf("promise %s: %s", promise, fmt.Sprintf(format, args...))
	j.findings = append(j.findings, text)
	j.transcript.note("judge", "%s", text)
}

// broken returns the broken promises.
func (j *judge) broken() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.findings
}

// acknowledged returns how many calls were answered as done.
func (j *judge) acknowledged() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.acks
}

// state judges a complete node's digest at a sequence (S).
func (j *judge) state(node string, seq metadata.Seq, digest metadata.Digest) {
	j.mu.Lock()
	defer j.mu.Unlock()
	before, there := j.states[seq]
	if !there {
		j.states[seq] = state{node, digest}
		return
	}
	if before.digest != digest {
		j.findLocked("S", "at sequence %d %s has digest %v, want %v as %s has", seq, node, digest, before.digest, before.node)
	}
}

// fence judges an answer's term (F). Nobody answers a call that was sent after
// a higher term had answered one; nor a read that is answered after it.
func (j *judge) fence(c call, read bool) {
	j.acks++
	for _, term := range slices.Sorted(maps.Keys(j.answered)) {
		first := j.answered[term]
		if term > c.term && (first < c.sent || read && first < c.came) {
			j.findLocked("F", "%s was answered in term %d at %v, sent at %v, but term %d had answered at %v", c.client, c.term, c.came, c.sent, term, first)
		}
	}
	if first, there := j.answered[c.term]; !there || c.came < first {
		j.answered[c.term] = c.came
	}
}

// reserved judges an acknowledged PutStart: nobody else has a right to its
// bytes (A), and no reader relies on them (L).
func (j *judge) reserved(c call, key string, id metadata.ObjectID, at ...bytes) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence(c, false)
	if known := j.objects[id]; known != nil && known.reserved != 0 {
		if known.key != key || !slices.Equal(known.put, at) {
			j.findLocked("D", "a repeated PutStart of %s got %v, want the reservation of %s at %v", key, at, known.key, known.put)
		}
		return // a repeated call
	}
	o := j.object(key, id)
	o.places = nil // what readers saw of it
	for _, b := range at {
		j.taken(c, o, b)
	}
	for _, b := range at {
		o.places = append(o.places, &place{bytes: b})
	}
	o.put, o.reserved = at, c.came
	if j.removing[key] > 0 {
		o.removeAsked = c.sent
	}
}

// taken judges bytes that an object gets.
func (j *judge) taken(c call, taker *object, at bytes) {
	for _, o := range j.inOrder {
		for _, p := range o.places {
			switch {
			case !p.overlap(at):
			case o.removeAsked == 0 && o.reserved != 0 && !p.leaves:
				j.findLocked("A", "%s (%v) got the bytes of %s (%v), which nobody removed", taker.key, taker.id, o.key, o.id)
			case c.came < p.leased:
				j.findLocked("L", "%s (%v) got bytes at %v that a reader of %s (%v) relies on until %v", taker.key, taker.id, c.came, o.key, o.id, p.leased)
			}
		}
	}
}

// object returns what is known of an object, new if nothing is.
func (j *judge) object(key string, id metadata.ObjectID) *object {
	o := j.objects[id]
	if o == nil {
		o = &object{id: id, key: key}
		j.objects[id] = o
		j.inOrder = append(j.inOrder, o)
		j.keys[key] = append(j.keys[key], o)
	}
	return o
}

// ending notes that a PutEnd is about to be sent.
func (j *judge) ending(key string, id metadata.ObjectID, now time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if o := j.object(key, id); o.endAsked == 0 {
		o.endAsked = now
	}
}

// ended judges an acknowledged PutEnd.
func (j *judge) ended(c call, key string, id metadata.ObjectID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence(c, false)
	if o := j.object(key, id); o.readable == 0 {
		o.readable = c.came
	}
}

// notEnded judges a PutEnd whose answer is that there is nothing to end: the
// reservation was acknowledged, so it must be there (D).
func (j *judge) notEnded(c call, key string, id metadata.ObjectID, why error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence(c, false)
	if o := j.object(key, id); o.reserved != 0 && o.removeAsked == 0 && c.came-o.reserved < params.DiscardTimeout {
		j.findLocked("D", "the reservation of %s (%v), acknowledged at %v, is gone: %v", key, id, o.reserved, why)
	}
}

// got judges a read that found an object.
func (j *judge) got(c call, key string, id metadata.ObjectID, at ...bytes) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence(c, true)
	o := j.object(key, id)
	switch {
	case o.key != key:
		j.findLocked("A", "%s (%v) is an object of %s", key, id, o.key)
	case o.reserved != 0 && (o.endAsked == 0 || c.came < o.endAsked):
		j.findLocked("V", "%s (%v) is readable before its put has ended", key, id)
	case o.removed != 0 && o.removed < c.sent:
		j.findLocked("X", "%s (%v), removed at %v, was read at %v", key, id, o.removed, c.came)
	}
	j.placed(c, o, at)
	if o.readable == 0 {
		o.readable = c.came
	}
	j.missed(c, key, o)
}

// notFound judges an answer that says that a key has no readable object: of a
// read, or of a removal, which may have waited for the key's last mutation.
func (j *judge) notFound(c call, key string, read bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence(c, read)
	j.missed(c, key, nil)
}

// missed judges a read that did not show objects of the key but one: they must
// be gone (D), and what is gone stays so.
func (j *judge) missed(c call, key string, shown *object) {
	for _, o := range j.keys[key] {
		if o == shown || o.readable == 0 || o.readable >= c.sent {
			continue
		}
		if o.removeAsked == 0 || o.removeAsked > c.came {
			j.findLocked("D", "%s (%v), acknowledged at %v, was not found at %v", key, o.id, o.readable, c.came)
		}
		if o.removed == 0 {
			o.removed = c.came
		}
	}
}

// removes notes that a removal of a key is about to be sent: it may hit what is
// there until it is answered. The function that it returns must be called
// then.
func (j *judge) removes(key string, now time.Duration) (answered func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, o := range j.keys[key] {
		if o.removeAsked == 0 {
			o.removeAsked = now
		}
	}
	j.removing[key]++
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.removing[key]--
	}
}

// removed judges an acknowledged removal, or an upsert: whatever the key had before is
// gone, but for the object of the upsert.
func (j *judge) removed(c call, key string, but metadata.ObjectID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence(c, false)
	for _, o := range j.keys[key] {
		known := o.reserved != 0 && o.reserved < c.sent || o.readable != 0 && o.readable < c.sent
		if o.removed == 0 && known && o.id != but {
			o.removed = c.came
		}
	}
}
