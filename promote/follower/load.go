package follower

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// A loaded snapshot is whole, with the commits that belong to it.
type loaded struct {
	store *metadata.Store
	at    journal.Cursor
}

// errLoaded says that there is a snapshot to go on from.
var errLoaded = errors.New("a snapshot is loaded")

// Pauses between attempts to load a snapshot while the journal is followed. An
// attempt costs a primary no more than an answer if it is busy.
const (
	firstReload = 250 * time.Millisecond
	lastReload  = 5 * time.Second
)

// reload tries to load a snapshot again and again, while the journal is
// followed. It returns nil when the context ends or there is no need for one
// any more.
func (f *Follower) reload(ctx context.Context) *loaded {
	retry := &backoff.ExponentialBackOff{InitialInterval: firstReload, Multiplier: 2, MaxInterval: lastReload}
	for !f.Complete() {
		if clock.Sleep(ctx, journal.Jitter(retry.NextBackOff(), f.Random)) != nil || f.Complete() {
			return nil
		}
		if l := f.tryLoad(ctx); l != nil {
			return l
		}
	}
	return nil
}

// tryLoad loads a snapshot, and notes why if there is none to be had.
func (f *Follower) tryLoad(ctx context.Context) *loaded {
	l, err := f.load(ctx)
	if err != nil {
		f.note(err)
		f.Log.Debug().Err(err).Msg("no snapshot yet")
		return nil
	}
	return l
}

// load gets a snapshot with the commits that belong to it. Meanwhile the journal must be
// kept from where it stands when load begins: see Status.Needs.
func (f *Follower) load(ctx context.Context) (*loaded, error) {
	if err := f.keepDiverged(ctx); err != nil {
		return nil, err
	}
	view, err := f.Reader.Look(ctx)
	if err != nil {
		return nil, err
	}
	f.need(view.Cursor)
	defer f.need(journal.Cursor{})
	loader := metadata.NewLoader(f.Options)
	start, err := f.Snapshot.Fetch(ctx, loader.Add)
	if err != nil {
		return nil, err
	}
	if err := f.mayTake(ctx, start); err != nil {
		return nil, err
	}
	if loader.Start() != start.Head.Seq {
		return nil, fmt.Errorf("the snapshot begins at %d, its sender said %d", loader.Start(), start.Head.Seq)
	}
	t := &tail{follower: f, loader: loader, at: start}
	if loader.Start() < loader.End() {
		if err := t.read(ctx, view.Cluster); err != nil {
			return nil, fmt.Errorf("reading the journal behind the snapshot: %w", err)
		}
	}
	store, err := loader.Finish()
	if err != nil {
		return nil, err
	}
	return &loaded{store, t.at}, nil
}

// need sets the position from which the journal is to be kept for this node; zero ends that.
func (f *Follower) need(at journal.Cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.needs = at
}

// keepDiverged keeps the present state if it has commits that the journal does not have.
func (f *Follower) keepDiverged(ctx context.Context) error {
	f.mu.Lock()
	store, at, diverged := f.store, f.at, f.diverged
	f.mu.Unlock()
	if diverged == nil || f.Config.Diverged == nil {
		return nil
	}
	if err := f.Config.Diverged(ctx, store, at, diverged.Fork); err != nil {
		return fmt.Errorf("keeping what this node has behind the fork at %d: %w", diverged.Fork, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.diverged, f.kept = nil, at.Head
	return nil
}

// wants reports whether a snapshot is better than the present state, which may have become
// complete in the meantime.
func (f *Follower) wants(l *loaded) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.complete || l.at.Head.Seq > f.at.Head.Seq
}

// take replaces the store by a snapshot.
func (f *Follower) take(l *loaded) {
	f.mu.Lock()
	reason := f.why
	f.loads[reason]++
	f.last = reason
	f.mu.Unlock()
	f.adopt(l.store, l.at)
	f.Log.Info().Str("reason", string(reason)).Uint64("sequence", uint64(l.at.Head.Seq)).
		Int64("objects", l.store.Stats().Objects).Msg("loaded a snapshot")
}

// A tail feeds the commits that belong to a snapshot to its loader.
type tail struct {
	follower *Follower
	loader   *metadata.Loader

	mu sync.Mutex // guards at while it is read
	at journal.Cursor
}

var errTailRead = errors.New("the snapshot's commits are read")

// read reads these commits from the etcd with a cluster id. It fails if that etcd goes back
// meanwhile: a watch for a revision that is yet to come reports nothing.
func (t *tail) read(parent context.Context, cluster uint64) error {
	ctx, cancel := context.WithCancelCause(parent)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		cancel(t.follower.repeat(ctx, lagInterval, lagInterval, func(ctx context.Context) error {
			t.mu.Lock()
			at := t.at // before the look: the journal never goes back
			t.mu.Unlock()
			view, err := t.follower.Reader.Look(ctx)
			if err == nil {
				err = cmp.Or(at.Against(view.Cursor, view.Err), wentBack(at, view, cluster))
			}
			return err
		}))
	}()
	err := t.follower.Reader.Read(ctx, t.at, t)
	cancel(nil)
	<-looked
	switch cause := context.Cause(ctx); {
	case errors.Is(err, errTailRead):
		return nil
	case errors.Is(cause, journal.ErrLost), errors.Is(cause, journal.ErrBroken):
		return cause
	}
	return err
}

// Commit applies a commit and ends the reading at the snapshot's end.
func (t *tail) Commit(c *metadata.Commit, at journal.Cursor) error {
	if err := t.loader.Apply(c); err != nil {
		return err
	}
	t.mu.Lock()
	t.at = at
	t.mu.Unlock()
	if c.Seq == t.loader.End() {
		return errTailRead
	}
	return nil
}

// Founded ends the reading: the snapshot is of another journal.
func (t *tail) Founded(journal.Cursor) error {
	return errors.New("the journal was founded anew meanwhile")
}

// Changed passes on that another key of the cluster changed.
func (t *tail) Changed(key string) { t.follower.Changed(key) }
