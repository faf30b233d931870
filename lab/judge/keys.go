package judge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/understudy-store/understudy/metadata"
)

const (
	// A key is replaced by a fresh one after so many calls, or so many mutations without an
	// answer, since the work of the judge grows with both.
	maxKeyCalls     = 1000
	maxKeyAmbiguous = 3
	// groupSize is how many keys a removal by pattern is meant for.
	groupSize = 16
	// hotShare of the keys gets hotCalls of the calls, so that clients meet.
	hotShare, hotCalls = 16, 4
	// One set of near keys in groupedShare is a group of objects.
	groupedShare = 4
	// One key in pinnedShare is pinned hard where there is eviction.
	pinnedShare = 8
)

// A key is a key that several clients use.
type key struct {
	name      string
	slot      int
	gen       int
	pinned    bool
	calls     atomic.Int32
	ambiguous atomic.Int32
}

// A keyring has the keys in use, and those that were replaced.
type keyring struct {
	run   string // unique to this load
	slots []atomic.Pointer[key]
	pins  bool

	mu  sync.Mutex // guards all
	all []*key     // ever
}

func newKeyring(run string, n int, pins bool) *keyring {
	k := &keyring{run: run, slots: make([]atomic.Pointer[key], n), pins: pins}
	for i := range k.slots {
		k.open(i, nil)
	}
	return k
}

// open puts a fresh key into a slot in place of an old one. It reports false if the old one
// was replaced already. Names end in a slash, so that none is a prefix of another.
func (k *keyring) open(slot int, old *key) bool {
	fresh := &key{slot: slot, pinned: k.pins && slot%pinnedShare == pinnedShare-1}
	if old != nil {
		fresh.gen = old.gen + 1
	}
	fresh.name = fmt.Sprintf("%s/%d/%d/%d/", k.run, slot/groupSize, slot, fresh.gen)
	if !k.slots[slot].CompareAndSwap(old, fresh) {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, fresh)
	return true
}

func (k *keyring) pick(rng *rand.Rand) *key {
	n := len(k.slots)
	if rng.IntN(hotCalls) == 0 {
		n = max(1, n/hotShare)
	}
	return k.slots[rng.IntN(n)].Load()
}

// label names a tenant's key in the history, and in the bytes of its objects.
func label(tenant, name string) string {
	if tenant == "" || tenant == metadata.DefaultTenant {
		return name
	}
	return tenant + ":" + name
}

// unlabel is the inverse of label.
func unlabel(label string) (tenant, name string) {
	if name, other := strings.CutPrefix(label, Tenant+":"); other {
		return Tenant, name
	}
	return metadata.DefaultTenant, label
}

// used counts a call. It reports whether the key must be replaced because of it, which it
// does once for each key.
func (k *keyring) used(one *key, ambiguous bool) bool {
	gone := one.calls.Add(1) == maxKeyCalls
	if ambiguous {
		gone = one.ambiguous.Add(1) == maxKeyAmbiguous || gone
	}
	return gone && k.open(one.slot, one)
}

// has reports whether a name is that of a key of this load.
func (k *keyring) has(name string) bool { return strings.HasPrefix(name, k.run+"/") }

// group returns the common prefix of the keys that are near one.
func (k *keyring) group(one *key) string {
	return fmt.Sprintf("%s/%d/", k.run, one.slot/groupSize)
}

// together returns the group that a key's objects are put in, empty for none. A group is
// leased and evicted as one.
func (k *keyring) together(one *key) string {
	if one.slot/groupSize%groupedShare != 0 {
		return ""
	}
	return k.group(one)
}

func (k *keyring) ever() []*key {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.all)
}

// under returns those of some sorted keys that have a prefix.
func under(sorted []string, prefix string) []string {
	from, _ := slices.BinarySearch(sorted, prefix)
	to := from
	for to < len(sorted) && strings.HasPrefix(sorted[to], prefix) {
		to++
	}
	return sorted[from:to]
}
