package metadata

import (
	"time"
	"unique"

	"github.com/tidwall/btree"

	"github.com/understudy-store/understudy/segment"
)

// A replica is where one copy of an object's bytes is.
type replica struct {
	segment  *segmentState         // for Memory; the SSD, for LocalDisk; else nil
	rng      segment.Range         // for Memory
	endpoint unique.Handle[string] // for LocalDisk: where its client is reached
	kind     ReplicaKind
	status   ReplicaStatus
}

// exists reports whether the replica is part of the state: an unmounted segment
// or SSD takes its replicas along at once, wherever they are still linked.
func (r *replica) exists() bool {
	return r.segment == nil || !r.segment.Gone()
}

func (r *replica) readable() bool { return r.status == Complete && r.exists() }

// Flags of an object.
const (
	flagHardPin   = 1 << iota // journaled: never evicted
	flagMarked                // on its shard's list of renewed objects
	flagPending               // a prepared mutation waits for its commit
	flagVictim                // marked by the eviction pass that waits for its commit
	flagGone                  // removed from the maps
	flagLeased                // a reader got a lease from this node; for LeaseCounts
	flagAbandoned             // a reservation whose PutStart nobody was there to answer; primary only
)

// An object is one put of one key, from its reservation to its removal.
//
// Guarded by its shard's lock; journaled fields change only while a commit is
// applied (Store.applyMu), so code that holds applyMu may read them without
// the shard's lock.
type object struct {
	// What readers look at stands first, within two cache lines.
	id       ObjectID
	key      string
	tenant   tenantID
	shard    uint16
	flags    uint16
	first    replica
	extra    *extra // nil for nearly all objects
	live     Time   // not journaled: end of the lease as granted, at least deadline
	deadline Time   // journaled end of the lease; the commit of PutEnd to begin with
	size     uint64

	client   segment.ClientID
	putStart Time // of the reservation's commit
	soft     Time // soft pin: its length until the object is readable, then its end; 0 for none
	request  uint64

	// Links of the index list that the object is in; guarded by Store.applyMu.
	prev, next *object
	bucket     *bucket
}

// extra holds what few objects have.
type extra struct {
	replicas    []replica // the second and further ones
	same        *object   // the next object in the chain of a keyMap
	diskPath    string
	group       string
	memberOf    *group // the group of that name, while the object is in the maps
	at          int    // in the group's members
	dataType    uint8
	checksum    uint64
	hasChecksum bool
	transfer    *transfer // a copy or a move that is under way, nil for none
}

// describes reports whether there is more in it than replicas.
func (x *extra) describes() bool {
	return x.diskPath != "" || x.group != "" || x.dataType != 0 || x.hasChecksum
}

// stamp moves the journaled end of the lease to a time, unless it is later already.
// It is also the object's age for eviction.
func (o *object) stamp(at Time) {
	o.deadline = max(o.deadline, at)
	o.setLive(max(o.live, o.deadline))
}

func (o *object) has(flag uint16) bool { return o.flags&flag != 0 }

// replicaCount returns how many entries replicaAt has, existing or not.
func (o *object) replicaCount() int {
	if o.extra == nil {
		return 1
	}
	return 1 + len(o.extra.replicas)
}

func (o *object) replicaAt(i int) *replica {
	if i == 0 {
		return &o.first
	}
	return &o.extra.replicas[i-1]
}

// survey counts the object's existing replicas.
type survey struct {
	existing, processing, completeMemory, complete int
}

func (o *object) survey() survey {
	var v survey
	for i := range o.replicaCount() {
		r := o.replicaAt(i)
		if !r.exists() {
			continue
		}
		v.existing++
		switch {
		case r.status == Processing, r.status == arriving:
			v.processing++
		case r.kind == Memory:
			v.completeMemory++
			v.complete++
		default:
			v.complete++
		}
	}
	return v
}

// exists reports whether the object is part of the state.
func (o *object) exists() bool {
	for i := range o.replicaCount() {
		if o.replicaAt(i).exists() {
			return true
		}
	}
	return false
}

func (o *object) readable() bool {
	for i := range o.replicaCount() {
		if o.replicaAt(i).readable() {
			return true
		}
	}
	return false
}

// setReplicas replaces the replicas; there must be at least one.
func (o *object) setReplicas(replicas []replica) {
	o.first = replicas[0]
	switch {
	case len(replicas) > 1:
		if o.extra == nil {
			o.extra = new(extra)
		}
		o.extra.replicas = replicas[1:]
	case o.extra != nil:
		o.extra.replicas = nil
	}
}

// softPinned reports whether the pin holds at a time; only readable objects
// have one.
func (o *object) softPinned(at Time) bool { return o.soft > at }

// softPinLeft returns for how long the pin holds from a time on, or its length while
// it has not begun.
func (o *object) softPinLeft(at Time) time.Duration {
	if o.deadline == 0 {
		return o.soft.Sub(0)
	}
	return max(0, o.soft.Sub(at))
}

// group returns the name of the object's group, empty for none.
func (o *object) group() string {
	if o.extra == nil {
		return ""
	}
	return o.extra.group
}

// bucketWidth is the width of an index bucket in milliseconds. Wider buckets
// cost sorting when one is evicted in part, narrower ones cost entries.
const bucketWidth = 64

// A bucket is a list of objects of one tenant that entered an index with stamps of
// the same bucketWidth milliseconds.
type bucket struct {
	number     int64
	tenant     tenantID
	owner      *stampIndex
	head, tail *object
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
	stamp   func(*object) Time
	buckets *btree.BTreeG[*bucket] // of all tenants, the oldest first
	tenants []tenantBuckets        // the same, by tenantID
	count   int
}

type tenantBuckets struct {
	buckets btree.Map[int64, *bucket]
	last    *bucket // the bucket used last, most often the one needed next
}

func newStampIndex(stamp func(*object) Time) stampIndex {
	return stampIndex{stamp: stamp, buckets: btree.NewBTreeGOptions((*bucket).before, btree.Options{NoLocks: true})}
}

func bucketNumber(t Time) int64 { return int64(t) / bucketWidth }

func (x *stampIndex) insert(o *object) {
	for int(o.tenant) >= len(x.tenants) {
		x.tenants = append(x.tenants, tenantBuckets{})
	}
	n, of := bucketNumber(x.stamp(o)), &x.tenants[o.tenant]
	b := of.last
	if b == nil || b.number != n {
		var ok bool
		if b, ok = of.buckets.Get(n); !ok {
			b = &bucket{number: n, tenant: o.tenant, owner: x}
			of.buckets.Set(n, b)
			x.buckets.Set(b)
		}
		of.last = b
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
		of := &b.owner.tenants[b.tenant]
		of.buckets.Delete(b.number)
		b.owner.buckets.Delete(b)
		if of.last == b {
			of.last = nil
		}
	}
}

// walk visits the objects whose stamp is at most until, in spans of bucketWidth
// milliseconds, oldest first; inside a span there is no order. The visitor may take
// the object it is given out of the index, and nothing else. done can end the
// walk between spans. walk returns the stamp through which it has visited
// everything: until, or the end of the last span.
func (x *stampIndex) walk(until Time, visit func(*object), done func() bool) (through Time) {
	all := func(o *object) bool { visit(o); return true }
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
func (x *stampIndex) walkTenant(id tenantID, from, until Time, most int, visit func(*object) bool) (through Time, looked int) {
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
func (x *stampIndex) walkBucket(b *bucket, until Time, visit func(*object) bool) (looked int, on bool) {
	for o := b.head; o != nil; looked++ {
		next := o.next
		switch stamp := x.stamp(o); {
		case bucketNumber(stamp) != b.number:
			unlink(o)
			x.insert(o)
		case stamp <= until && !visit(o):
			return looked + 1, false
		}
		o = next
	}
	return looked, true
}

// each visits all objects.
func (x *stampIndex) each(visit func(*object)) {
	x.buckets.Scan(func(b *bucket) bool {
		for o := b.head; o != nil; o = o.next {
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
