package metadata

import (
	"hash/maphash"
	"iter"
	"sync"

	"github.com/zeebo/xxh3"
)

// shardOf returns the shard of a key. Every node must agree on it.
func shardOf(tenant, key string) uint16 {
	h := xxh3.HashString(key)
	if tenant != DefaultTenant {
		h ^= xxh3.HashString(tenant) * mixFactor
	}
	return uint16(h % ShardCount)
}

type objectKey struct {
	tenant tenantID
	key    string
}

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

// A tenantID is a node's own short name of a tenant; 0 is the default tenant.
// It is in no record: nodes may number tenants differently.
type tenantID uint32

// tenants gives tenants their short names. A name stays for ever; how many
// there may be is up to the caller that registers tenants.
type tenants struct {
	mu    sync.RWMutex
	ids   map[string]tenantID
	names []string // of ids from 1
}

// find returns the id of a tenant that has one.
func (t *tenants) find(name string) (tenantID, bool) {
	if name == DefaultTenant {
		return 0, true
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	id, ok := t.ids[name]
	return id, ok
}

// intern returns the id of a tenant, giving it one if it has none.
func (t *tenants) intern(name string) tenantID {
	if id, ok := t.find(name); ok {
		return id
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, ok := t.ids[name]; ok {
		return id
	}
	if t.ids == nil {
		t.ids = make(map[string]tenantID)
	}
	t.names = append(t.names, name)
	id := tenantID(len(t.names))
	t.ids[name] = id
	return id
}

func (t *tenants) name(id tenantID) string {
	if id == 0 {
		return DefaultTenant
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.names[id-1]
}

// hash does not depend on the id.
func (t *tenants) hash(id tenantID) uint64 {
	if id == 0 {
		return 0
	}
	return xxh3.HashString(t.name(id))
}
