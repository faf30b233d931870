// Package rpcbench measures the calls of both protocols, gRPC and Mooncake's: how many a
// master answers in a second, how long a client waits, and how much CPU time the master
// spends.
//
// The master is a child process; so are, in HA mode, its etcd and a standby.
// The load comes from this process, through bare clients that repeat nothing and
// look for no other primary: the first error ends a run. The package must never
// load a cluster that is in use.
package rpcbench

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/lab/bench/caller"
)

// A Protocol is one in which a master is called.
type Protocol = caller.Protocol

// The protocols.
const (
	GRPC     = caller.GRPC
	Mooncake = caller.Mooncake
)

// A Mode is how a master keeps its metadata.
type Mode string

// The modes.
const (
	Off   Mode = "off"   // alone, without a journal
	On    Mode = "on"    // with an etcd in a process of its own, and a standby
	Own   Mode = "own"   // with an etcd in the master's process, and a standby
	Alone Mode = "alone" // with an etcd in the master's process, and no standby
)

// Modes are all of them.
func Modes() []Mode { return []Mode{Off, On, Own, Alone} }

// Options of a run. It measures a cell for each combination of the lists.
type Options struct {
	HA          []Mode
	Connections []int           // each with one call at a time under way
	Batches     []int           // keys of a call; 1 means the calls for one key
	Thinks      []time.Duration // between two calls of a connection, up to a second
	Choices     []Choice        // how the objects to read are chosen
	Calls       []string
	Protocols   []Protocol
	Duration    time.Duration // of a cell; a cell of removals ends when all objects are removed
	Segments    int
	Objects     int // how many objects there are to read
	// Before is another version of the program lab. Its master is compared with this
	// program's, Rounds times for each cell. Empty for no comparison.
	Before   string
	Rounds   int
	Progress func(what string)
}

// Defaults returns the options of a full run, which takes about six minutes.
func Defaults() Options {
	return Options{
		HA:          []Mode{Off, On},
		Connections: []int{1, 4, 16, 64, 200},
		Batches:     []int{1, 128},
		Thinks:      []time.Duration{0},
		Choices:     []Choice{Uniform},
		Calls:       CallNames(),
		Protocols:   []Protocol{GRPC, Mooncake},
		Duration:    2 * time.Second,
		Rounds:      5,
		Segments:    128,
		Objects:     100_000,
	}
}

// Bounds of what can be asked for.
const (
	maxConnections = 1000
	maxSegments    = 10_000
	maxObjects     = 10_000_000
	maxRounds      = 1000
	minDuration    = 100 * time.Millisecond
	maxThink       = time.Second
)

// Check returns what is wrong with the options, in the words of the flags.
func (o *Options) Check() error {
	for _, list := range []struct {
		flag   string
		length int
	}{{"ha", len(o.HA)}, {"connections", len(o.Connections)}, {"batch", len(o.Batches)}, {"think", len(o.Thinks)}, {"keys", len(o.Choices)}, {"calls", len(o.Calls)}, {"protocols", len(o.Protocols)}} {
		if list.length == 0 {
			return fmt.Errorf("--%s is empty", list.flag)
		}
	}
	for _, n := range []struct {
		flag              string
		least, most, have int
	}{
		{"connections", 1, maxConnections, slices.Min(o.Connections)},
		{"connections", 1, maxConnections, slices.Max(o.Connections)},
		{"batch", 1, pb.MaxBatchItems, slices.Min(o.Batches)},
		{"batch", 1, pb.MaxBatchItems, slices.Max(o.Batches)},
		{"segments", 1, maxSegments, o.Segments},
		{"objects", slices.Max(o.Batches), maxObjects, o.Objects},
		{"rounds", 1, maxRounds, o.Rounds},
	} {
		if n.have < n.least || n.have > n.most {
			return fmt.Errorf("--%s is %d: it must be from %d to %d", n.flag, n.have, n.least, n.most)
		}
	}
	if o.Duration < minDuration {
		return fmt.Errorf("--duration is %v: it must be at least %v", o.Duration, minDuration)
	}
	for _, think := range o.Thinks {
		if think < 0 || think > maxThink {
			return fmt.Errorf("--think is %v: it must be from 0 to %v", think, maxThink)
		}
	}
	return o.checkNames()
}

func (o *Options) checkNames() error {
	for _, c := range o.Choices {
		if c != Uniform && c != Zipf {
			return fmt.Errorf("--keys has %q: known are %s, %s", c, Uniform, Zipf)
		}
	}
	for _, name := range o.Calls {
		if !slices.Contains(CallNames(), name) {
			return fmt.Errorf("--calls has %q: known are %s", name, strings.Join(CallNames(), ", "))
		}
	}
	for _, p := range o.Protocols {
		if p != GRPC && p != Mooncake {
			return fmt.Errorf("--protocols has %q: known are %s, %s", p, GRPC, Mooncake)
		}
	}
	return nil
}

// A Report is the outcome of a run.
type Report struct {
	caller.Machine
	Segments int    `json:"segments"`
	Objects  int    `json:"objects"`
	Cells    []Cell `json:"cells,omitempty"`
	// Comparisons replace the cells if there is a program to compare with.
	Comparisons []Comparison `json:"comparisons,omitempty"`
}

// A Cell is one measurement.
type Cell struct {
	HA          Mode     `json:"ha"`
	Connections int      `json:"connections"`
	Batch       int      `json:"batch"`
	Call        string   `json:"call"`
	Protocol    Protocol `json:"protocol"`

	ThinkMicros   float64 `json:"think_us"`   // between two calls of a connection, as asked for
	ThoughtMicros float64 `json:"thought_us"` // on average, as measured
	Choice        Choice  `json:"key_choice"`

	Seconds             float64 `json:"seconds"`
	Calls               int64   `json:"calls"` // a put is two
	Keys                int64   `json:"keys"`
	CallsPerSecond      float64 `json:"calls_per_s"`
	KeysPerSecond       float64 `json:"keys_per_s"`
	ServerMicrosPerCall float64 `json:"server_cpu_us_per_call"` // of the master's processor time
	ServerMicrosPerKey  float64 `json:"server_cpu_us_per_key"`
	ServerProcessors    float64 `json:"server_processors"` // kept busy by the master
	OtherProcessors     float64 `json:"other_processors"`  // kept busy by unrelated processes; many make the measurement worthless

	Latency []Latency `json:"latency"` // of each kind of call, in the order in which they are made
}

// Latency is how long the client waited for answers, in microseconds.
type Latency struct {
	RPC  string `json:"rpc"`
	P50  int64  `json:"p50_us"`
	P90  int64  `json:"p90_us"`
	P99  int64  `json:"p99_us"`
	P999 int64  `json:"p999_us"`
	Max  int64  `json:"max_us"`
}

// Run measures all cells. The two protocols of a cell run one after the other,
// so that both find the machine in about the same state.
func Run(ctx context.Context, o Options) (r Report, err error) {
	machine, dir, end, err := caller.Begin()
	if err != nil {
		return r, err
	}
	defer end()
	r = Report{Machine: machine, Segments: o.Segments, Objects: o.Objects}
	for i, ha := range o.HA {
		run := runMode
		if o.Before != "" {
			run = compareMode
		}
		if err := run(ctx, filepath.Join(dir, fmt.Sprint(i)), ha, &o, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

func modeName(ha Mode) string {
	switch ha {
	case Off:
		return "without HA"
	case Own:
		return "with HA, etcd in the master"
	case Alone:
		return "with HA, etcd in the master, no standby"
	default:
		return "with HA"
	}
}

func (o *Options) progress(what string) {
	if o.Progress != nil {
		o.Progress(what)
	}
}

// runMode measures the cells with or without HA, on a cluster of their own.
func runMode(ctx context.Context, dir string, ha Mode, o *Options, r *Report) error {
	mode := modeName(ha)
	o.progress(mode + ": starting")
	c, err := startTarget(ctx, dir, ha, o.Segments, "")
	if err != nil {
		return err
	}
	defer c.Stop()
	pool, err := c.fill(ctx, o.Objects)
	if err != nil {
		return fmt.Errorf("putting the objects to read: %w", err)
	}
	space := uint16(1) // 0 is the pool's
	for _, s := range o.shapes() {
		o.progress(fmt.Sprintf("%s: %v", mode, s))
		g := group{shape: s, target: c, pool: pool, options: o, space: space}
		cells, err := g.run(ctx)
		if err != nil {
			return fmt.Errorf("%s, %v: %w", mode, s, err)
		}
		r.Cells = append(r.Cells, cells...)
		space += uint16(len(o.Protocols))
	}
	return nil
}
