// Package drill breaks a running cluster on purpose and judges from outside
// whether it kept its promises (docs/design.md, section 1).
//
// A drill starts real processes: etcd members, a primary and standbys, with a TCP
// proxy on each connection between two of them. While recorded clients work (package
// judge), it kills and stops processes and cuts connections. The verdict on the promises
// is the judge's. Beside it a drill checks what an operator should see: which nodes run, what
// they report, and what their logs say.
//
// It must never run against a cluster that it has not started itself.
package drill

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/mutant"
)

// A Drill is one fault, with the promises that must hold under it.
type Drill struct {
	Name     string   `json:"name"`
	Number   int      `json:"number"`   // as in the list of drills
	Promises []string `json:"promises"` // letters of the promises that it checks
	What     string   `json:"what"`     // one line for people
	Rounds   int      `json:"-"`        // how often the fault happens by default
	CI       bool     `json:"ci"`       // is part of CI, in the short form

	patches []string // that its nodes are built with; they add helpers and remove no safeguard
	old     bool     // it needs nodes of an older release
	ownEtcd bool     // it also runs where each node has a member of etcd
	run     runFunc
}

// A runFunc breaks something and records the outcome, including broken promises, in
// the result. If it cannot go on, it ends the script (do, must).
type runFunc func(context.Context, *Env)

// Options say how drills are run. A zero field is its default.
type Options struct {
	Seed       uint64         // of all random choices; default 1
	Rounds     int            // default: the drill's own
	Duration   time.Duration  // ends a drill with rounds after that long; default: when its rounds are done
	SessionTTL time.Duration  // of the nodes, whole seconds; default 5 s, 2 s if Short
	Failover   time.Duration  // of the nodes; default 1 s
	EventsTTL  time.Duration  // of the journal, whole seconds; default 60 s, 5 s if Short
	Objects    int            // where a drill needs many; default 1,000,000, 30,000 if Short
	Away       time.Duration  // how long everything stays dead in everything-killed; default: not at all
	Stall      time.Duration  // how long stalling-etcd stops etcd each time; default: random
	Every      time.Duration  // the time from one such stall to the next; default 10 s
	From       string         // commit of the release that upgrade starts from; default: lastRelease
	Short      bool           // the form for CI
	OwnEtcd    bool           // each of three nodes runs a member of etcd
	Dir        string         // for data and logs while a drill runs; default: the system's for temporary files
	Access     cluster.Access // of the recorded clients
	Break      string         // the safeguard that all nodes lack: the name of a mutant

	// Mutants builds nodes with patches; may be nil.
	Mutants *mutant.Builder
	program string   // executable of the nodes
	old     string   // executable of an older release
	notices []string // what a control must notice
	// Progress is called with each thing that a drill does; may be nil.
	Progress func(text string)
}

func (o Options) withDefaults() Options {
	session, events, objects := 5*time.Second, time.Minute, 1_000_000
	if o.Short {
		session, events, objects = 2*time.Second, 5*time.Second, 30_000
	}
	o.SessionTTL, o.Failover, o.EventsTTL = cmp.Or(o.SessionTTL, session), cmp.Or(o.Failover, time.Second), cmp.Or(o.EventsTTL, events)
	o.Seed, o.Objects = cmp.Or(o.Seed, 1), cmp.Or(o.Objects, objects)
	o.Every, o.From = cmp.Or(o.Every, 10*time.Second), cmp.Or(o.From, lastRelease)
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// Check returns one error with everything that is wrong with the options.
func (o Options) Check() error {
	o = o.withDefaults()
	var faults []string
	for name, d := range map[string]time.Duration{"session TTL": o.SessionTTL, "events TTL": o.EventsTTL} {
		if d < 2*time.Second || d%time.Second != 0 {
			faults = append(faults, fmt.Sprintf("the %s is %v; it must be whole seconds, at least 2s", name, d))
		}
	}
	if o.EventsTTL <= o.SessionTTL {
		faults = append(faults, fmt.Sprintf("the events TTL (%v) must be longer than the session TTL (%v)", o.EventsTTL, o.SessionTTL))
	}
	if o.Failover < 200*time.Millisecond || o.Failover > o.SessionTTL {
		faults = append(faults, fmt.Sprintf("the failover time is %v; it must be from 200ms to the session TTL (%v)", o.Failover, o.SessionTTL))
	}
	if o.Rounds < 0 || o.Duration < 0 || o.Away < 0 || o.Objects < 0 {
		faults = append(faults, "rounds, durations and objects must not be below 0")
	}
	if o.Stall < 0 || o.Stall >= o.Every {
		faults = append(faults, fmt.Sprintf("the stall is %v; it must not be below 0, and shorter than the time from one to the next (%v)", o.Stall, o.Every))
	}
	if fault := o.Access.Check(); fault != "" {
		faults = append(faults, fault)
	}
	if o.Break != "" {
		if _, err := mutant.Missing(o.Break); err != nil {
			faults = append(faults, err.Error())
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%s", strings.Join(faults, "; "))
	}
	return nil
}

// Find returns the drill with a name or number.
func Find(name string) (Drill, error) {
	var near []string
	for _, d := range All() {
		if d.Name == name || fmt.Sprint(d.Number) == name {
			return d, nil
		}
		if strings.Contains(d.Name, name) {
			near = append(near, d.Name)
		}
	}
	if len(near) > 0 {
		return Drill{}, fmt.Errorf("there is no drill %q; did you mean %s?", name, strings.Join(near, " or "))
	}
	return Drill{}, fmt.Errorf("there is no drill %q; \"lab drill list\" shows them", name)
}
