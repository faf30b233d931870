package metadata

import (
	"hash/maphash"
	"strings"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/understudy-store/understudy/metadata/reftable"
	"github.com/understudy-store/understudy/metadata/slab"
)

// A key is stored behind its object's record, in memory that may belong to another object
// once this one is gone. Only this file reads keys in place. All others get copies.

// view returns the key in place. Neither it nor a part of it may be kept.
func (o object) view() string {
	return unsafe.String((*byte)(o.behind()), o.keyLength())
}

// key returns a copy of the key.
func (o object) key() string { return strings.Clone(o.view()) }

func (o object) isUnder(tenant tenantID, key string) bool {
	return o.tenant == tenant && o.view() == key
}

// hashOfKey returns the key's part of the digest.
func (o object) hashOfKey() uint64 { return xxh3.HashString(o.view()) }

// hash returns the hash under which byKey holds the object.
func (o object) hash() uint64 { return o.s.hash.of(o.tenant, o.view()) }

// change returns the mutation of the object's key that waits for its commit, nil for
// none. Needs the shard's lock.
func (sh *shard) change(o object) *Pending {
	if sh.pending.count == 0 {
		return nil
	}
	return sh.pending.find(o.hash())
}

// borrowed returns the object as a draft whose key is the one in place. It is for
// encoding, and must not be used after the lock is given back.
func (o object) borrowed() draft {
	return draft{
		id: o.id, key: o.view(), tenant: o.tenant, flags: o.flags, client: o.writer(), size: o.size,
		putStart: o.putStart, deadline: o.deadline, soft: o.soft(), request: o.request(), extra: o.extra(),
	}
}

// keyHash is this process's own; it is seeded, so that nobody can make keys
// that collide.
type keyHash struct{ seed maphash.Seed }

func (h keyHash) of(tenant tenantID, key string) uint64 {
	return maphash.String(h.seed, key) ^ uint64(tenant)*mixFactor
}

// hashOfID spreads an id over all bits.
func hashOfID(id ObjectID) uint64 { return uint64(finish(uint64(id))) }

func (s *Store) hashOfKeyAt(ref uint32) uint64 { return s.object(slab.Ref(ref)).hash() }

func (s *Store) hashOfIDAt(ref uint32) uint64 { return hashOfID(s.object(slab.Ref(ref)).id) }

// withKey returns the object of a key, none if there is none. hash is that of the key.
// Needs the shard's lock.
func (sh *shard) withKey(hash uint64, tenant tenantID, key string) object {
	s := sh.store
	return s.object(slab.Ref(sh.byKey.Find(hash, func(ref uint32) bool { return s.object(slab.Ref(ref)).isUnder(tenant, key) })))
}

// withID returns the object with an id, none if there is none. Needs the shard's lock.
func (sh *shard) withID(id ObjectID) object {
	if id == 0 {
		return object{}
	}
	s := sh.store
	return s.object(slab.Ref(sh.byID.Find(hashOfID(id), func(ref uint32) bool { return s.object(slab.Ref(ref)).id == id })))
}

// enter adds an object to the shard's tables. They must have neither its key nor its id.
// Needs applyMu, and the shard's lock.
func (sh *shard) enter(hash uint64, o object) {
	sh.byKey.Insert(hash, uint32(o.ref), sh.store.hashOfKeyAt)
	sh.byID.Insert(hashOfID(o.id), uint32(o.ref), sh.store.hashOfIDAt)
}

// strike takes an object out of the shard's tables. Needs applyMu, and the shard's lock.
func (sh *shard) strike(o object) {
	sh.byKey.Delete(o.hash(), uint32(o.ref), sh.store.hashOfKeyAt)
	sh.byID.Delete(hashOfID(o.id), uint32(o.ref), sh.store.hashOfIDAt)
}

// all visits every object of the shard; the one visited may be removed meanwhile. Needs
// the shard's lock.
func (sh *shard) all(yield func(object) bool) {
	sh.byKey.Each(func(refs []uint32) bool { return sh.eachOf(refs, yield) })
}

// part is all for the next objects, some hundred at most, from a place on. It reports
// whether there are more.
func (sh *shard) part(from *reftable.Place, visit func(object)) (more bool) {
	return sh.byKey.Part(from, partGroups, func(refs []uint32) bool {
		return sh.eachOf(refs, func(o object) bool { visit(o); return true })
	})
}

// partGroups is how many groups of a table, of at most 10 objects on average, a part has.
const partGroups = 16

// eachOf visits objects until visit returns false. It reads their records ahead, as a batch
// does: they lie anywhere.
func (sh *shard) eachOf(refs []uint32, visit func(object) bool) bool {
	for _, ref := range refs {
		sh.sink += sh.store.slab.Touch(slab.Ref(ref))
	}
	for _, ref := range refs {
		if !visit(sh.store.object(slab.Ref(ref))) {
			return false
		}
	}
	return true
}
