// Package scalebench measures one cluster with very many objects: how much memory they
// take, and how long callers wait while each housekeeping task runs.
//
// The nodes are child processes; so is, in HA mode, their etcd. The package must never
// load a cluster that is in use.
package scalebench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/understudy-store/understudy/lab/bench/caller"
)

// Options of a run.
type Options struct {
	HA       bool
	Objects  int
	Tasks    []string      // in their order; empty for all
	Least    time.Duration // how long a task is measured at least, even if it is done earlier
	Progress func(what string)

	lease time.Duration // TTL of leases; 0 for the default
}

// Defaults returns the options of a run of about two minutes.
func Defaults() Options { return Options{HA: true, Objects: 1_000_000, Least: 5 * time.Second} }

// Bounds of what can be asked for. Two nodes of 100 M objects take more memory than
// most machines have.
const (
	minObjects = 10_000
	maxObjects = 100_000_000
	minLeast   = 100 * time.Millisecond
)

// Check returns what is wrong with the options, in the words of the flags.
func (o *Options) Check() error {
	if o.Objects < minObjects || o.Objects > maxObjects {
		return fmt.Errorf("--objects is %d: it must be from %d to %d", o.Objects, minObjects, maxObjects)
	}
	if o.Least < minLeast {
		return fmt.Errorf("--duration is %v: it must be at least %v", o.Least, minLeast)
	}
	for _, name := range o.Tasks {
		if !slices.Contains(TaskNames(), name) {
			return fmt.Errorf("--tasks has %q: known are %s", name, strings.Join(TaskNames(), ", "))
		}
	}
	return nil
}

func (o *Options) progress(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// A Report is the outcome of a run.
type Report struct {
	caller.Machine
	HA      bool `json:"ha"`
	Objects int  `json:"objects"`

	FillSeconds    float64 `json:"fill_s"`
	FillPerSecond  float64 `json:"fill_objects_per_s"`
	LiveBytes      int64   `json:"live_bytes"`       // of the primary's heap after a collection
	BytesPerObject float64 `json:"bytes_per_object"` // of the live heap, less what there was before
	EmptyRSS       int64   `json:"empty_rss_bytes"`  // of the primary, before the first object
	IdleRSS        int64   `json:"idle_rss_bytes"`   // of the primary, with all objects
	Tasks          []Task  `json:"tasks"`
}

// A Task has the measurements while a task ran.
type Task struct {
	Name      string  `json:"name"`
	Seconds   float64 `json:"seconds"` // that the task took
	Items     int64   `json:"items"`   // objects, renewals or ranges that it went through
	PerSecond float64 `json:"items_per_s"`
	PeakRSS   int64   `json:"peak_rss_bytes"` // of the primary during the task; 0 if the primary changed
	// Garbage collections of the primary during the task, their pauses, and the CPU time
	// that goroutines spent on assisting them.
	Collections   int64   `json:"gc_cycles"`
	PauseP99      float64 `json:"gc_pause_p99_ms"`
	PauseMax      float64 `json:"gc_pause_max_ms"`
	AssistSeconds float64 `json:"gc_assist_s"`
	Calls         []Calls `json:"calls"`
	// Phases of a takeover, by the new primary, in milliseconds.
	Phases map[string]float64 `json:"takeover_phases_ms,omitempty"`
}

// Calls are the calls of one kind while a task ran. A call that took longer than the interval
// also counts for each call that it delayed.
type Calls struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
	P50   int64  `json:"p50_us"`
	P99   int64  `json:"p99_us"`
	Max   int64  `json:"max_us"` // if the primary changed, the time without an answer
}

// Run fills a cluster and measures its tasks.
func Run(ctx context.Context, o Options) (r Report, err error) {
	machine, dir, end, err := caller.Begin()
	if err != nil {
		return r, err
	}
	defer end()
	r = Report{Machine: machine, HA: o.HA, Objects: o.Objects}

	o.progress("starting")
	w, err := startWorld(ctx, dir, &o)
	if err != nil {
		return r, err
	}
	defer w.stop()
	if err := w.fillAll(ctx, &r); err != nil {
		return r, err
	}
	w.startProbes(ctx)
	for _, t := range tasks() {
		if t.ha && !o.HA || len(o.Tasks) > 0 && !slices.Contains(o.Tasks, t.name) {
			continue
		}
		o.progress("%s", t.name)
		m, err := w.measure(ctx, t)
		if err != nil {
			return r, fmt.Errorf("%s: %w", t.name, err)
		}
		r.Tasks = append(r.Tasks, m)
	}
	return r, nil
}

// fillAll puts the objects and measures what they take.
func (w *world) fillAll(ctx context.Context, r *Report) error {
	before, err := w.liveHeap(ctx)
	if err != nil {
		return err
	}
	if r.EmptyRSS, err = rss(w.primary.PID); err != nil {
		return err
	}
	w.progress("putting %d objects", w.Objects)
	begun := w.clock()
	if err := w.fill(ctx); err != nil {
		return fmt.Errorf("putting objects: %w", err)
	}
	r.FillSeconds = (w.clock() - begun).Seconds()
	r.FillPerSecond = float64(w.Objects) / r.FillSeconds
	if err := w.settle(ctx); err != nil {
		return err
	}
	if r.LiveBytes, err = w.liveHeap(ctx); err != nil {
		return err
	}
	r.BytesPerObject = float64(r.LiveBytes-before) / float64(w.Objects)
	r.IdleRSS, err = rss(w.primary.PID)
	return err
}
