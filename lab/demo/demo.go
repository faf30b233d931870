// Package demo shows on one machine what Understudy is for. It plays an LLM request
// trace against a primary and its standby, which are real processes with a real etcd,
// takes the primary away half-way, and reports what clients saw.
package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/replay"
	"github.com/understudy-store/understudy/lab/trace"
)

// Options say what to show.
type Options struct {
	Trace    string         // a file; empty for a generated load
	Requests int            // of a generated load; 0 for its default
	Seed     uint64         // of a generated load, and of what workers choose
	Handover bool           // hand over instead of killing
	Compare  bool           // play once more without a disturbance
	Speed    float64        // of the trace's timestamps; 0 plays as fast as possible
	Workers  int            // LLM servers that work at the same time
	Failover time.Duration  // of the nodes
	LeaseTTL time.Duration  // of readers
	Dir      string         // gets a folder with data and logs; empty for a temporary one, which is deleted
	Access   cluster.Access // of the clients
}

// A Progress gets the progress of a run.
type Progress interface {
	// Stage begins a stage with a number of requests; 0 if they are not counted.
	Stage(what string, requests int)
	// Done reports how many requests of the stage are done.
	Done(requests int)
}

const (
	hosts    = 4
	capacity = 0.5  // of what all distinct blocks take, so that eviction always has work
	block    = 1024 // bytes
)

// Run runs the demo. An error means that the demo could not be run; broken promises are in
// the report.
func Run(ctx context.Context, o Options, progress Progress) (Report, error) {
	report := newReport(o)
	load, err := trace.Load(o.Trace, trace.Options{Seed: o.Seed, Requests: o.Requests})
	if err != nil {
		return report, err
	}
	report.describe(load)
	dir, err := o.folder()
	if err != nil {
		return report, err
	}
	if o.Dir == "" {
		defer func() { _ = os.RemoveAll(dir) }()
	} else {
		progress.Stage("data and logs are under "+dir, 0)
	}
	first := &run{Options: o, load: load, progress: progress, dir: filepath.Join(dir, "disturbed"), disturb: true}
	if err := first.play(ctx); err != nil {
		return report, err
	}
	report.disturbed(first)
	if o.Compare {
		second := &run{Options: o, load: load, progress: progress, dir: filepath.Join(dir, "undisturbed")}
		if err := second.play(ctx); err != nil {
			return report, fmt.Errorf("without a disturbance: %w", err)
		}
		report.undisturbed(first, second)
	}
	report.judge()
	return report, nil
}

// folder makes a new folder for each demo, even with the same Dir, since a fresh cluster must
// not start on the data of an earlier one.
func (o Options) folder() (string, error) {
	if o.Dir != "" {
		if err := os.MkdirAll(o.Dir, 0o755); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(o.Dir, "understudy-demo-*")
}

// A run plays the load once against a fresh pair.
type run struct {
	Options
	load     *trace.Trace
	progress Progress
	dir      string
	disturb  bool

	player  *replay.Player
	cluster *cluster.Cluster
	half    chan struct{} // closed when workers have taken half of the load

	began    time.Duration // when the disturbance began, by the player's clock
	switched int           // first request that was taken after it
	objects  Objects
	digests  bool // the digests were equal whenever they were compared
	handover time.Duration
}

func (r *run) play(ctx context.Context) error {
	what := map[bool]string{true: "killing the primary half-way", false: "undisturbed"}[r.disturb]
	if r.disturb && r.Handover {
		what = "handing over half-way"
	}
	r.progress.Stage("starting etcd, a master and a standby", 0)
	if err := r.start(ctx); err != nil {
		return err
	}
	defer r.cluster.Stop()
	r.half = make(chan struct{})
	var err error
	r.player, err = replay.New(ctx, replay.Config{
		Client: r.cluster.ClientConfig(), Trace: r.load, Workers: r.Workers, Hosts: hosts, Capacity: capacity, Block: block, Speed: r.Speed, Seed: r.Seed,
		OnTaken: r.taken,
	})
	if err != nil {
		return err
	}
	defer r.player.Close()
	r.progress.Stage(what, len(r.load.Requests))
	return r.playAndDisturb(ctx)
}

// start starts an etcd, a master, and a standby that the master could hand over
// to.
func (r *run) start(ctx context.Context) (err error) {
	r.cluster, err = cluster.Start(ctx, cluster.Config{
		Dir: r.dir, ID: "demo", Etcd: 1, Names: []string{"master", "standby"}, Access: r.Access, FailoverAfter: r.Failover, LeaseTTL: r.LeaseTTL,
	})
	if err != nil {
		return err
	}
	if err := r.primary().UntilHandover(ctx); err != nil {
		r.cluster.Stop()
		return err
	}
	return nil
}

// primary is the node that is taken away half-way, standby the one that takes over.
func (r *run) primary() *cluster.Node { return r.cluster.Nodes[0] }
func (r *run) standby() *cluster.Node { return r.cluster.Nodes[1] }

// taken is called for each request that a worker takes.
func (r *run) taken(n int) {
	r.progress.Done(n)
	if n == len(r.load.Requests)/2 {
		close(r.half)
	}
}

func (r *run) playAndDisturb(ctx context.Context) error {
	r.digests = true
	g, playing := errgroup.WithContext(ctx)
	g.Go(func() error { return r.disturbance(playing) })
	g.Go(func() error { return r.player.Run(playing) })
	if err := g.Wait(); err != nil {
		return err
	}
	return r.compareAtTheEnd(ctx)
}
