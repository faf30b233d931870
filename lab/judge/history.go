package judge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/understudy-store/understudy/errs"
)

func (l *Load) add(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
}

// recorded returns the calls so far, in the order in which they ended. The caller must not
// change the slice; later calls are appended after it.
func (l *Load) recorded() []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records[:len(l.records):len(l.records)]
}

func (l *Load) full() bool { return len(l.recorded()) >= l.config.MaxCalls }

// History returns a copy of the calls so far, in the order in which they began.
func (l *Load) History() []Record {
	all := slices.Clone(l.recorded())
	slices.SortStableFunc(all, func(a, b Record) int { return cmp.Compare(a.Start, b.Start) })
	return all
}

// Counts are the outcomes of the clients' calls. Probes do not count.
type Counts struct {
	Calls int `json:"calls"`
	OK    int `json:"ok"`
	// Failed counts calls that changed nothing, by their error. Mostly there was nothing to
	// do.
	Failed    map[string]int `json:"failed,omitempty"`
	Ambiguous int            `json:"ambiguous"`
	// Unanswered counts the ambiguous calls, and the failed ones to which the cluster gave
	// no answer of its own. It excludes removals by pattern: the cluster makes them in parts,
	// and itself answers that the outcome is ambiguous if a handover interrupts one.
	Unanswered int `json:"unanswered"`
}

// Counts returns the outcomes of the calls so far.
func (l *Load) Counts() Counts {
	c := Counts{Failed: make(map[string]int)}
	for _, r := range l.recorded() {
		if r.probe() || r.Call == Mark {
			continue
		}
		c.Calls++
		switch r.Outcome {
		case OK:
			c.OK++
		case Ambiguous:
			c.Ambiguous++
		case Failed:
			c.Failed[r.Kind.String()]++
		}
		if !r.answered() && (r.Call != RemoveRegex || r.Outcome != Ambiguous) {
			c.Unanswered++
		}
	}
	return c
}

// Outage returns the longest time from one success of any client to the next, of those
// that were not over at since, a time of the load's clock. An outage that still lasts
// counts up to now, or to the end of the load.
func (l *Load) Outage(since time.Duration) time.Duration {
	l.mu.Lock()
	end := l.ended
	l.mu.Unlock()
	if end == 0 {
		end = l.Now()
	}
	var last time.Duration // success before since
	var after []time.Duration
	for _, r := range l.recorded() {
		switch {
		case !r.answered() || r.probe() || r.Call == Mark:
		case r.End < since:
			last = max(last, r.End)
		default:
			after = append(after, r.End)
		}
	}
	slices.Sort(after)
	var longest time.Duration
	for _, at := range append(after, max(end, since)) {
		longest = max(longest, at-last)
		last = at
	}
	return longest
}

// Save writes the history to history.jsonl in a folder, one record a line, and the other
// input of the judge to rules.json.
func (l *Load) Save(dir string) error {
	var lines bytes.Buffer
	out := json.NewEncoder(&lines)
	for _, r := range l.History() {
		if r.Kind != errs.OK {
			r.Answer = r.Kind.String()
		}
		if err := out.Encode(r); err != nil {
			return fmt.Errorf("saving the history: %w", err)
		}
	}
	rules, err := json.MarshalIndent(l.rules(), "", "  ")
	if err != nil {
		return fmt.Errorf("saving the rules of the history: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("saving the history: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "history.jsonl"), lines.Bytes(), 0o644); err != nil {
		return fmt.Errorf("saving the history: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "rules.json"), rules, 0o644)
}

// rules returns what the judge must know besides the history.
func (l *Load) rules() Rules {
	l.mu.Lock()
	defer l.mu.Unlock()
	quota := uint64(quota)
	if !l.tenants() {
		quota = 0
	}
	return Rules{NoEviction: l.config.NoEviction, Unnumbered: l.config.unnumbered(), Losses: slices.Clone(l.losses), Moved: maps.Clone(l.moved), Quota: quota}
}
