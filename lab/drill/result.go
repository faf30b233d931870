package drill

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A Result is the outcome of a drill.
type Result struct {
	// OK says that the drill ran to its end, no promise was broken, and all checks hold.
	OK     bool   `json:"ok"`
	Name   string `json:"name"`
	Number int    `json:"number"`
	Seed   uint64 `json:"seed"`
	Rounds int    `json:"rounds"` // that were played
	// Outage has the outages, one a round, as all clients together saw them: from the last
	// answer before the fault to the first one after it.
	Outage Outages `json:"outage_ms"`
	// Violations counts violations by the letter of the promise; 0 if the promise was checked
	// and kept.
	Violations map[string]int `json:"violations"`
	// Verdicts has, for each promise of the drill: kept, BROKEN or not checked.
	Verdicts map[string]string `json:"verdicts"`
	Checks   []Check           `json:"checks,omitempty"`
	Counts   map[string]int64  `json:"counts"`
	Examples []string          `json:"examples,omitempty"` // of violations
	Did      []string          `json:"did"`                // in order
	Seconds  float64           `json:"seconds"`
	Broken   string            `json:"broken_safeguard,omitempty"` // the safeguard that the nodes lack on purpose
	Error    string            `json:"error,omitempty"`            // why it did not run to its end
	Folder   string            `json:"folder,omitempty"`           // history and logs of a failure
	Skipped  string            `json:"skipped,omitempty"`          // why it did not run
	Stopped  bool              `json:"stopped,omitempty"`          // the caller stopped it before anything failed

	outages []time.Duration
	bounded []time.Duration // the outages that must keep a bound
}

// Outages are percentiles of outages, in milliseconds.
type Outages struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

func newResult(d Drill, o Options) Result {
	return Result{
		Name: d.Name, Number: d.Number, Seed: o.Seed, Broken: o.Break,
		Violations: make(map[string]int), Verdicts: make(map[string]string), Counts: make(map[string]int64),
	}
}

// A Check is what must hold besides the promises.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// A Report is the outcome of several drills.
type Report struct {
	OK         bool           `json:"ok"`
	Seed       uint64         `json:"seed"`
	Rounds     int            `json:"rounds"`
	Outage     Outages        `json:"outage_ms"`  // of all rounds
	Violations map[string]int `json:"violations"` // of all drills
	Drills     []Result       `json:"drills"`
	Seconds    float64        `json:"seconds"`
}

// Summarize puts results together.
func Summarize(seed uint64, results []Result) Report {
	r := Report{OK: true, Seed: seed, Violations: make(map[string]int), Drills: results}
	var all []time.Duration
	for _, d := range results {
		r.OK = r.OK && d.OK
		r.Rounds += d.Rounds
		r.Seconds += d.Seconds
		all = append(all, d.outages...)
		for letter, n := range d.Violations {
			r.Violations[letter] += n
		}
	}
	r.Outage = outagesOf(all)
	return r
}

func outagesOf(list []time.Duration) Outages {
	if len(list) == 0 {
		return Outages{}
	}
	list = slices.Sorted(slices.Values(list))
	at := func(q float64) int64 {
		return list[max(0, int(math.Ceil(q*float64(len(list))))-1)].Milliseconds()
	}
	return Outages{P50: at(0.5), P99: at(0.99), Max: at(1)}
}

// maxExamples bounds how many violations of a drill are described.
const maxExamples = 20

func (r *Result) violate(letter string, n int, examples ...string) {
	r.Violations[letter] += n
	for _, e := range examples {
		if len(r.Examples) < maxExamples {
			r.Examples = append(r.Examples, letter+": "+e)
		}
	}
}

// check records a check. If several have the same name, the first failure is kept.
func (r *Result) check(name string, ok bool, format string, args ...any) {
	c := Check{name, ok, fmt.Sprintf(format, args...)}
	for i, old := range r.Checks {
		if old.Name == name {
			if old.OK {
				r.Checks[i] = c
			}
			return
		}
	}
	r.Checks = append(r.Checks, c)
}

func (r *Result) finish(d Drill, err error) {
	r.Outage = outagesOf(r.outages)
	r.OK = err == nil
	if err != nil {
		r.Error = err.Error()
	}
	for _, letter := range d.Promises {
		n, checked := r.Violations[letter]
		switch {
		case n > 0:
			r.Verdicts[letter] = "BROKEN"
		case checked:
			r.Verdicts[letter] = "kept"
		default:
			r.Verdicts[letter] = "not checked"
			r.OK = r.OK && r.Skipped != ""
		}
	}
	r.OK = r.OK && !r.failing() || r.Skipped != ""
}

// notices reports whether any of these, letters of promises or names of checks, was broken or
// failed.
func (r *Result) notices(any []string) bool {
	return slices.ContainsFunc(any, func(what string) bool {
		return r.Violations[what] > 0 || slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Name == what && !c.OK })
	})
}

// broken reports whether a promise was seen broken.
func (r *Result) broken() bool {
	for _, n := range r.Violations {
		if n > 0 {
			return true
		}
	}
	return false
}

func (r *Result) failing() bool {
	return r.broken() || slices.ContainsFunc(r.Checks, func(c Check) bool { return !c.OK })
}
