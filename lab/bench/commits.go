package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
)

// CommitOptions of a run.
type CommitOptions struct {
	Dir      string        // a folder on the disk to measure; empty for the system's temporary folder
	Callers  []int         // numbers of callers to measure; each has one change under way
	Duration time.Duration // of each measurement
	Bytes    int           // of a bare put; about as many as the commit of one change has
	Progress func(what string)
}

// A Step is one measurement: an operation that was repeated, and how long it took.
type Step struct {
	What      string  `json:"what"`
	Callers   int     `json:"callers"`
	PerSecond float64 `json:"per_s"`
	P50       int64   `json:"p50_us"`
	P99       int64   `json:"p99_us"`
	CPU       float64 `json:"cpu_us"` // processor time of this process, etcd's included, of each
	// Of changes alone:
	CommitsPerSecond float64 `json:"commits_per_s,omitempty"`
	CommitP50        int64   `json:"commit_p50_us,omitempty"`
	CommitBytes      float64 `json:"commit_bytes,omitempty"`
}

// Commits is the outcome of a run.
type Commits struct {
	Steps []Step `json:"steps"`
}

// RunCommits measures a durable change, and for comparison a bare put to the same etcd and
// an fdatasync on the same disk: how long the caller waits, and how much CPU time it takes.
// etcd runs in this process, as it does in a master.
func RunCommits(ctx context.Context, o CommitOptions) (out Commits, err error) {
	err = withEtcd(ctx, o.Dir, func(dir string, etcd *etcdserver.Server) error { return out.measure(ctx, dir, etcd, o) })
	return out, err
}

func (out *Commits) measure(ctx context.Context, dir string, etcd *etcdserver.Server, o CommitOptions) (err error) {
	var clients [2]*clientv3.Client // over a connection, and directly
	for i := range clients {
		if clients[i], err = etcdclient.New(etcd.Endpoints()); err != nil {
			return err
		}
		defer func() { _ = clients[i].Close() }()
	}
	etcd.Direct(clients[1])

	do := func(what string, callers int, run func() (Step, error)) {
		if err != nil {
			return
		}
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("%s, %d at once", what, callers))
		}
		var s Step
		if s, err = run(); err != nil {
			err = fmt.Errorf("%s: %w", what, err)
			return
		}
		s.What, s.Callers = what, callers
		out.Steps = append(out.Steps, s)
	}
	do("fdatasync", 1, func() (Step, error) { return syncs(ctx, dir, o) })
	for _, callers := range o.Callers {
		do("bare put", callers, func() (Step, error) { return puts(ctx, clients[0], callers, o) })
		for i, how := range []string{"change, etcd over a connection", "change, etcd called directly"} {
			do(how, callers, func() (Step, error) {
				return changes(ctx, clients[i], fmt.Sprint(i, "-", callers), callers, o)
			})
		}
	}
	return err
}

// syncs writes and syncs a file whose space is reserved, as etcd does.
func syncs(ctx context.Context, dir string, o CommitOptions) (Step, error) {
	f, err := os.Create(filepath.Join(dir, "syncs"))
	if err != nil {
		return Step{}, err
	}
	defer func() { _ = f.Close() }()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, 64<<20); err != nil {
		return Step{}, err
	}
	page := make([]byte, 4096)
	return timed(ctx, 1, o.Duration, func(context.Context, int) error {
		if _, err := f.Write(page); err != nil {
			return err
		}
		return unix.Fdatasync(int(f.Fd()))
	})
}

func puts(ctx context.Context, client *clientv3.Client, callers int, o CommitOptions) (Step, error) {
	value := string(make([]byte, o.Bytes))
	return timed(ctx, callers, o.Duration, func(ctx context.Context, caller int) error {
		_, err := client.Put(ctx, fmt.Sprint("/puts/", caller), value)
		return err
	})
}

// changes lets callers reserve and complete objects, through a queue and a writer like a
// master's.
func changes(ctx context.Context, client *clientv3.Client, name string, callers int, o CommitOptions) (Step, error) {
	r, err := newRig(ctx, client, name, 0)
	if err != nil {
		return Step{}, err
	}
	work, stop := context.WithCancel(ctx)
	g, work := errgroup.WithContext(work)
	g.Go(func() error { return ignoreEnd(r.writer.Run(work)) })
	puts := make([]struct {
		n       int
		started bool
	}, callers)
	s, err := timed(work, callers, o.Duration, func(ctx context.Context, caller int) error {
		p := &puts[caller]
		key := fmt.Sprintf("model-7b/layer-00/block-%08x%08x", caller, p.n)
		prepare := r.put
		if p.started = !p.started; !p.started {
			p.n++
			prepare = r.endPut
		}
		change, err := prepare(key)
		if err == nil {
			_, err = r.queue.Submit(ctx, change)
		}
		return err
	})
	s.CommitsPerSecond = float64(r.commits.Load()) / o.Duration.Seconds()
	s.CommitBytes = float64(r.bytes.Load()) / float64(r.commits.Load())
	s.CommitP50 = r.took.ValueAtPercentile(50)
	stop()
	return s, errors.Join(err, g.Wait())
}

// timed lets a number of callers call do repeatedly, for d.
func timed(ctx context.Context, callers int, d time.Duration, do func(ctx context.Context, caller int) error) (Step, error) {
	boot := clock.Boot()
	var done atomic.Int64
	times := make([]*hdrhistogram.Histogram, callers)
	g, ctx := errgroup.WithContext(ctx)
	spent, err := processorTime()
	if err != nil {
		return Step{}, err
	}
	begun := boot()
	for i := range callers {
		times[i] = hdrhistogram.New(1, time.Minute.Microseconds(), 2)
		g.Go(func() error {
			for at := boot(); at-begun < d; {
				if err := do(ctx, i); err != nil {
					return err
				}
				now := boot()
				_ = times[i].RecordValue((now - at).Microseconds())
				at = now
				done.Add(1)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return Step{}, err
	}
	took := boot() - begun
	after, err := processorTime()
	for _, t := range times[1:] {
		times[0].Merge(t)
	}
	n := float64(done.Load())
	return Step{
		PerSecond: n / took.Seconds(), P50: times[0].ValueAtPercentile(50), P99: times[0].ValueAtPercentile(99),
		CPU: float64((after - spent).Microseconds()) / n,
	}, err
}

func processorTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
