package metadata

import (
	"unsafe"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata/slab"
	"github.com/understudy-store/understudy/segment"
)

// A record is what is stored of an object: a block of the store's slab, outside of Go's
// heap, that holds no pointer. Behind it in the block stand, in this order, the request
// id and the soft pin if the object was put with them, and the key.
//
// What readers look at stands first, in 64 bytes.
type record struct {
	id       ObjectID
	live     Time // not journaled: end of the lease as granted, at least deadline
	deadline Time // journaled end of the lease; the commit of PutEnd to begin with
	size     uint64
	segment  uint32        // of the first replica, as Store.located has it
	rng      segment.Range // of the first replica
	client   uint32        // the writer, as Store.clients has it
	tenant   tenantID
	more     uint32 // index in the shard's extras, 0 for nearly all objects
	where    uint16 // the shard, and what stands behind the record; never changes
	flags    uint16
	keyBytes uint16    // length of the key, but for hasLongKey
	is       uint8     // kind and status of the first replica
	index    indexKind // that the object is in; guarded by Store.applyMu

	putStart   Time // of the reservation's commit
	prev, next link // in the index; guarded by Store.applyMu
}

const recordBytes = unsafe.Sizeof(record{})

// The bits of record.where above the shard.
const (
	shardBits  = ShardCount - 1
	hasRequest = 1 << (15 - iota)
	hasSoft
	hasLongKey // of 64 KiB
)

// A draft is an object outside of the store: before it is filed, or as it is encoded.
type draft struct {
	id       ObjectID
	key      string
	tenant   tenantID
	shard    uint16
	flags    uint16
	client   segment.ClientID
	size     uint64
	putStart Time
	deadline Time
	soft     Time // soft pin: its length until the object is readable, then its end; 0 for none
	request  uint64
	replicas []replica
	extra    *extra // nil for none
}

// HasRecordRoom reports whether there is room for the records of new keys. They may not
// use the last eighth of what records may take: that is for prepared changes, for puts
// that replace an object (see checkRoom), and for fragmentation, of which a node has the
// more the longer it runs.
func (s *Store) HasRecordRoom() bool {
	free, limit := s.slab.Room()
	return free >= limit/8
}

// checkRoom refuses a put while there is little room for records. A put that replaces an
// object frees a record before it makes one, but perhaps of another size: it may use half
// of what is kept from new keys.
func (s *Store) checkRoom(replaces bool) error {
	free, limit := s.slab.Room()
	if s.HasRecordRoom() || replaces && free >= limit/16 {
		return nil
	}
	return errs.New(errs.NoAvailableHandle, "PutStart",
		"%d of the %d bytes that this process has for objects' keys are left, which is too few; try again when objects were evicted, remove some, or use shorter keys",
		free, limit)
}

// store makes a record of a draft, none if there is no room. Needs applyMu, and the
// shard's lock.
func (s *Store) store(d *draft) object {
	where, size := d.shard, int(recordBytes)+len(d.key)
	if d.request != 0 {
		where, size = where|hasRequest, size+8
	}
	if d.soft != 0 {
		where, size = where|hasSoft, size+8
	}
	if len(d.key) > 1<<16-1 {
		where |= hasLongKey
	}
	ref := s.slab.Alloc(size)
	if ref == 0 {
		return object{}
	}
	o := object{(*record)(s.slab.At(ref)), s, ref}
	*o.record = record{
		id: d.id, live: d.deadline, deadline: d.deadline, size: d.size, client: s.clients.take(d.client), tenant: d.tenant,
		where: where, flags: d.flags, keyBytes: uint16(len(d.key)), putStart: d.putStart,
	}
	if d.request != 0 {
		*(*uint64)(unsafe.Add(unsafe.Pointer(o.record), recordBytes)) = d.request
	}
	if d.soft != 0 {
		o.setSoft(d.soft)
	}
	copy(unsafe.Slice((*byte)(o.behind()), len(d.key)), d.key)
	if d.extra != nil {
		o.more = o.home().keep(d.extra)
	}
	o.setReplicas(d.replicas)
	return o
}

// forget gives an object's record back. Needs applyMu, and the shard's lock. Nobody may
// use the object afterwards.
func (s *Store) forget(o object) {
	if o.more != 0 {
		o.home().discard(o.more)
	}
	s.located.drop(o.segment)
	s.clients.drop(o.client)
	s.slab.Free(o.ref)
}

// object returns the object of a record that is in use, none for 0.
func (s *Store) object(ref slab.Ref) object {
	if ref == 0 {
		return object{}
	}
	return object{(*record)(s.slab.At(ref)), s, ref}
}

func (o object) home() *shard { return &o.s.shards[o.shard()] }

func (o object) shard() uint16 { return o.where & shardBits }

// name returns the reference that finds the object later.
func (o object) name() Ref { return Ref{o.shard(), o.id} }

// writer returns the client that put the object.
func (o object) writer() segment.ClientID { return o.s.clients.value(o.client) }

// request returns the id of the request that put the object, 0 for none.
func (o object) request() uint64 {
	if o.where&hasRequest == 0 {
		return 0
	}
	return *(*uint64)(unsafe.Add(unsafe.Pointer(o.record), recordBytes))
}

// soft returns the soft pin: its length until the object is readable, then its end; 0
// for none.
func (o object) soft() Time {
	if o.where&hasSoft == 0 {
		return 0
	}
	return *o.softAt()
}

// setSoft changes the soft pin of an object that was put with one.
func (o object) setSoft(at Time) { *o.softAt() = at }

func (o object) softAt() *Time {
	p := unsafe.Add(unsafe.Pointer(o.record), recordBytes)
	if o.where&hasRequest != 0 {
		p = unsafe.Add(p, 8)
	}
	return (*Time)(p)
}

// behind returns where the key is.
func (o object) behind() unsafe.Pointer {
	p := unsafe.Add(unsafe.Pointer(o.record), recordBytes)
	if o.where&hasRequest != 0 {
		p = unsafe.Add(p, 8)
	}
	if o.where&hasSoft != 0 {
		p = unsafe.Add(p, 8)
	}
	return p
}

func (o object) keyLength() int {
	if o.where&hasLongKey != 0 {
		return 1 << 16
	}
	return int(o.keyBytes)
}

// extra returns what few objects have, nil for none.
func (o object) extra() *extra {
	if o.more == 0 {
		return nil
	}
	return o.home().extras[o.more]
}

// needExtra returns the object's extra, and makes one if there is none. Needs applyMu,
// and the shard's lock.
func (o object) needExtra() *extra {
	if o.more == 0 {
		o.more = o.home().keep(new(extra))
	}
	return o.extra()
}

// keep adds an extra to the shard, and returns its index. Needs applyMu, and the shard's
// lock.
func (sh *shard) keep(x *extra) uint32 {
	if n := len(sh.spareExtras); n > 0 {
		at := sh.spareExtras[n-1]
		sh.spareExtras = sh.spareExtras[:n-1]
		sh.extras[at] = x
		return at
	}
	if len(sh.extras) == 0 {
		sh.extras = make([]*extra, 1, 2) // 0 is none
	}
	sh.extras = append(sh.extras, x)
	return uint32(len(sh.extras) - 1)
}

// discard takes an extra out of the shard. Needs applyMu, and the shard's lock.
func (sh *shard) discard(at uint32) {
	sh.extras[at] = nil
	sh.spareExtras = append(sh.spareExtras, at)
	if len(sh.spareExtras) == len(sh.extras)-1 {
		sh.extras, sh.spareExtras = nil, nil
	}
}
