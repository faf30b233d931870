package metadata

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestKeyMap compares a keyMap whose hashes collide all the time with a map of
// keys.
func TestKeyMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, model := keyMap{}, map[objectKey]*object{}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			k := objectKey{tenantID(rapid.IntRange(0, 1).Draw(t, "tenant")), fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "key"))}
			hash := uint64(len(k.key)+int(k.key[0])) % 3
			if got := m.get(hash, k.tenant, k.key); got != model[k] {
				t.Fatalf("get %v: %p, want %p", k, got, model[k])
			}
			if o := model[k]; o != nil {
				m.remove(hash, o)
				m.remove(hash, o) // is not there any more
				delete(model, k)
				continue
			}
			o := &object{key: k.key, tenant: k.tenant}
			m.put(hash, o)
			model[k] = o
			if n := len(slices.Collect(m.all())); n != len(model) {
				t.Fatalf("%d objects, want %d", n, len(model))
			}
		}
	})
}
