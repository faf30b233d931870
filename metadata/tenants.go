package metadata

import (
	"sync"

	"github.com/zeebo/xxh3"
)

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
