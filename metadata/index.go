package metadata

import "github.com/tidwall/btree"

// bucketWidth is the width of an index bucket in milliseconds. Wider buckets
// cost sorting when one is evicted in part, narrower ones cost entries.
const bucketWidth = 64

// A bucket is a list of objects that entered an index with stamps of the same
// bucketWidth milliseconds.
type bucket struct {
	number     int64
	owner      *stampIndex
	head, tail *object
}

// A stampIndex keeps objects roughly ordered by a stamp that never decreases:
// the journaled deadline, or the time of the reservation. A later stamp does
// not move an object; it moves when a walk comes across it in its old bucket.
// So renewing costs nothing here, and a walk costs what it finds.
//
// An object is in one index at most. Guarded by Store.applyMu.
type stampIndex struct {
	stamp   func(*object) Time
	buckets btree.Map[int64, *bucket]
	last    *bucket // the bucket used last, most often the one needed next
	count   int
}

func bucketNumber(t Time) int64 { return int64(t) / bucketWidth }

func (x *stampIndex) insert(o *object) {
	n := bucketNumber(x.stamp(o))
	b := x.last
	if b == nil || b.number != n {
		var ok bool
		if b, ok = x.buckets.Get(n); !ok {
			b = &bucket{number: n, owner: x}
			x.buckets.Set(n, b)
		}
		x.last = b
	}
	o.bucket, o.prev, o.next = b, b.tail, nil
	if b.tail != nil {
		b.tail.next = o
	} else {
		b.head = o
	}
	b.tail = o
	x.count++
}

// unlink takes an object out of whatever index it is in.
func unlink(o *object) {
	b := o.bucket
	if b == nil {
		return
	}
	if o.prev != nil {
		o.prev.next = o.next
	} else {
		b.head = o.next
	}
	if o.next != nil {
		o.next.prev = o.prev
	} else {
		b.tail = o.prev
	}
	o.bucket, o.prev, o.next = nil, nil, nil
	b.owner.count--
	if b.head == nil {
		b.owner.buckets.Delete(b.number)
		if b.owner.last == b {
			b.owner.last = nil
		}
	}
}

// walk visits the objects whose stamp is at most until, bucket by bucket, the
// oldest bucket first; inside a bucket there is no order. The visitor may take
// the object it is given out of the index, and nothing else. done can end the
// walk between buckets. walk returns the stamp through which it has visited
// everything: until, or the end of the last bucket.
func (x *stampIndex) walk(until Time, visit func(*object), done func() bool) (through Time) {
	last := bucketNumber(until)
	for b := x.nextBucket(minBucket); b != nil && b.number <= last; b = x.nextBucket(b.number + 1) {
		for o := b.head; o != nil; {
			next := o.next
			switch stamp := x.stamp(o); {
			case bucketNumber(stamp) != b.number:
				unlink(o)
				x.insert(o) // into the bucket of its stamp, ahead of this walk
			case stamp <= until:
				visit(o)
			}
			o = next
		}
		if done() {
			return min(until, Time(b.number+1)*bucketWidth-1)
		}
	}
	return until
}

const minBucket = -1 << 62

func (x *stampIndex) nextBucket(from int64) *bucket {
	var found *bucket
	x.buckets.Ascend(from, func(_ int64, b *bucket) bool {
		found = b
		return false
	})
	return found
}
