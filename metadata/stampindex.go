package metadata

import (
	"cmp"
	"math"

	"github.com/understudy-store/understudy/internal/ordered"
	"github.com/understudy-store/understudy/metadata/slab"
)

// bucketWidth is the widest span of an index bucket, in milliseconds. Wider buckets
// cost sorting when one is evicted in part, narrower ones cost entries.
const bucketWidth = 64

// maxBucket is how many objects a bucket gets before its span is divided, so that no walk
// visits many more at once than an eviction takes: by time, and within a millisecond by
// id. One call can grant leases on 131,072 objects that all end at one time.
const maxBucket = 512

// A Rank is an object's place in an index: its stamp, and among those of one time its id.
type Rank struct {
	At Time
	ID ObjectID
}

// Through is the last rank of a time.
func Through(at Time) Rank { return Rank{at, math.MaxUint64} }

// Compare returns -1, 0 or 1 if r is before o, the same, or behind it.
func (r Rank) Compare(o Rank) int {
	if r.At != o.At {
		return cmp.Compare(r.At, o.At)
	}
	return cmp.Compare(r.ID, o.ID)
}

// WholeMilli reports whether no rank of the same time is behind it.
func (r Rank) WholeMilli() bool { return r.ID == math.MaxUint64 }

func (r Rank) before(o Rank) bool { return r.At < o.At || r.At == o.At && r.ID < o.ID }

func (r Rank) next() Rank {
	if r.WholeMilli() {
		return Rank{At: r.At + 1}
	}
	return Rank{r.At, r.ID + 1}
}

func (r Rank) previous() Rank {
	if r.ID == 0 {
		return Through(r.At - 1)
	}
	return Rank{r.At, r.ID - 1}
}

func earliest(r, o Rank) Rank {
	if o.before(r) {
		return o
	}
	return r
}

// An indexKind tells the indexes of a store apart.
type indexKind uint8

// The indexes that an object may be in.
const (
	inNone indexKind = iota
	inUnpinned
	inPinned
	inReservations
	inTransfers
	indexKinds
)

// A link names a neighbour in a list: an object, or with bucketLink the bucket, which
// stands at both ends.
type link uint32

const bucketLink = link(slab.MaxRef)

func (l link) ends() bool { return l&bucketLink != 0 }

// A bucket is a list of objects of one tenant that entered an index with ranks of
// its span. Spans of a tenant do not overlap.
type bucket struct {
	from, to   Rank // the span, without its end
	tenant     tenantID
	count      int // objects with ranks of the span at its last division, and those that came since
	owner      *stampIndex
	self       link
	head, tail link
}

func (b *bucket) before(c *bucket) bool {
	return b.from.before(c.from) || b.from == c.from && b.tenant < c.tenant
}

func (b *bucket) holds(r Rank) bool { return !r.before(b.from) && r.before(b.to) }

// A stampIndex keeps objects roughly ordered by a stamp that never decreases:
// the journaled deadline, or the time of the reservation. A later stamp does
// not move an object; it moves when a walk comes across it in its old bucket.
// So renewing costs nothing here, and a walk costs what it finds. Store.Tidy walks
// ahead, so that a walk does not find all that was renewed in a quiet hour.
//
// An object is in one index at most. Guarded by Store.applyMu.
type stampIndex struct {
	s       *Store
	kind    indexKind
	stamp   func(object) Time
	buckets ordered.Set[*bucket] // of all tenants, the oldest first
	tenants []tenantBuckets      // the same, by tenantID
	count   int
	sought  bucket // what a search compares with; here, as searches are too many to allocate one each

	sink uint64 // keeps the compiler from dropping the reads of readAhead

	tidied     bucket // Store.Tidy goes on with the first bucket behind it
	tidyingFor int64  // Store.renewals when Tidy last began with the oldest bucket
}

type tenantBuckets struct {
	buckets ordered.Set[*bucket]
	unfiled []unfiled // while a snapshot is loaded
	last    *bucket   // the bucket used last, most often the one needed next
}

func newBuckets() ordered.Set[*bucket] { return ordered.NewSet((*bucket).before) }

func (s *Store) newIndex(kind indexKind, stamp func(object) Time) {
	s.indexes[kind] = stampIndex{s: s, kind: kind, stamp: stamp, buckets: newBuckets()}
}

// buckets finds the buckets of all indexes by their links. Guarded by Store.applyMu.
type buckets struct {
	list  []*bucket
	spare []link
}

func (x *buckets) at(l link) *bucket { return x.list[l&^bucketLink] }

// add links a bucket, which is empty.
func (x *buckets) add(b *bucket) {
	if n := len(x.spare); n > 0 {
		b.self, x.spare = x.spare[n-1], x.spare[:n-1]
		x.list[b.self&^bucketLink] = b
	} else {
		b.self = bucketLink | link(len(x.list))
		x.list = append(x.list, b)
	}
	b.head, b.tail = b.self, b.self
}

func (x *buckets) remove(b *bucket) {
	x.list[b.self&^bucketLink] = nil
	x.spare = append(x.spare, b.self)
}

func (x *stampIndex) rank(o object) Rank { return Rank{x.stamp(o), o.id} }

func (x *stampIndex) insert(o object) {
	if x.s.shardsLoaded > 0 && x.postpone(o) {
		return
	}
	b := x.bucketOf(o.tenant, x.rank(o))
	if b.count >= maxBucket {
		x.divide(b)
		b = x.bucketOf(o.tenant, x.rank(o))
	}
	b.append(o, x.kind)
	x.count++
}

func (b *bucket) append(o object, kind indexKind) {
	o.index, o.prev, o.next = kind, b.tail, b.self
	o.s.setNext(b.tail, link(o.ref))
	b.tail = link(o.ref)
	b.count++
}

// of returns the buckets of a tenant.
func (x *stampIndex) of(tenant tenantID) *tenantBuckets {
	for int(tenant) >= len(x.tenants) {
		x.tenants = append(x.tenants, tenantBuckets{buckets: newBuckets()})
	}
	return &x.tenants[tenant]
}

func (x *stampIndex) bucketOf(tenant tenantID, r Rank) *bucket {
	of := x.of(tenant)
	if b := of.last; b != nil && b.holds(r) {
		return b
	}
	before := x.before(of, r)
	if before == nil || !r.before(before.to) {
		begin := r.At - r.At%bucketWidth
		span := bucket{from: Rank{At: begin}, to: Rank{At: begin + bucketWidth}, tenant: tenant}
		if before != nil && span.from.before(before.to) {
			span.from = before.to
		}
		if next := x.from(of, r); next != nil {
			span.to = earliest(span.to, next.from)
		}
		before = x.add(span)
	}
	of.last = before
	return before
}

// before returns a tenant's last bucket that begins at or before a rank, nil for none.
func (x *stampIndex) before(of *tenantBuckets, r Rank) *bucket {
	x.sought = bucket{from: r, tenant: math.MaxUint32}
	found, _ := of.buckets.Until(&x.sought)
	return found
}

// from returns a tenant's first bucket that begins at or after a rank, nil for none.
func (x *stampIndex) from(of *tenantBuckets, r Rank) *bucket {
	x.sought = bucket{from: r}
	found, _ := of.buckets.From(&x.sought)
	return found
}

func (x *stampIndex) add(span bucket) *bucket {
	b, of := &span, &x.tenants[span.tenant]
	b.owner = x
	x.s.buckets.add(b)
	of.buckets.Set(b)
	x.buckets.Set(b)
	return b
}

// middle returns where the second half of a bucket's span begins: in the middle of its
// time, or of the ids that there are in one millisecond. It fails if fewer than two objects
// have ranks of the span.
func (x *stampIndex) middle(b *bucket) (at Rank, ok bool) {
	first, last := b.to, b.from
	for at := b.head; !at.ends(); {
		o := x.s.object(slab.Ref(at))
		at = o.next
		if r := x.rank(o); b.holds(r) {
			if first = earliest(first, r); last.before(r) {
				last = r
			}
		}
	}
	switch at = (Rank{At: b.from.At + (b.to.At-b.from.At+1)/2}); {
	case !first.before(last):
		return at, false
	case b.from.before(at) && at.before(b.to):
		return at, true
	default: // all are of one time
		return Rank{first.At, last.ID - (last.ID-first.ID)/2}, true
	}
}

// divide moves the objects with ranks of the second half of a bucket's span into a
// bucket of their own. Those whose rank is in neither half stay, and count no more.
func (x *stampIndex) divide(b *bucket) {
	middle, ok := x.middle(b)
	if !ok {
		b.count = 0
		return
	}
	half := x.add(bucket{from: middle, to: b.to, tenant: b.tenant})
	b.to, b.count = middle, 0
	for at := b.head; !at.ends(); {
		o := x.s.object(slab.Ref(at))
		at = o.next
		switch r := x.rank(o); {
		case half.holds(r):
			x.s.setNext(o.prev, o.next)
			x.s.setPrev(o.next, o.prev)
			half.append(o, x.kind)
		case b.holds(r):
			b.count++
		}
	}
	for _, part := range []*bucket{b, half} {
		if part.head.ends() {
			x.remove(part)
		}
	}
}

// remove takes an empty bucket away.
func (x *stampIndex) remove(b *bucket) {
	of := &x.tenants[b.tenant]
	of.buckets.Delete(b)
	x.buckets.Delete(b)
	if of.last == b {
		of.last = nil
	}
	x.s.buckets.remove(b)
}

// setNext sets the successor of a place in a list: of an object, or of the bucket at its
// head.
func (s *Store) setNext(at, next link) {
	if at.ends() {
		s.buckets.at(at).head = next
		return
	}
	s.object(slab.Ref(at)).next = next
}

func (s *Store) setPrev(at, prev link) {
	if at.ends() {
		s.buckets.at(at).tail = prev
		return
	}
	s.object(slab.Ref(at)).prev = prev
}

// unlink takes an object out of whatever index it is in.
func (s *Store) unlink(o object) {
	if o.index == inNone {
		return
	}
	prev, next := o.prev, o.next
	s.setNext(prev, next)
	s.setPrev(next, prev)
	s.indexes[o.index].count--
	o.index, o.prev, o.next = inNone, 0, 0
	if !prev.ends() || !next.ends() {
		return
	}
	b := s.buckets.at(prev) // which is empty now
	b.owner.remove(b)
}

// walk visits the objects up to a rank, in spans of bucketWidth milliseconds or less, the
// first ones first; inside a span there is no order. The visitor may take the object it is
// given out of the index, and nothing else. done can end the walk between spans: it learns
// through which rank everything was visited. Objects found in the bucket of an older stamp
// are moved. When it would move more than most of them, walk returns with cut set, and the
// next walk finds fewer. It returns the rank through which it has visited everything.
func (x *stampIndex) walk(until Rank, most int, visit func(object), done func(through Rank) bool) (through Rank, cut bool) {
	return x.walkBuckets(&bucketWalk{until: until, most: most, visit: func(o object) bool { visit(o); return true }}, done)
}

// walkBuckets is walk for a walk that visits all it comes across.
func (x *stampIndex) walkBuckets(w *bucketWalk, done func(through Rank) bool) (through Rank, cut bool) {
	for b := x.next(&bucket{}); b != nil && !w.until.before(b.from); {
		from, tenant := b.from, b.tenant
		x.readList(b)
		if !x.walkBucket(b, w) {
			return from.previous(), true
		}
		if b = x.next(&bucket{from: from, tenant: tenant + 1}); b != nil && from.before(b.from) {
			if through = earliest(w.until, b.from.previous()); done(through) {
				return through, false
			}
		}
	}
	return w.until, false
}

// walkTenant is walk for the objects of one tenant behind a rank. It ends at once when
// visit returns false: a walk behind the rank that it returns begins with the same span. It
// ends between spans when it has looked at most objects or more.
func (x *stampIndex) walkTenant(id tenantID, behind, until Rank, most int, visit func(object) bool) (through Rank, looked int) {
	if int(id) >= len(x.tenants) {
		return until, 0
	}
	w := bucketWalk{until: until, most: math.MaxInt, visit: visit}
	for at := behind.next(); w.looked < most; {
		b := x.before(&x.tenants[id], at)
		if b == nil || !at.before(b.to) {
			b = x.from(&x.tenants[id], at)
		}
		if b == nil || until.before(b.from) {
			return until, w.looked
		}
		at = b.to
		if from := b.from; !x.walkBucket(b, &w) {
			return from.previous(), w.looked
		}
		through = earliest(until, at.previous())
	}
	return through, w.looked
}

// A bucketWalk visits objects up to a rank, bucket by bucket, while visit returns true and
// no more than most others had to be moved.
type bucketWalk struct {
	until  Rank
	most   int
	visit  func(object) bool
	ahead  bool // read ahead what striking the objects reads
	looked int
	moved  int
}

// walkBucket visits the objects of a bucket. Those whose rank has left its span it moves
// to the bucket of their rank, ahead of the walk. It reports whether it came to the end.
func (x *stampIndex) walkBucket(b *bucket, w *bucketWalk) bool {
	for at, ahead := b.head, 0; !at.ends(); ahead-- {
		if w.ahead && ahead == 0 {
			x.readAhead(at)
			ahead = readAhead
		}
		o := x.s.object(slab.Ref(at))
		at = o.next
		w.looked++
		switch r := x.rank(o); {
		case !b.holds(r):
			if w.moved++; w.moved > w.most {
				return false
			}
			x.s.unlink(o)
			x.insert(o)
		case !w.until.before(r) && !w.visit(o):
			return false
		}
	}
	return true
}

// readList reads the records of a bucket ahead, from both ends of its list at once. Each
// names the next one, so that the processor waits for two of them at once, and not for more.
func (x *stampIndex) readList(b *bucket) {
	head, tail := b.head, b.tail
	for n := 0; n < min(b.count, maxBucket)/2 && !head.ends() && !tail.ends(); n++ {
		first, last := x.s.object(slab.Ref(head)), x.s.object(slab.Ref(tail))
		x.sink += uint64(first.id) + uint64(last.id)
		head, tail = first.next, last.prev
	}
}

// readAhead reads, for the next readAhead objects of a list, the places in their shards'
// tables, so that the processor waits for many of them at once.
func (x *stampIndex) readAhead(at link) {
	for n := 0; n < readAhead && !at.ends(); n++ {
		o := x.s.object(slab.Ref(at))
		sh := o.home()
		x.sink += uint64(sh.byKey.Touch(o.hash())) + uint64(sh.byID.Touch(hashOfID(o.id)))
		at = o.next
	}
}

// tidy moves the objects that a walk to until would find in the bucket of an older stamp.
// A call looks at most objects or somewhat more. After the last bucket tidy begins with
// the oldest one again, if leases were renewed meanwhile.
func (x *stampIndex) tidy(until Time, most int) {
	if x.tidied.from == (Rank{}) {
		if x.tidyingFor == x.s.renewals {
			return
		}
		x.tidyingFor = x.s.renewals
	}
	w := bucketWalk{until: Rank{At: -1}, most: math.MaxInt}
	for w.looked < most {
		b := x.next(&x.tidied)
		if b == nil || b.from.At > until {
			x.tidied = bucket{}
			return
		}
		x.tidied = bucket{from: b.from, tenant: b.tenant + 1}
		x.walkBucket(b, &w)
	}
}

func (x *stampIndex) each(visit func(object)) {
	x.buckets.Scan(func(b *bucket) bool {
		for at := b.head; !at.ends(); {
			o := x.s.object(slab.Ref(at))
			at = o.next
			visit(o)
		}
		return true
	})
}

func (x *stampIndex) next(from *bucket) (found *bucket) {
	found, _ = x.buckets.From(from)
	return found
}
