package app

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// maxMisses is how many looks in a row must miss a node before it counts as away: a look has
// a short timeout, so one miss may only mean a busy machine.
const maxMisses = 2

// absences knows which of a few nodes, or of etcd's members or endpoints, are away, and reports
// when that begins and ends.
type absences struct {
	gone func(name string, cause error)
	back func(name string, lasted time.Duration)

	mu     sync.Mutex
	missed map[string]absence // by the last look
}

// An absence counts the looks in a row that missed one of them.
type absence struct {
	looks int
	since time.Duration // by the clock
}

// look notes the outcome of a look at all of them: why each was missed, or nil. It forgets
// those that the outcome does not have.
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
