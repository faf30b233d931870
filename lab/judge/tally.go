package judge

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// A Promise is the letter of one that the design makes.
type Promise string

// The promises that the judge checks.
const (
	D Promise = "D" // durable
	X Promise = "X" // no resurrection
	A Promise = "A" // no aliasing
	L Promise = "L" // leases hold
	F Promise = "F" // fenced
	V Promise = "V" // committed reads
	S Promise = "S" // same state
)

// maxExamples is how many violations of a promise are described.
const maxExamples = 5

// A tally counts violations, and describes some.
type tally struct {
	mu       sync.Mutex // guards what follows; a leaf
	count    map[Promise]int
	examples map[Promise][]string
}

// checked says that promises were looked at.
func (t *tally) checked(promises ...Promise) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.initLocked()
	for _, p := range promises {
		t.count[p] += 0
	}
}

func (t *tally) add(p Promise, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.initLocked()
	t.count[p]++
	if len(t.examples[p]) < maxExamples {
		t.examples[p] = append(t.examples[p], fmt.Sprintf(string(p)+": "+format, args...))
	}
}

func (t *tally) initLocked() {
	if t.count == nil {
		t.count, t.examples = make(map[Promise]int), make(map[Promise][]string)
	}
}

// addAll adds what another tally has.
func (t *tally) addAll(o *tally) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.initLocked()
	for p, n := range o.count {
		t.count[p] += n
		t.examples[p] = append(t.examples[p], o.examples[p]...)
		t.examples[p] = t.examples[p][:min(len(t.examples[p]), maxExamples)]
	}
}

// verdict returns the counts by letter, and the examples in the order of the
// letters.
func (t *tally) verdict() (map[string]int, []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := make(map[string]int, len(t.count))
	var examples []string
	for _, p := range slices.Sorted(maps.Keys(t.count)) {
		counts[string(p)] = t.count[p]
		examples = append(examples, t.examples[p]...)
	}
	return counts, examples
}
