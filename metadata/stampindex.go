package metadata

import (
	"github.com/tidwall/btree"

	"github.com/understudy-store/understudy/metadata/slab"
)

// bucketWidth is the width of an index bucket in milliseconds. Wider buckets
// cost sorting when one is evicted in part, narrower ones cost entries.
const bucketWidth = 64

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

// A link is an object in a list, or one of its ends: then it names the bucket, with
// bucketLink.
type link uint32

const bucketLink = link(slab.MaxRef)

func (l link) ends() bool { return l&bucketLink != 0 }

// A bucket is a list of objects of one tenant that entered an index with stamps of
// the same bucketWidth milliseconds.
type bucket struct {
	number     int64
	tenant     tenantID
	owner      *stampIndex
	self       link
	head, tail link
}

func (b *bucket) before(c *bucket) bool {
	return b.number < c.number || b.number == c.number && b.tenant < c.tenant
}

// A stampIndex keeps objects roughly ordered by a stamp that never decreases:
// the journaled deadline, or the time of the reservation. A later stamp does
// not move an object; it moves when a walk comes across it in its old bucket.
// So renewing costs nothing here, and a walk costs what it finds.
//
// An object is in one index at most. Guarded by Store.applyMu.
type stampIndex struct {
	s       *Store
	kind    indexKind
	stamp   func(object) Time
	buckets *btree.BTreeG[*bucket] // of all tenants, the oldest first
	tenants []tenantBuckets        // the same, by tenantID
	count   int
}

type tenantBuckets struct {
	buckets btree.Map[int64, *bucket]
	last    *bucket // the bucket used last, most often the one needed next
}

func (s *Store) newIndex(kind indexKind, stamp func(object) Time) {
	s.indexes[kind] = stampIndex{s: s, kind: kind, stamp: stamp, buckets: btree.NewBTreeGOptions((*bucket).before, btree.Options{NoLocks: true})}
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

func bucketNumber(t Time) int64 { return int64(t) / bucketWidth }

func (x *stampIndex) insert(o object) {
	b := x.bucketOf(o)
	o.index, o.prev, o.next = x.kind, b.tail, b.self
	x.s.setNext(b.tail, link(o.ref))
	b.tail = link(o.ref)
	x.count++
}

// bucketOf returns the bucket for an object's stamp.
func (x *stampIndex) bucketOf(o object) *bucket {
	for int(o.tenant) >= len(x.tenants) {
		x.tenants = append(x.tenants, tenantBuckets{})
	}
	n, of := bucketNumber(x.stamp(o)), &x.tenants[o.tenant]
	if b := of.last; b != nil && b.number == n {
		return b
	}
	b, ok := of.buckets.Get(n)
	if !ok {
		b = &bucket{number: n, tenant: o.tenant, owner: x}
		x.s.buckets.add(b)
		of.buckets.Set(n, b)
		x.buckets.Set(b)
	}
	of.last = b
	return b
}

// setNext has what stands in front of a place in a list go on with another object.
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
	of := &b.owner.tenants[b.tenant]
	of.buckets.Delete(b.number)
	b.owner.buckets.Delete(b)
	if of.last == b {
		of.last = nil
	}
	s.buckets.remove(b)
}

// walk visits the objects whose stamp is at most until, in spans of bucketWidth
// milliseconds, oldest first; inside a span there is no order. The visitor may take
// the object it is given out of the index, and nothing else. done can end the
// walk between spans. walk returns the stamp through which it has visited
// everything: until, or the end of the last span.
func (x *stampIndex) walk(until Time, visit func(object), done func() bool) (through Time) {
	all := func(o object) bool { visit(o); return true }
	for b := x.next(&bucket{number: minBucket}); b != nil && b.number <= bucketNumber(until); {
		x.walkBucket(b, until, all)
		next := x.next(&bucket{number: b.number, tenant: b.tenant + 1})
		if (next == nil || next.number != b.number) && done() {
			return min(until, b.end())
		}
		b = next
	}
	return until
}

// walkTenant is walk for the objects of one tenant, from a time on. It ends at once when
// visit returns false: the next one from the time that this one returns begins with the
// same span. It ends between spans when it has looked at most objects or more.
func (x *stampIndex) walkTenant(id tenantID, from, until Time, most int, visit func(object) bool) (through Time, looked int) {
	if int(id) >= len(x.tenants) {
		return until, 0
	}
	for n := bucketNumber(from); looked < most; n++ {
		var b *bucket
		x.tenants[id].buckets.Ascend(n, func(_ int64, found *bucket) bool {
			b = found
			return false
		})
		if b == nil || b.number > bucketNumber(until) {
			return until, looked
		}
		n = b.number
		more, on := x.walkBucket(b, until, visit)
		if looked += more; !on {
			return Time(n)*bucketWidth - 1, looked
		}
		through = min(until, b.end())
	}
	return through, looked
}

// walkBucket visits the objects of a bucket until visit returns false, and moves those
// with a later stamp into the buckets of that, ahead of the walk.
func (x *stampIndex) walkBucket(b *bucket, until Time, visit func(object) bool) (looked int, on bool) {
	for at := b.head; !at.ends(); looked++ {
		o := x.s.object(slab.Ref(at))
		at = o.next
		switch stamp := x.stamp(o); {
		case bucketNumber(stamp) != b.number:
			x.s.unlink(o)
			x.insert(o)
		case stamp <= until && !visit(o):
			return looked + 1, false
		}
	}
	return looked, true
}

// each visits all objects.
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

const minBucket = -1 << 62

// end returns the last time that belongs to the bucket's span.
func (b *bucket) end() Time { return Time(b.number+1)*bucketWidth - 1 }

func (x *stampIndex) next(from *bucket) (found *bucket) {
	x.buckets.Ascend(from, func(b *bucket) bool {
		found = b
		return false
	})
	return found
}
