package judge

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/understudy-store/understudy/errs"
)

// History returns all that was recorded so far, in the order in which it began.
// The caller owns it.
func (l *Load) History() []Record {
	all := make([]Record, 0, l.calls.Load()+64)
	l.mu.Lock()
	logs := slices.Clone(l.logs)
	l.mu.Unlock()
	for _, one := range logs {
		all = one.appendTo(all)
	}
	all = l.marks.appendTo(all)
	slices.SortStableFunc(all, func(a, b Record) int { return cmp.Compare(a.Start, b.Start) })
	return all
}

// Counts are what became of the calls of clients. Probes do not count.
type Counts struct {
	Calls int `json:"calls"`
	OK    int `json:"ok"`
	// Failed counts answers that a call was not made, by their kind: most of them
	// mean that there was nothing to do.
	Failed    map[string]int `json:"failed,omitempty"`
	Ambiguous int            `json:"ambiguous"`
	// Unanswered are the ambiguous calls, and the failed ones to which the cluster
	// gave no answer of its own.
	Unanswered int `json:"unanswered"`
}

// Counts returns what became of the calls so far.
func (l *Load) Counts() Counts {
	c := Counts{Failed: make(map[string]int)}
	l.each(func(r *Record) {
		c.Calls++
		switch r.Outcome {
		case OK:
			c.OK++
		case Ambiguous:
			c.Ambiguous++
		case Failed:
			c.Failed[r.Kind.String()]++
		}
		if !r.answered() {
			c.Unanswered++
		}
	})
	return c
}

// each visits the calls of clients.
func (l *Load) each(visit func(*Record)) {
	for _, w := range l.workers {
		w.log.mu.Lock()
		for i := range w.log.records {
			visit(&w.log.records[i])
		}
		w.log.mu.Unlock()
	}
}

// Outage returns the longest time without an answer to any client that was not
// over at a moment of the load's clock: last success to first success. One that
// lasts still counts up to now, or to the end of the load.
func (l *Load) Outage(since time.Duration) time.Duration {
	l.mu.Lock()
	end := l.ended
	l.mu.Unlock()
	if end == 0 {
		end = l.Now()
	}
	var last time.Duration // success before since
	var after []time.Duration
	l.each(func(r *Record) {
		switch {
		case !r.answered():
		case r.End < since:
			last = max(last, r.End)
		default:
			after = append(after, r.End)
		}
	})
	slices.Sort(after)
	var longest time.Duration
	for _, at := range append(after, max(end, since)) {
		longest = max(longest, at-last)
		last = at
	}
	return longest
}

// A line is a record as it is saved.
type line struct {
	*Record
	Answer string `json:"answer,omitempty"`
}

// Save writes the history to history.jsonl in a folder, a record a line, and
// what else the judge knew of the load to rules.json.
func (l *Load) Save(dir string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("saving the history: %w", err)
	}
	f, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		return fmt.Errorf("saving the history: %w", err)
	}
	defer func() {
		if closed := f.Close(); err == nil && closed != nil {
			err = fmt.Errorf("saving the history: %w", closed)
		}
	}()
	w := bufio.NewWriter(f)
	lines := json.NewEncoder(w)
	history := l.History()
	for i := range history {
		one := line{Record: &history[i]}
		if one.Kind != errs.OK {
			one.Answer = one.Kind.String()
		}
		if err := lines.Encode(one); err != nil {
			return fmt.Errorf("saving the history: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("saving the history: %w", err)
	}
	rules, err := json.MarshalIndent(l.rules(), "", "  ")
	if err != nil {
		return fmt.Errorf("saving the rules of the history: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "rules.json"), rules, 0o644)
}

// rules are what the judge must know beside the history.
func (l *Load) rules() Rules {
	rules := l.config.rules()
	l.mu.Lock()
	defer l.mu.Unlock()
	rules.Losses = slices.Clone(l.losses)
	return rules
}
