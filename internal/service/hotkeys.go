package service

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

const (
	// sampledReads is how many reads there are to one that HotKeys counts. It is a power
	// of two.
	sampledReads = 64
	// ranked is how many keys, and how many prefixes, are told apart at once.
	ranked = 128
	// maxHotKey is the longest key that is counted, in bytes.
	maxHotKey = 1024
	// hotHalfLife is how long it takes until a count counts half.
	hotHalfLife = time.Minute
)

// HotKeys finds the keys and prefixes that are read most, from a sample of the reads: a
// Space-Saving sketch (Metwally, Agrawal, El Abbadi, 2005), whose counts are halved once a
// minute. It holds at most 128 of each, with keys of at most 1 KiB. No reader waits for it: a
// sample that would have to wait for the lock is left out.
type HotKeys struct {
	mu       sync.Mutex // guards what follows; a leaf
	keys     ranking
	prefixes ranking
	samples  int64
	aged     metadata.Time
}

// A HotKey is a key, or a prefix of keys, that is read often.
type HotKey struct {
	Tenant, Key string
	Share       float64 // of all reads, at least
}

func (h *HotKeys) read(tenant, key string, now metadata.Time) {
	if h == nil || rand.Uint32()%sampledReads != 0 || len(key) > maxHotKey {
		return
	}
	if h.mu.TryLock() {
		h.countLocked(tenant, key, now)
		h.mu.Unlock()
	}
}

func (h *HotKeys) countLocked(tenant, key string, now metadata.Time) {
	h.ageLocked(now)
	h.samples++
	h.keys.add(hot{tenant, key})
	h.prefixes.add(hot{tenant, PrefixOf(key)})
}

func (h *HotKeys) ageLocked(now metadata.Time) {
	if now < h.aged { // another history
		h.aged = now
	}
	for ; now.Sub(h.aged) >= hotHalfLife && h.samples > 0; h.aged += metadata.Time(hotHalfLife.Milliseconds()) {
		h.samples /= 2
		h.keys.halve()
		h.prefixes.halve()
	}
	if h.samples == 0 {
		h.aged = now
	}
}

// Top returns the n keys and prefixes that were read most in the last minutes, hottest
// first. It leaves out those that may owe their place to chance.
func (h *HotKeys) Top(n int, now metadata.Time) (keys, prefixes []HotKey) {
	if h == nil {
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ageLocked(now)
	return h.keys.top(n, h.samples), h.prefixes.top(n, h.samples)
}

// PrefixOf returns the prefix under which a key is counted: all up to the last of / : @ | #,
// at most 64 bytes. It is empty if the key has none of these.
func PrefixOf(key string) string {
	const longest = 64
	i := strings.LastIndexAny(key, "/:@|#")
	return key[:min(i+1, longest)]
}

type hot struct{ tenant, key string }

// A ranking counts the most frequent of many names, in a fixed number of places. A new name
// takes the place of the least frequent one and adds to that one's count. So a count may be
// too high, by the count that was taken over.
type ranking struct {
	place  map[hot]int
	names  [ranked]hot
	counts [ranked]int64
	over   [ranked]int64 // how much of a count may not be its own
}

func (r *ranking) add(name hot) {
	i, known := r.place[name]
	if !known {
		if r.place == nil {
			r.place = make(map[hot]int, ranked)
		}
		if i = len(r.place); i == ranked {
			i = slices.Index(r.counts[:], slices.Min(r.counts[:]))
			delete(r.place, r.names[i])
		}
		r.names[i] = hot{strings.Clone(name.tenant), strings.Clone(name.key)} // they are part of a request
		r.place[r.names[i]], r.over[i] = i, r.counts[i]
	}
	r.counts[i]++
}

func (r *ranking) halve() {
	for i := range r.counts {
		r.counts[i], r.over[i] = r.counts[i]/2, r.over[i]/2
	}
}

func (r *ranking) top(n int, samples int64) (list []HotKey) {
	const sure = 2 // samples; one may be chance
	for name, i := range r.place {
		if own := r.counts[i] - r.over[i]; own >= sure {
			list = append(list, HotKey{name.tenant, name.key, float64(own) / float64(samples)})
		}
	}
	slices.SortFunc(list, func(a, b HotKey) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Key, b.Key))
	})
	return list[:min(n, len(list))]
}
