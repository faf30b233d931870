// Package follower keeps a standby's state: it loads a snapshot when it must,
// follows the journal from there, and says whether the state is complete, so
// that this node may take over.
//
// It keeps what it has until a new state is whole, and never skips a commit.
package follower

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/internal/safeguard"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
)

// A Snapshot is where a follower gets one from.
type Snapshot interface {
	// Fetch streams the primary's snapshot: add receives each part in order. It
	// returns the journal's position at which the first part stood.
	Fetch(ctx context.Context, add func(part []byte) error) (journal.Position, error)
}

// Config is what a Follower works with.
type Config struct {
	Reader   *journal.Reader
	Snapshot Snapshot
	Options  metadata.Options
	Counters *leasesync.Counters
	Log      zerolog.Logger
	// Changed is told that a key of the cluster other than the journal's
	// changed. It must not block.
	Changed func(key string)
	// FullSyncInterval is how often the leases in etcd are compared with the
	// state.
	FullSyncInterval time.Duration
	// MaxLagBytes is how far behind in bytes of records a follower may be before
	// it takes a snapshot instead.
	MaxLagBytes int64
	// Random spreads retries, as in journal.Jitter; may be nil.
	Random func() float64
}

// A Follower follows. Run is called once; everything else may be called from
// any goroutine.
type Follower struct {
	Config

	mu       sync.Mutex
	store    *metadata.Store  // never replaced by one that is not whole
	at       journal.Position // of store
	complete bool             // store follows the journal without a gap
	fault    error            // why it is still not complete, if that is known
	why      journal.Reason   // it is not complete
	loads    map[journal.Reason]int
	last     journal.Reason
	moved    chan struct{} // closed and replaced when at or complete changes
}

// New returns a follower that goes on from a store at a position: of a demoted
// primary, or nil for a node that begins.
func New(c Config, store *metadata.Store, at journal.Position) *Follower {
	f := &Follower{
		Config: c, store: store, at: at, why: journal.ReasonStart,
		loads: make(map[journal.Reason]int), moved: make(chan struct{}),
	}
	f.complete = store != nil
	return f
}

// Run follows the journal until the context ends. Where the journal cannot be
// followed it loads a snapshot; while there is none to be had it tries again.
func (f *Follower) Run(ctx context.Context) error {
	retry := &backoff.ExponentialBackOff{InitialInterval: 20 * time.Millisecond, Multiplier: 2, MaxInterval: time.Second}
	for {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var b *journal.BrokenError
		if errors.As(err, &b) {
			f.lose(b)
		} else if err != nil {
			f.note(err)
			f.Log.Debug().Err(err).Msg("following the journal failed, it will be tried again")
		}
		if f.Complete() {
			retry.Reset()
		} else if err := f.load(ctx); err == nil {
			retry.Reset()
			continue
		} else {
			f.note(err)
			f.Log.Debug().Err(err).Msg("no snapshot yet")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(journal.Jitter(retry.NextBackOff(), f.Random)):
		}
	}
}

// follow reads the journal from where the store stands.
func (f *Follower) follow(ctx context.Context) error {
	store, at := f.State()
	if store == nil {
		if err := f.begin(ctx); err != nil {
			return err
		}
		_, at = f.State()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	checks := make(chan struct{})
	go func() {
		defer close(checks)
		if err := f.check(ctx); err != nil {
			cancel(err)
		}
	}()
	err := f.Reader.Read(ctx, at, f)
	cancel(nil)
	<-checks
	if cause := context.Cause(ctx); errors.Is(cause, journal.ErrBroken) {
		return cause
	}
	return err
}

// begin starts from nothing, where there is no journal yet.
func (f *Follower) begin(ctx context.Context) error {
	at, err := f.Reader.Start(ctx)
	if err != nil {
		return err
	}
	f.adopt(metadata.New(f.Options), at)
	return nil
}

// Commit applies the next commit, after it has compared the digest that the
// head carries with its own of that sequence.
func (f *Follower) Commit(c *metadata.Commit, at journal.Position) error {
	store, _ := f.State()
	if own, ok := store.DigestAt(at.Head.Checked); ok && own != at.Head.Digest && !safeguard.Off(safeguard.HeadContinuity) {
		return &journal.BrokenError{Reason: journal.ReasonDigest, Err: fmt.Errorf(
			"at sequence %d this node has digest %v, the primary %v", at.Head.Checked, own, at.Head.Digest)}
	}
	if _, err := store.Apply(c, nil); err != nil {
		return &journal.BrokenError{Reason: journal.ReasonCorrupt, Err: err}
	}
	f.Counters.Applied.Add(renewals(c))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = at
	f.signal()
	return nil
}

// Changed passes on that another key of the cluster changed.
func (f *Follower) Changed(key string) { f.Config.Changed(key) }

func renewals(c *metadata.Commit) (n int64) {
	for _, change := range c.Changes {
		if b, ok := change.(*leasesync.Batch); ok {
			n += int64(len(b.Renewals))
		}
	}
	return n
}

// load replaces the store by a snapshot with the commits that follow it.
func (f *Follower) load(ctx context.Context) error {
	reason := f.reason()
	loader := metadata.NewLoader(f.Options)
	start, err := f.Snapshot.Fetch(ctx, loader.Add)
	if err != nil {
		return fmt.Errorf("loading a snapshot: %w", err)
	}
	if loader.Start() != start.Head.Seq {
		return fmt.Errorf("the snapshot begins at %d, its sender said %d", loader.Start(), start.Head.Seq)
	}
	t := &tail{follower: f, loader: loader, at: start}
	if loader.Start() < loader.End() {
		if err := f.Reader.Read(ctx, start, t); !errors.Is(err, errTailRead) {
			return fmt.Errorf("reading the journal behind the snapshot: %w", err)
		}
	}
	store, err := loader.Finish()
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.loads[reason]++
	f.last = reason
	f.mu.Unlock()
	f.adopt(store, t.at)
	f.Log.Info().Str("reason", string(reason)).Uint64("sequence", uint64(loader.End())).
		Int64("objects", store.Stats().Objects).Msg("loaded a snapshot")
	return nil
}

// A tail feeds the commits that belong to a snapshot to its loader.
type tail struct {
	follower *Follower
	loader   *metadata.Loader
	at       journal.Position
}

var errTailRead = errors.New("the snapshot's commits are read")

// Commit applies a commit and ends the reading at the snapshot's end.
func (t *tail) Commit(c *metadata.Commit, at journal.Position) error {
	if err := t.loader.Apply(c); err != nil {
		return err
	}
	t.at = at
	if c.Seq == t.loader.End() {
		return errTailRead
	}
	return nil
}

// Changed passes on that another key of the cluster changed.
func (t *tail) Changed(key string) { t.follower.Changed(key) }

// check compares the leases in etcd with the state, after each reconnect and
// once per interval, and watches the lag. It returns a journal.BrokenError if a
// snapshot must mend something.
func (f *Follower) check(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.repeat(ctx, 0, f.FullSyncInterval, f.fullSync) })
	g.Go(func() error { return f.repeat(ctx, lagInterval, lagInterval, f.checkLag) })
	return g.Wait()
}

// lagInterval is how often a follower looks how far behind it is.
const lagInterval = time.Second

// repeat makes a check, first and then again and again, until the context ends
// or the check finds the journal broken.
func (f *Follower) repeat(ctx context.Context, first, interval time.Duration, check func(context.Context) error) error {
	due := time.NewTimer(first)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-due.C:
		}
		switch err := check(ctx); {
		case errors.Is(err, journal.ErrBroken):
			return err
		case err != nil && ctx.Err() == nil:
			f.Log.Debug().Err(err).Msg("a check of the state failed, it will be tried again")
		}
		due.Reset(interval)
	}
}

func (f *Follower) fullSync(ctx context.Context) error {
	store, _ := f.State()
	records := func(ctx context.Context, through metadata.Seq, visit func(metadata.Term, []metadata.Change) error) error {
		return f.Reader.Records(ctx, metadata.LeaseRenewals, 0, through, func(of journal.Stamp, changes []metadata.Change) error {
			return visit(of.Term, changes)
		})
	}
	missing, err := leasesync.FullSync(ctx, store, records, f.Counters)
	if err != nil || missing == 0 {
		return err
	}
	return &journal.BrokenError{Reason: journal.ReasonDifference, Err: fmt.Errorf("%d lease renewals in etcd do not show in this node's state", missing)}
}

func (f *Follower) checkLag(ctx context.Context) error {
	head, err := f.Reader.Head(ctx)
	if err != nil {
		return err
	}
	_, at := f.State()
	if lag := head.Head.Bytes - at.Head.Bytes; f.MaxLagBytes > 0 && lag > f.MaxLagBytes {
		return &journal.BrokenError{Reason: journal.ReasonLag, Err: fmt.Errorf("%d bytes of records behind, at most %d are waited for", lag, f.MaxLagBytes)}
	}
	return nil
}
