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

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
)

// A Snapshot is a source of snapshots.
type Snapshot interface {
	// Fetch streams the primary's snapshot: add receives each part in order. It
	// returns the journal's position at which the first part stood.
	Fetch(ctx context.Context, add func(part []byte) error) (journal.Cursor, error)
}

// Config configures a Follower.
type Config struct {
	Reader   *journal.Reader
	Snapshot Snapshot
	Options  metadata.Options
	Counters *leasesync.Counters
	Log      zerolog.Logger
	Clock    clock.Clock
	// Changed is called when a key of the cluster other than the journal's
	// changed. It must not block.
	Changed func(key string)
	// Diverged keeps a state before a snapshot replaces it, if the state has commits behind
	// a fork that the journal does not have; nil keeps none.
	Diverged func(ctx context.Context, store *metadata.Store, at journal.Cursor, fork metadata.Seq) error
	// Descent returns what a history descends from, as far as this node remembers; nil
	// for nothing.
	Descent func(journal.History) []journal.Ancestor
	// Cluster is the id of the etcd in which the journal stood last; 0 if that is not known.
	Cluster uint64
	// WentBack says that the journal seemed lost before this process began, and that no
	// primary was seen to commit since. Status.WasLost begins with it.
	WentBack bool
	// FullSyncInterval is how often the leases in etcd are compared with the
	// state.
	FullSyncInterval time.Duration
	// MaxLagBytes is how far behind in bytes of records a follower may be before
	// it takes a snapshot instead.
	MaxLagBytes int64
	// StallAfter is how long the watch may bring nothing, though etcd's head has moved on,
	// before Stalled says so; 0 for 20 s.
	StallAfter time.Duration
	// Random spreads retries, as in journal.Jitter; may be nil.
	Random func() float64
}

// A Follower keeps a standby's state. Run is called once; everything else may be called
// from any goroutine.
type Follower struct {
	Config

	mu       sync.Mutex
	store    *metadata.Store // never replaced by one that is not whole
	at       journal.Cursor  // of store
	learned  time.Duration   // by the clock: when this node learned of at
	complete bool            // store follows the journal without a gap
	file     string          // that store comes from; empty once the journal is found to go on from it
	fault    error           // why store is still not complete, if that is known
	why      journal.Reason  // why store is not complete
	loads    map[journal.Reason]int
	last     journal.Reason
	doubt    doubt
	synced   synced
	diverged *journal.BrokenError // why the state has commits that the journal has not, until they are kept
	loss     Loss                 // of the journal, once it is confirmed
	wasLost  bool                 // the journal seemed lost once for this state
	apart    bool                 // etcd was out of reach since a primary was seen to commit
	heard    time.Duration        // by the clock: when etcd answered last
	steady   time.Duration        // by the clock: see Steady
	restored bool                 // store comes from a file, and nothing but the journal speaks for it
	kept     journal.Head         // of the state that was kept last
	shaken   bool                 // the journal seems to be lost
	doubts   int                  // see Status.Doubts
	cluster  uint64               // etcd's id as last seen, 0 for never
	stall    stall                // of the watch
	needs    journal.Cursor       // from where a snapshot that is being loaded needs the journal; zero for none
	moved    chan struct{}        // closed and replaced when at or complete changes
}

// New returns a follower that goes on from a store at a position, for example that of a
// demoted primary; nil for a node without a state.
func New(c Config, store *metadata.Store, at journal.Cursor) *Follower {
	f := &Follower{
		Config: c, store: store, at: at, learned: c.Clock(), heard: c.Clock(), steady: c.Clock(), why: journal.ReasonStart, cluster: c.Cluster, wasLost: c.WentBack,
		loads: make(map[journal.Reason]int), moved: make(chan struct{}),
	}
	f.complete = store != nil
	return f
}

// Again returns a follower that goes on from one that has stopped: with its state, complete
// or not, and with what it knew of the journal.
func Again(c Config, before *Follower) *Follower {
	before.mu.Lock()
	defer before.mu.Unlock()
	f := New(c, before.store, before.at)
	f.learned, f.heard, f.steady = before.learned, before.heard, before.steady
	f.complete, f.why, f.fault, f.file = before.complete, before.why, before.fault, before.file
	f.diverged, f.kept, f.stall = before.diverged, before.kept, before.stall
	f.wasLost, f.apart, f.restored, f.shaken = before.wasLost, before.apart, before.restored, before.shaken
	return f
}

// Run follows the journal until the context ends. Where the journal cannot be
// followed it loads a snapshot. While it gets none it keeps trying both: a journal that was
// lost may come back by itself.
func (f *Follower) Run(ctx context.Context) error {
	retry := &backoff.ExponentialBackOff{InitialInterval: 20 * time.Millisecond, Multiplier: 2, MaxInterval: time.Second}
	for {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil { // there was a snapshot
			retry.Reset()
			continue
		}
		var b *journal.BrokenError
		if errors.Is(err, journal.ErrLost) {
			f.shake()
			continue
		}
		if errors.As(err, &b) {
			f.lose(b)
		} else {
			f.note(err)
			f.Log.Debug().Err(err).Msg("following the journal failed, it will be tried again")
		}
		if f.Complete() {
			retry.Reset()
		} else if l := f.tryLoad(ctx); l != nil {
			f.take(l)
			retry.Reset()
			continue
		}
		if err := clock.Sleep(ctx, journal.Jitter(retry.NextBackOff(), f.Random)); err != nil {
			return err
		}
	}
}

// follow reads the journal from where the store stands. It returns nil, to be
// called again, when it has got a snapshot.
func (f *Follower) follow(parent context.Context) error {
	store, at := f.State()
	if store == nil {
		if err := f.begin(parent); err != nil {
			return err
		}
		_, at = f.State()
	} else if f.isShaken() {
		var err error
		if at, err = f.await(parent); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var snapshot *loaded
	checks := make(chan struct{})
	go func() {
		defer close(checks)
		var err error
		if snapshot, err = f.check(ctx); err != nil || snapshot != nil {
			cancel(err)
		}
	}()
	reader := *f.Reader
	reader.Ended = f.watchEnded
	err := reader.Read(ctx, at, f)
	cancel(nil)
	<-checks
	// Only now is nobody applying commits to the store.
	if snapshot != nil && parent.Err() == nil {
		if f.wants(snapshot) {
			f.take(snapshot)
		}
		return nil
	}
	if cause := context.Cause(ctx); errors.Is(cause, journal.ErrBroken) || errors.Is(cause, journal.ErrLost) {
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
func (f *Follower) Commit(c *metadata.Commit, at journal.Cursor) error {
	learned := f.Clock()
	store, _ := f.State()
	if own, ok := store.DigestAt(at.Head.Checked); ok && own != at.Head.Digest {
		return &journal.BrokenError{Reason: journal.ReasonDigest, Err: fmt.Errorf(
			"at sequence %d this node has digest %v, the primary %v", at.Head.Checked, own, at.Head.Digest)}
	}
	if _, err := store.Apply(c, nil); err != nil {
		b := &journal.BrokenError{Reason: journal.ReasonCorrupt, Err: err}
		f.lose(b) // at once: the state has half of the commit, so nobody may save it or lead with it
		return b
	}
	f.Counters.Applied.Add(renewals(c))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hearLocked()
	f.at, f.learned, f.stall = at, learned, stall{}
	f.proveLocked()
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

// check compares the leases in etcd with the state, at first and then once per
// interval, watches the lag, and loads a snapshot if the state is not
// complete. It returns the snapshot once it has one, or a journal.BrokenError
// if a snapshot must mend something.
func (f *Follower) check(ctx context.Context) (snapshot *loaded, err error) {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.repeat(ctx, 0, f.FullSyncInterval, f.fullSync) })
	g.Go(func() error { return f.repeat(ctx, lagInterval, lagInterval, f.checkLag) })
	g.Go(func() error {
		if snapshot = f.reload(ctx); snapshot != nil {
			return errLoaded // ends the others
		}
		return nil
	})
	if err := g.Wait(); !errors.Is(err, errLoaded) {
		return nil, err
	}
	return snapshot, nil
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
		case errors.Is(err, journal.ErrBroken), errors.Is(err, journal.ErrLost):
			return err
		case err != nil && ctx.Err() == nil:
			f.Log.Debug().Err(err).Msg("a check of the state failed, it will be tried again")
		}
		due.Reset(interval)
	}
}

func (f *Follower) fullSync(ctx context.Context) error {
	store, _ := f.State()
	if f.synced.store != store {
		f.synced = synced{store: store}
	}
	through := f.synced.through
	records := func(ctx context.Context, to metadata.Seq, visit func(metadata.Term, metadata.Seq, []metadata.Change) error) error {
		through = to
		return f.Reader.Records(ctx, metadata.LeaseRenewals, f.synced.through+1, to, func(of journal.Stamp, changes []metadata.Change) error {
			return visit(of.Term, of.Seq, changes)
		})
	}
	missing, first, err := leasesync.FullSync(ctx, store, records, f.Counters)
	if err != nil {
		return err
	}
	now := f.Clock()
	switch {
	case missing == 0:
		f.doubt, f.synced.through = doubt{}, through
		return nil
	case now < f.doubt.until:
		f.Log.Error().Int("renewals", missing).Uint64("record", uint64(first)).
			Msg("a record of lease renewals in etcd differs from this node's state, also after a snapshot: the record is wrong, this node goes on without it")
		return nil
	}
	f.doubt.wait = min(max(2*f.doubt.wait, firstDoubt), lastDoubt)
	f.doubt.until = now + f.doubt.wait
	return &journal.BrokenError{Reason: journal.ReasonDifference, Err: fmt.Errorf(
		"%d lease renewals in etcd do not show in this node's state, the first of them in the record of sequence %d", missing, first)}
}

// synced says up to which sequence a store was found to have all renewals. It loses none of
// them later, so their records need not be compared again. Used by check only.
type synced struct {
	store   *metadata.Store
	through metadata.Seq
}

// doubt limits how often a difference has a snapshot loaded: if it is there again soon
// after a snapshot, the record is wrong. Used by check only.
type doubt struct {
	wait  time.Duration
	until time.Duration // by the clock: no snapshot before
}

const (
	firstDoubt = 5 * time.Second
	lastDoubt  = time.Minute
)

// checkLag fails if the state is too far behind, which makes it incomplete, and marks one
// that has caught up as complete again: it was never wrong.
func (f *Follower) checkLag(ctx context.Context) error {
	head, err := f.checkJournal(ctx)
	if err != nil {
		return err
	}
	_, at := f.State()
	lag := head.Bytes - at.Head.Bytes
	switch {
	case f.MaxLagBytes <= 0, at.Head.Bytes == 0:
		// The position of an older primary's snapshot lacks the bytes; the first commit
		// behind it has them.
	case !f.Complete():
		if lag <= f.MaxLagBytes/2 { // half the limit, so that the state does not flap
			f.regain()
		}
	case lag > f.MaxLagBytes:
		return &journal.BrokenError{Reason: journal.ReasonLag, Err: fmt.Errorf("%d bytes of records behind, at most %d are waited for", lag, f.MaxLagBytes)}
	}
	return nil
}

// signal needs mu.
func (f *Follower) signal() {
	close(f.moved)
	f.moved = make(chan struct{})
}
