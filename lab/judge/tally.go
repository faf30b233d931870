package judge

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// The promises that the judge checks, by the letters that the design gives them, and Q.
const (
	D = "D" // durable
	X = "X" // no resurrection
	A = "A" // no aliasing
	L = "L" // leases hold
	F = "F" // fenced
	V = "V" // committed reads
	S = "S" // same state
	Q = "Q" // quotas hold
)

// maxExamples is how many violations of a promise are described.
const maxExamples = 5

// A tally counts violations by promise, and describes some.
type tally struct {
	mu       sync.Mutex // guards what follows; a leaf
	count    map[string]int
	examples map[string][]string
}

// note counts n violations of a promise; 0 records that the promise was checked.
func (t *tally) note(promise string, n int, examples ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count, t.examples = make(map[string]int), make(map[string][]string)
	}
	t.count[promise] += n
	room := maxExamples - len(t.examples[promise])
	t.examples[promise] = append(t.examples[promise], examples[:min(len(examples), room)]...)
}

func (t *tally) checked(promises ...string) {
	for _, p := range promises {
		t.note(p, 0)
	}
}

func (t *tally) add(promise, format string, args ...any) {
	t.note(promise, 1, fmt.Sprintf(promise+": "+format, args...))
}

func (t *tally) addAll(o *tally) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, n := range o.count {
		t.note(p, n, o.examples[p]...)
	}
}

// verdict completes a verdict: the counts, and the examples in the order of the
// letters.
func (t *tally) verdict(v Verdict) Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	v.Violations, v.OK = maps.Clone(t.count), v.Undecided == 0
	for _, p := range slices.Sorted(maps.Keys(t.count)) {
		v.OK = v.OK && t.count[p] == 0
		v.Examples = append(v.Examples, t.examples[p]...)
	}
	return v
}
