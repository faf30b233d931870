package metadata

import (
	"math"

	"github.com/understudy-store/understudy/internal/ordered"
	"github.com/understudy-store/understudy/metadata/slab"
)

// bucketWidth is the widest span of an index bucket, in milliseconds. Wider buckets
// cost sorting when one is evicted in part, narrower ones cost entries.
const bucketWidth = 64

// maxBucket is how many objects a bucket gets before its span is divided, so that no walk
// has to visit very many at once. A span of one millisecond is never divided.
const maxBucket = 2048

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

// A bucket is a list of objects of one tenant that entered an index with stamps of
// its span. Spans of a tenant do not overlap.
type bucket struct {
	from, to   Time // the span, without its end
	tenant     tenantID
	count      int // objects at the last division of the span, and those that came since
	owner      *stampIndex
	self       link
	head, tail link
}

func (b *bucket) before(c *bucket) bool {
	return b.from < c.from || b.from == c.from && b.tenant < c.tenant
}

func (b *bucket) holds(t Time) bool { return b.from <= t && t < b.to }

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

	tidied     bucket // Store.Tidy goes on with the first bucket behind it
	tidyingFor int64  // Store.renewals when Tidy last began with the oldest bucket
}

type tenantBuckets struct {
	buckets ordered.Map[Time, *bucket] // by the begin of the span
	last    *bucket                    // the bucket used last, most often the one needed next
}

func (s *Store) newIndex(kind indexKind, stamp func(object) Time) {
	s.indexes[kind] = stampIndex{s: s, kind: kind, stamp: stamp, buckets: ordered.NewSet((*bucket).before)}
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

func (x *stampIndex) insert(o object) {
	b := x.bucketOf(o.tenant, x.stamp(o))
	if b.count >= maxBucket && b.to-b.from > 1 {
		x.divide(b)
		b = x.bucketOf(o.tenant, x.stamp(o))
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

func (x *stampIndex) bucketOf(tenant tenantID, stamp Time) *bucket {
	for int(tenant) >= len(x.tenants) {
		x.tenants = append(x.tenants, tenantBuckets{buckets: ordered.NewMap[Time, *bucket]()})
	}
	of := &x.tenants[tenant]
	if b := of.last; b != nil && b.holds(stamp) {
		return b
	}
	before := of.before(stamp)
	if before == nil || stamp >= before.to {
		span := bucket{from: stamp - stamp%bucketWidth, tenant: tenant}
		if span.to = span.from + bucketWidth; before != nil {
			span.from = max(span.from, before.to)
		}
		if next := of.from(stamp); next != nil {
			span.to = min(span.to, next.from)
		}
		before = x.add(span)
	}
	of.last = before
	return before
}

// before returns the last bucket that begins at or before a time, nil for none.
func (t *tenantBuckets) before(at Time) (found *bucket) {
	_, found, _ = t.buckets.Until(at)
	return found
}

// from returns the first bucket that begins at or after a time, nil for none.
func (t *tenantBuckets) from(at Time) (found *bucket) {
	_, found, _ = t.buckets.From(at)
	return found
}

func (x *stampIndex) add(span bucket) *bucket {
	b := &span
	b.owner = x
	x.s.buckets.add(b)
	x.tenants[b.tenant].buckets.Set(b.from, b)
	x.buckets.Set(b)
	return b
}

// divide moves the objects with stamps of the second half of a bucket's span into a
// bucket of their own. Those whose stamp is in neither half stay.
func (x *stampIndex) divide(b *bucket) {
	middle := b.from + (b.to-b.from)/2
	half := x.add(bucket{from: middle, to: b.to, tenant: b.tenant})
	b.to, b.count = middle, 0
	for at := b.head; !at.ends(); {
		o := x.s.object(slab.Ref(at))
		at = o.next
		if b.count++; half.holds(x.stamp(o)) {
			b.count--
			x.s.setNext(o.prev, o.next)
			x.s.setPrev(o.next, o.prev)
			half.append(o, x.kind)
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
	of.buckets.Delete(b.from)
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

// walk visits the objects whose stamp is at most until, in spans of bucketWidth
// milliseconds or less, oldest first; inside a span there is no order. The visitor may
// take the object it is given out of the index, and nothing else. done can end the walk
// between spans. Objects found in the bucket of an older stamp are moved. When it would
// move more than most of them, walk returns with cut set, and the next walk finds fewer.
// It returns the stamp through which it has visited everything.
func (x *stampIndex) walk(until Time, most int, visit func(object), done func() bool) (through Time, cut bool) {
	w := bucketWalk{until: until, most: most, visit: func(o object) bool { visit(o); return true }}
	for b := x.next(&bucket{}); b != nil && b.from <= until; {
		from, tenant := b.from, b.tenant
		if !x.walkBucket(b, &w) {
			return from - 1, true
		}
		if b = x.next(&bucket{from: from, tenant: tenant + 1}); b != nil && b.from > from && done() {
			return min(until, b.from-1), false
		}
	}
	return until, false
}

// walkTenant is walk for the objects of one tenant, from a time on. It ends at once when
// visit returns false: a walk from the time behind the one that it returns begins with
// the same span. It ends between spans when it has looked at most objects or more.
func (x *stampIndex) walkTenant(id tenantID, from, until Time, most int, visit func(object) bool) (through Time, looked int) {
	if int(id) >= len(x.tenants) {
		return until, 0
	}
	w := bucketWalk{until: until, most: math.MaxInt, visit: visit}
	for at := from; w.looked < most; {
		b := x.tenants[id].before(at)
		if b == nil || b.to <= at {
			b = x.tenants[id].from(at)
		}
		if b == nil || b.from > until {
			return until, w.looked
		}
		if !x.walkBucket(b, &w) {
			return b.from - 1, w.looked
		}
		at = b.to
		through = min(until, at-1)
	}
	return through, w.looked
}

// A bucketWalk visits objects with a stamp of at most until, bucket by bucket, while
// visit returns true and no more than most others had to be moved.
type bucketWalk struct {
	until  Time
	most   int
	visit  func(object) bool
	looked int
	moved  int
}

// walkBucket visits the objects of a bucket. Those whose stamp has left its span it moves
// to the bucket of their stamp, ahead of the walk. It reports whether it came to the end.
func (x *stampIndex) walkBucket(b *bucket, w *bucketWalk) bool {
	for at := b.head; !at.ends(); {
		o := x.s.object(slab.Ref(at))
		at = o.next
		w.looked++
		switch stamp := x.stamp(o); {
		case !b.holds(stamp):
			if w.moved++; w.moved > w.most {
				return false
			}
			x.s.unlink(o)
			x.insert(o)
		case stamp <= w.until && !w.visit(o):
			return false
		}
	}
	return true
}

// tidy moves the objects that a walk to until would find in the bucket of an older stamp.
// A call looks at most objects or somewhat more. After the last bucket tidy begins with
// the oldest one again, if leases were renewed meanwhile.
func (x *stampIndex) tidy(until Time, most int) {
	if x.tidied.from == 0 {
		if x.tidyingFor == x.s.renewals {
			return
		}
		x.tidyingFor = x.s.renewals
	}
	w := bucketWalk{until: -1, most: math.MaxInt}
	for w.looked < most {
		b := x.next(&x.tidied)
		if b == nil || b.from > until {
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
