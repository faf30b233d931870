package app

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// maxMisses is how many looks in a row must miss one that counts as away: a look has a short
// timeout, so a single one that misses may only have met a busy machine.
const maxMisses = 2

// absences knows which of a few nodes, members of etcd, or its endpoints, are away, and says when
// that begins and ends.
type absences struct {
	gone func(name string, cause error)
	back func(name string, lasted time.Duration)

	mu     sync.Mutex
	missed map[string]absence // by the last look
}

// An absence is a number of looks in a row that missed one.
type absence struct {
	looks int
	since time.Duration // by the clock
}

// look takes note of a look at all of them: why each was missed, or nil. Others are forgotten.
func (a *absences) look(outcome map[string]error, now time.Duration) {
	a.mu.Lock()
	before := a.missed
	a.missed = make(map[string]absence)
	for name, cause := range outcome {
		if was, again := before[name]; cause != nil && again {
			a.missed[name] = absence{was.looks + 1, was.since}
		} else if cause != nil {
			a.missed[name] = absence{1, now}
		}
	}
	missed := a.missed
	a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(outcome)) {
		switch was := before[name]; {
		case missed[name].looks == maxMisses:
			a.gone(name, outcome[name])
		case outcome[name] == nil && was.looks >= maxMisses:
			a.back(name, now-was.since)
		}
	}
}

// away returns who is away, in order.
func (a *absences) away() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, missed := range a.missed {
		if missed.looks >= maxMisses {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
