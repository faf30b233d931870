package metadata

import (
	"hash/maphash"
	"iter"
)

// A keyMap finds a shard's objects by key. It is keyed by a 64-bit hash, which
// for millions of objects costs a third of the memory accesses that a map of
// strings does. Objects whose hashes collide are chained through extra.same.
type keyMap map[uint64]*object

// keyHash is this process's own; it is seeded, so that nobody can make keys
// that collide.
type keyHash struct{ seed maphash.Seed }

func (h keyHash) of(tenant tenantID, key string) uint64 {
	return maphash.String(h.seed, key) ^ uint64(tenant)*mixFactor
}

func (m keyMap) get(hash uint64, tenant tenantID, key string) *object {
	o := m[hash]
	for o != nil && (o.key != key || o.tenant != tenant) {
		o = o.chained()
	}
	return o
}

// put adds an object whose key is not there.
func (m keyMap) put(hash uint64, o *object) {
	if other := m[hash]; other != nil {
		if o.extra == nil {
			o.extra = new(extra)
		}
		o.extra.same = other
	}
	m[hash] = o
}

// remove takes an object out, if it is there.
func (m keyMap) remove(hash uint64, o *object) {
	switch at := m[hash]; {
	case at == o && o.chained() == nil:
		delete(m, hash)
	case at == o:
		m[hash] = o.chained()
	default:
		for at != nil && at.chained() != o {
			at = at.chained()
		}
		if at != nil {
			at.extra.same = o.chained()
		}
	}
}

// all yields every object; the one yielded may be removed meanwhile.
func (m keyMap) all() iter.Seq[*object] {
	return func(yield func(*object) bool) {
		for _, o := range m {
			for o != nil {
				next := o.chained()
				if !yield(o) {
					return
				}
				o = next
			}
		}
	}
}

func (o *object) chained() *object {
	if o.extra == nil {
		return nil
	}
	return o.extra.same
}
