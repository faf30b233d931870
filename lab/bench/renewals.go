// Package bench measures this program's own mechanisms and the obvious alternatives,
// in one run on one machine.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// Options of a run.
type Options struct {
	Objects  int           // how many objects have leases, which are renewed in turn
	Duration time.Duration // of each measurement
	Rate     int           // renewals a second of the steady measurement; 15,000 by default
	Progress func(what string)
}

// Packed is the result for the scanner: renewals as this program journals them,
// committed, and applied by a standby.
type Packed struct {
	RenewalsPerSecond   float64 `json:"renewals_per_s"`
	EtcdWritesPerSecond float64 `json:"etcd_writes_per_s"` // of renewals, leases of their records included
	BytesPerRenewal     float64 `json:"bytes_per_renewal"` // in etcd
	AppliedP50          float64 `json:"applied_p50_ms"`    // from the read that renewed to the standby's state
	AppliedP99          float64 `json:"applied_p99_ms"`
}

// Rate is the result for an alternative.
type Rate struct {
	RenewalsPerSecond float64 `json:"renewals_per_s"`
}

// Renewals is the outcome of a run.
type Renewals struct {
	Packed     Packed  `json:"packed"`  // as fast as it can
	Steady     Packed  `json:"at_15k"`  // at the given rate
	Literal    Rate    `json:"literal"` // one lease and one put for each renewal
	Txn128     Rate    `json:"txn128"`  // transactions of 128 puts under one lease
	Ratio      float64 `json:"packed_over_literal"`
	Objects    int     `json:"objects"`
	SteadyRate int     `json:"steady_rate"`
}

// RunRenewals measures how fast lease renewals reach a standby.
func RunRenewals(ctx context.Context, o Options) (out Renewals, err error) {
	err = withEtcd(ctx, "", func(_ string, etcd *etcdserver.Server) error {
		client, err := etcdclient.New(etcd.Endpoints())
		if err != nil {
			return err
		}
		defer func() { _ = client.Close() }()
		return out.measure(ctx, client, o)
	})
	return out, err
}

// withEtcd runs an etcd in this process, as in a master, and then run. The data are in a new
// folder in below, or in the system's temporary folder if below is empty; withEtcd deletes it.
func withEtcd(ctx context.Context, below string, run func(dir string, etcd *etcdserver.Server) error) error {
	dir, err := os.MkdirTemp(below, "understudy-bench-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	etcd, err := etcdserver.Start(ctx, etcdserver.Settings{DataDir: filepath.Join(dir, "etcd"), QuotaBytes: 8 << 30, Logger: zerolog.Nop()})
	if err != nil {
		return err
	}
	return errors.Join(run(dir, etcd), etcd.Close())
}

func (out *Renewals) measure(ctx context.Context, client *clientv3.Client, o Options) error {
	out.Objects, out.SteadyRate = o.Objects, o.Rate
	for _, step := range []struct {
		what string
		run  func() error
	}{
		{"one lease and one put per renewal", func() (err error) { out.Literal, err = literal(ctx, client, o.Duration); return err }},
		{"transactions of 128 puts", func() (err error) { out.Txn128, err = txn128(ctx, client, o.Duration); return err }},
		{fmt.Sprintf("packed, %d renewals a second", o.Rate), func() (err error) { out.Steady, err = packed(ctx, client, "steady", o, o.Rate); return err }},
		{"packed, as fast as it can", func() (err error) { out.Packed, err = packed(ctx, client, "fast", o, 0); return err }},
	} {
		if o.Progress != nil {
			o.Progress(step.what)
		}
		if err := step.run(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	out.Ratio = out.Packed.RenewalsPerSecond / out.Literal.RenewalsPerSecond
	return nil
}

// literal grants a lease and puts a key under it for each renewal, with 64 callers.
func literal(ctx context.Context, client *clientv3.Client, d time.Duration) (Rate, error) {
	var next atomic.Int64
	s, err := timed(ctx, 64, d, func(ctx context.Context, _ int) error {
		lease, err := client.Grant(ctx, 60)
		if err != nil {
			return err
		}
		n := next.Add(1)
		_, err = client.Put(ctx, fmt.Sprintf("/literal/%d", n%100_000), renewalJSON(n), clientv3.WithLease(lease.ID))
		return err
	})
	return Rate{s.PerSecond}, err
}

// txn128 renews in transactions of 128 puts, etcd's default limit, under one lease,
// with 8 callers.
func txn128(ctx context.Context, client *clientv3.Client, d time.Duration) (Rate, error) {
	lease, err := client.Grant(ctx, 600)
	if err != nil {
		return Rate{}, err
	}
	const puts = 128
	var next atomic.Int64
	s, err := timed(ctx, 8, d, func(ctx context.Context, _ int) error {
		ops := make([]clientv3.Op, puts)
		first := next.Add(puts)
		for i := range ops {
			n := first + int64(i)
			ops[i] = clientv3.OpPut(fmt.Sprintf("/txn128/%d", n%100_000), renewalJSON(n), clientv3.WithLease(lease.ID))
		}
		_, err := client.Txn(ctx).Then(ops...).Commit()
		return err
	})
	return Rate{puts * s.PerSecond}, err
}

func renewalJSON(n int64) string {
	return fmt.Sprintf(`{"key":"model/layer/block-%016x","lease_timeout_ms":%d,"soft_pin_timeout_ms":null,"timestamp_ms":%d}`, n, 1_700_000_000_000+n, 1_700_000_000_000+n)
}

// A rig is a primary with its journal in etcd, and a standby that follows.
type rig struct {
	keys     []string
	clock    clock.Clock
	primary  *metadata.Store
	leases   *leasesync.Leases
	queue    *journal.Queue
	writer   *journal.Writer
	reader   *journal.Reader
	start    journal.Cursor // of the journal
	now      func() metadata.Time
	standby  *metadata.Store
	counters *leasesync.Counters
	bytes    atomic.Int64            // of records with renewals
	commits  atomic.Int64            // commits with renewals
	took     *hdrhistogram.Histogram // how long these commits took, µs; only the writer uses it

	mu      sync.Mutex
	marked  map[metadata.ObjectID]time.Duration // sampled objects: when they were read
	applied *hdrhistogram.Histogram             // ms
}

// packed measures the scanner: reads renew leases for a while, at a rate or as fast
// as possible.
func packed(ctx context.Context, client *clientv3.Client, name string, o Options, perSecond int) (Packed, error) {
	r, err := newRig(ctx, client, name, o.Objects)
	if err != nil {
		return Packed{}, err
	}
	work, stop := context.WithCancel(ctx)
	defer stop()
	g, work := errgroup.WithContext(work)
	g.Go(func() error { return ignoreEnd(r.writer.Run(work)) })
	g.Go(func() error { return ignoreEnd(r.reader.Read(work, r.start, r)) })
	r.leases = leasesync.New(leasesync.Leases{
		Store: r.primary, Journal: r.queue, Interval: time.Second, CriticalDelay: 100 * time.Millisecond, Counters: r.counters, Log: zerolog.Nop(),
	})

	var begun time.Duration
	g.Go(func() error {
		defer stop()
		if err := r.caughtUp(work); err != nil { // until the standby has the objects
			return err
		}
		begun = r.clock()
		if perSecond > 0 {
			return r.steady(work, o.Duration, perSecond)
		}
		return r.flatOut(work, o.Duration)
	})
	err = g.Wait()
	took := (r.clock() - begun).Seconds()
	n := float64(r.counters.Committed.Load())
	return Packed{
		RenewalsPerSecond:   n / took,
		EtcdWritesPerSecond: (float64(r.commits.Load()) + took) / took, // and one lease a second for their records
		BytesPerRenewal:     float64(r.bytes.Load()) / n,
		AppliedP50:          float64(r.applied.ValueAtPercentile(50)) / 1000,
		AppliedP99:          float64(r.applied.ValueAtPercentile(99)) / 1000,
	}, err
}

func ignoreEnd(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// steady reads at a rate while the scanner runs as it does in a master.
func (r *rig) steady(ctx context.Context, d time.Duration, perSecond int) error {
	scanning, stop := context.WithCancel(ctx)
	defer stop()
	scans := make(chan error, 1)
	go func() { scans <- r.leases.Run(scanning) }()
	limiter := rate.NewLimiter(rate.Limit(perSecond), perSecond/100)
	for i, begun := 0, r.clock(); r.clock()-begun < d; i++ {
		if err := limiter.Wait(ctx); err != nil {
			return err
		}
		r.read(i)
	}
	stop()
	if err := ignoreEnd(<-scans); err != nil {
		return err
	}
	if err := r.leases.Scan(ctx); err != nil { // the renewals since the last scan
		return err
	}
	return r.caughtUp(ctx)
}

// flatOut scans as fast as possible, while reads renew all leases for the next scan.
func (r *rig) flatOut(ctx context.Context, d time.Duration) error {
	g, working := errgroup.WithContext(ctx)
	rounds := make(chan struct{})
	g.Go(func() error {
		defer close(rounds)
		for begun := r.clock(); r.clock()-begun < d; {
			for i := range r.keys {
				r.read(i)
			}
			select {
			case rounds <- struct{}{}:
			case <-working.Done():
				return working.Err()
			}
		}
		return nil
	})
	g.Go(func() error {
		for range rounds {
			if err := r.leases.Scan(working); err != nil {
				return err
			}
		}
		return r.leases.Scan(working) // the renewals of the last round
	})
	if err := g.Wait(); err != nil {
		return err
	}
	return r.caughtUp(ctx)
}

// caughtUp waits until the standby has everything, and compares digests.
func (r *rig) caughtUp(ctx context.Context) error {
	want := r.primary.Position()
	for r.standby.Position().Seq < want.Seq {
		if err := clock.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	if got := r.standby.Position(); got.Seq == want.Seq && got.Digest != want.Digest {
		return fmt.Errorf("the standby's state differs from the primary's at %d", want.Seq)
	}
	return nil
}

// sampled says that one read in so many is timed until the standby has applied it.
const sampled = 64

// read renews the lease of an object.
func (r *rig) read(i int) {
	list, _, err := r.leases.GetReplicaList(metadata.DefaultTenant, r.keys[i%len(r.keys)], r.now())
	if err != nil || i%sampled != 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, waits := r.marked[list.ID]; !waits {
		r.marked[list.ID] = r.clock()
	}
}

// Commit applies a commit on the standby.
func (r *rig) Commit(c *metadata.Commit, _ journal.Cursor) error {
	if _, err := r.standby.Apply(c, nil); err != nil {
		return err
	}
	now := r.clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, change := range c.Changes {
		batch, ok := change.(*leasesync.Batch)
		if !ok {
			continue
		}
		for _, renewal := range batch.Renewals {
			if at, waits := r.marked[renewal.ID]; waits {
				_ = r.applied.RecordValue((now - at).Microseconds())
				delete(r.marked, renewal.ID)
			}
		}
	}
	return nil
}

// Changed does nothing: the benchmark ignores other keys.
func (r *rig) Changed(string) {}

// Founded is not called: nobody founds the journal anew.
func (r *rig) Founded(journal.Cursor) error { return nil }

// Committed counts commits; those of a running bench hold renewals or nothing.
func (r *rig) Committed(_ context.Context, changes, bytes int, log, _ time.Duration) {
	if changes > 0 {
		_ = r.took.RecordValue(log.Microseconds())
		r.commits.Add(1)
		r.bytes.Add(int64(bytes))
	}
}

// Refused reports nothing: the scanner gets the error.
func (r *rig) Refused(int, error) {}

func keys(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("model-7b/layer-00/block-%016x", i)
	}
	return list
}

// newRig makes a primary of term 1 with objects, and a standby that has nothing yet.
func newRig(ctx context.Context, client *clientv3.Client, name string, objects int) (*rig, error) {
	boot := clock.Boot()
	layout := journal.NewLayout("/bench", name)
	election := journal.NewElection()
	elected, err := client.Put(ctx, layout.Leader(), election.LeaderPrefix()+"}")
	if err != nil {
		return nil, err
	}
	params := metadata.Params{LeaseTTL: 10 * time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}
	r := &rig{
		keys: keys(objects), clock: boot, now: metadata.NewClock(boot, 1),
		primary: metadata.New(metadata.Options{}), standby: metadata.New(metadata.Options{}),
		reader: &journal.Reader{Client: client, Layout: layout, Codec: service.Codec()}, start: journal.Cursor{Revision: elected.Header.Revision},
		counters: new(leasesync.Counters), marked: make(map[metadata.ObjectID]time.Duration),
		applied: hdrhistogram.New(1, 600_000_000, 3), took: hdrhistogram.New(1, 600_000_000, 3),
	}
	r.queue = journal.NewQueue(r.primary, 64<<20)
	r.primary.StartIDs(1)
	r.writer = journal.NewWriter(journal.WriterConfig{
		Store: r.primary, Queue: r.queue, Log: journal.NewEtcdLog(client, layout, election, journal.Cursor{}, time.Minute, boot),
		Term: 1, Hold: params.HoldTime(), Now: r.now, Elapsed: boot, Observer: r,
	})
	if err := r.writer.Commit(ctx, &metadata.TermStart{Term: 1, Params: params}); err != nil {
		return nil, err
	}
	if err := r.fill(ctx); err != nil {
		return nil, err
	}
	r.commits.Store(0)
	r.bytes.Store(0)
	r.took.Reset()
	return r, nil
}

func (r *rig) fill(ctx context.Context) error {
	mount, err := r.primary.PrepareMount(segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 40, Size: 1 << 40, Endpoint: "a:1"})
	if err != nil {
		return err
	}
	if err := r.writer.Commit(ctx, mount); err != nil {
		return err
	}
	for keys := range slices.Chunk(r.keys, 1000) {
		for _, prepare := range []func(key string) (metadata.Change, error){r.put, r.endPut} {
			var changes []metadata.Change
			for _, key := range keys {
				change, err := prepare(key)
				if err != nil {
					return err
				}
				changes = append(changes, change)
			}
			if err := r.writer.Commit(ctx, changes...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *rig) put(key string) (metadata.Change, error) {
	e, _, _, err := r.primary.PreparePutStart(&metadata.Put{Tenant: metadata.DefaultTenant, Key: key, Size: 4096, Replicas: 1}, r.now())
	return e, err
}

func (r *rig) endPut(key string) (metadata.Change, error) {
	e, _, err := r.primary.PreparePutEnd(metadata.PutRef{Tenant: metadata.DefaultTenant, Key: key, Selector: metadata.SelectMemory}, nil)
	return e, err
}
