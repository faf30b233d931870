package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/lab/cluster"
)

func TestOutages(t *testing.T) {
	var list []time.Duration
	for i := range 200 {
		list = append(list, time.Duration(200-i)*time.Millisecond)
	}
	if got, want := outagesOf(list), (Outages{P50: 100, P99: 198, Max: 200}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := outagesOf(nil); got != (Outages{}) {
		t.Errorf("outages of nothing: got %+v, want none", got)
	}
	if got, want := outagesOf(list[:1]), (Outages{P50: 200, P99: 200, Max: 200}); got != want {
		t.Errorf("of one: %+v, want %+v", got, want)
	}
}

// A drill that is stopped leaves nothing, unless a promise was broken by then.
func TestInterruption(t *testing.T) {
	for letters, keeps := range map[string]bool{"": false, "D": true} {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		r := Run(ctx, Drill{Name: "d", run: func(_ context.Context, e *Env) {
			cancel()
			if letters != "" {
				e.result.violate(letters, 1)
			}
			do(ctx.Err())
		}}, Options{Dir: dir})
		if left, err := os.ReadDir(dir); err != nil || (len(left) == 1) != keeps || r.OK || r.Stopped == keeps {
			t.Errorf("broken %q: got %v left (%v), ok %t, stopped %t; want a folder exactly if a promise broke", letters, left, err, r.OK, r.Stopped)
		}
	}
}

// What makes a result fail, and what does not.
func TestVerdicts(t *testing.T) {
	d := Drill{Promises: []string{"D", "X"}}
	for name, c := range map[string]struct {
		found   func(*Result)
		err     error
		ok      bool
		verdict string // of X
	}{
		"kept":              {func(r *Result) { r.violate("D", 0); r.violate("X", 0) }, nil, true, "kept"},
		"broken":            {func(r *Result) { r.violate("D", 0); r.violate("X", 2, "one", "two") }, nil, false, "BROKEN"},
		"not checked":       {func(r *Result) { r.violate("D", 0) }, nil, false, "not checked"},
		"another's promise": {func(r *Result) { r.violate("D", 0); r.violate("X", 0); r.violate("A", 1) }, nil, false, "kept"},
		"a check":           {func(r *Result) { r.violate("D", 0); r.violate("X", 0); r.check("c", false, "no") }, nil, false, "kept"},
		"an error":          {func(r *Result) { r.violate("D", 0); r.violate("X", 0) }, errors.New("no"), false, "kept"},
		"skipped":           {func(r *Result) { r.Skipped = "why" }, nil, true, "not checked"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newResult(d, Options{})
			c.found(&r)
			r.finish(d, c.err)
			if r.OK != c.ok || r.Verdicts["X"] != c.verdict {
				t.Errorf("ok %t, X %s; want %t, %s", r.OK, r.Verdicts["X"], c.ok, c.verdict)
			}
		})
	}
}

// Of the checks of one name the first failure stays.
func TestChecksKeepTheFirstFailure(t *testing.T) {
	r := newResult(Drill{}, Options{})
	for i, ok := range []bool{true, true, false, true, false} {
		r.check("c", ok, "%d", i)
	}
	if want := []Check{{"c", false, "2"}}; !slices.Equal(r.Checks, want) {
		t.Errorf("%+v, want %+v", r.Checks, want)
	}
}

// A node that took more memory than the cap breaks B; two terms that are served at once
// break F.
func TestBrokenBounds(t *testing.T) {
	for most, want := range map[int64]int{memoryCap: 0, memoryCap + 1: 1} {
		r := newResult(Drill{}, Options{})
		if r.took("n", most); r.Violations["B"] != want {
			t.Errorf("%d bytes: got %d violations of B, want %d", most, r.Violations["B"], want)
		}
	}
	served := func(term uint64, sent, got time.Duration) answer {
		return answer{term: term, sent: sent, got: got, kind: errs.OK}
	}
	for name, c := range map[string]struct {
		late answer
		want int
	}{
		"sent before the other answered": {served(1, 4, 9), 0},
		"sent behind it":                 {served(1, 6, 9), 1},
		"refused behind it":              {answer{term: 1, sent: 6, got: 9, kind: errs.NotLeader}, 0},
	} {
		e := &Env{result: new(Result)}
		*e.result = newResult(Drill{}, Options{})
		if e.oneAtATime([]answer{c.late, served(1, 0, 1), served(2, 2, 5)}); e.result.Violations["F"] != c.want {
			t.Errorf("%s: got %d violations of F, want %d", name, e.result.Violations["F"], c.want)
		}
	}
}

// Of 50 rounds the p99 counts; of fewer ones the best, and the worst by a wider bound.
func TestBoundedOutages(t *testing.T) {
	const bound, without = 100 * time.Millisecond, time.Second
	for name, c := range map[string]struct {
		rounds, late int
		by           time.Duration
		want         bool
	}{
		"one of fifty is late":          {50, 1, 101 * time.Millisecond, false},
		"one of a hundred is very late": {100, 1, 5 * time.Second, true},
		"one of five is late":           {5, 1, without, true},
		"one of five is very late":      {5, 1, without + time.Millisecond, false},
		"most of five are late":         {5, 4, without, true},
		"all of five are late":          {5, 5, 101 * time.Millisecond, false},
	} {
		e := &Env{result: new(Result)}
		*e.result = newResult(Drill{}, Options{})
		for i := range c.rounds {
			outage := bound
			if i < c.late {
				outage = c.by
			}
			e.result.bounded = append(e.result.bounded, outage)
		}
		if e.boundOutages(bound, without); e.result.Checks[0].OK != c.want {
			t.Errorf("%s: got %+v, want ok %t", name, e.result.Checks[0], c.want)
		}
	}
}

func TestExamplesAreBounded(t *testing.T) {
	r := newResult(Drill{}, Options{})
	for i := range 10 * maxExamples {
		r.violate("D", 1, fmt.Sprint(i))
	}
	if r.Violations["D"] != 10*maxExamples || len(r.Examples) != maxExamples {
		t.Errorf("got %d violations and %d examples, want %d and %d", r.Violations["D"], len(r.Examples), 10*maxExamples, maxExamples)
	}
}

func TestReportSumsUp(t *testing.T) {
	r := Summarize(7, []Result{
		{OK: true, Rounds: 2, outages: []time.Duration{time.Second, 2 * time.Second}, Violations: map[string]int{"D": 0}},
		{OK: false, Rounds: 1, outages: []time.Duration{3 * time.Second}, Violations: map[string]int{"D": 1, "X": 2}},
	})
	if r.OK || r.Seed != 7 || r.Rounds != 3 || r.Outage.Max != 3000 || r.Violations["D"] != 1 || r.Violations["X"] != 2 {
		t.Errorf("got %+v, want the sums of three rounds, not ok", r)
	}
}

// A failure keeps a folder and says where; success leaves nothing.
func TestFolders(t *testing.T) {
	for name, c := range map[string]struct {
		found func(*Env)
		err   error
		keeps bool
	}{
		"success": {func(*Env) {}, nil, false},
		"error":   {func(*Env) {}, errors.New("no"), true},
		"broken":  {func(e *Env) { e.result.violate("D", 1) }, nil, true},
		"check":   {func(e *Env) { e.result.check("c", false, "no") }, nil, true},
		"skipped": {func(e *Env) { e.result.Skipped = "why" }, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := Run(t.Context(), Drill{Name: "d", run: func(_ context.Context, e *Env) {
				c.found(e)
				do(c.err)
			}}, Options{Dir: dir})
			left, err := os.ReadDir(dir)
			if err != nil || (len(left) == 1) != c.keeps || (r.Folder != "") != c.keeps {
				t.Errorf("got %v left (%v), folder %q; want one kept: %t", left, err, r.Folder, c.keeps)
			}
		})
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	for want, o := range map[string]Options{
		"session TTL is 1s":               {SessionTTL: time.Second},
		"session TTL is 2.5s":             {SessionTTL: 2500 * time.Millisecond},
		"must be longer than":             {SessionTTL: 5 * time.Second, EventsTTL: 5 * time.Second},
		"must not be below 0":             {Rounds: -1},
		"no mutant \"x\"":                 {Break: "x"},
		"is one of the protocol mooncake": {Access: cluster.Access{Generation: "v0.3.12"}},
	} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	for _, o := range []Options{{}, {Short: true}, {SessionTTL: 2 * time.Second}} {
		if err := o.Check(); err != nil {
			t.Errorf("options %+v: got error %v, want none", o, err)
		}
	}
}

func TestDrillsAreInOrderAndFound(t *testing.T) {
	last, ci := 0, 0
	for _, d := range All() {
		if d.Number <= last || d.Name == "" || d.What == "" || d.Rounds == 0 || len(d.Promises) == 0 || d.run == nil {
			t.Errorf("drill %d: got %+v, want a number above %d, a name, a description, rounds and promises", d.Number, d, last)
		}
		last = d.Number
		for _, name := range []string{d.Name, fmt.Sprint(d.Number)} {
			if found, err := Find(name); err != nil || found.Number != d.Number {
				t.Errorf("%s: got drill %d, %v; want %d", name, found.Number, err, d.Number)
			}
		}
		if d.CI {
			ci++
		}
	}
	if len(All()) != 39 || ci != 11 {
		t.Errorf("got %d drills, %d of them in CI; want 39 and 11", len(All()), ci)
	}
	if _, err := Find("primary"); err == nil || !strings.Contains(err.Error(), "kill-primary or ") {
		t.Errorf("got error %v, want one that names kill-primary", err)
	}
}
