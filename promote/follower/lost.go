package follower

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
)

const (
	// lookEvery is how often a node that has lost the journal looks for it.
	lookEvery = 100 * time.Millisecond
	// looksLost is how many looks in a row must find the same before it counts.
	looksLost = 2
)

// A Loss says that the journal in etcd is not the one that this node's state comes
// from (docs/failover.md, "etcd has lost the journal").
type Loss struct {
	Err   *journal.LostError // nil for none
	Since time.Duration      // by the clock: when this node saw it first
	Found journal.View       // what it saw last
}

// Lost returns the loss, once two looks have confirmed it.
func (f *Follower) Lost() Loss {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loss
}

// await looks for the journal until etcd holds it again, or holds what was founded
// from it, and returns the cursor from which to read on. The state stays as it is
// meanwhile, whatever etcd holds. Errors: a *journal.BrokenError if the journal went
// on and only a snapshot helps.
func (f *Follower) await(ctx context.Context) (journal.Cursor, error) {
	_, at := f.State()
	since, looks := f.Clock(), 0
	var anchor, fork journal.View // the last view without the journal, and the first of a fork; zero until there is one
	for {
		view, err := f.Reader.Look(ctx)
		if err != nil {
			return at, err
		}
		err = f.against(ctx, at, view)
		var loss *journal.LostError
		switch {
		case errors.As(err, &loss):
			looks++
			anchor = view
			if loss.Forked && fork.Revision > 0 && !view.Same(fork.Cursor) { // a primary commits to the fork
				f.found(view)
				return at, &journal.BrokenError{Reason: journal.ReasonFounded, Err: errors.New(loss.Cause), Fork: min(fork.Cursor.Head.Seq, at.Head.Seq-1)}
			}
			if loss.Forked && fork.Revision == 0 {
				fork = view
			}
			if looks >= looksLost {
				f.setLoss(Loss{loss, since, view})
			}
		case err != nil && !errors.Is(err, journal.ErrBroken): // etcd does not say
			return at, err
		case err == nil && view.Same(at):
			return f.resume(ctx, at, view)
		case anchor.Revision > 0 && anchor.Revision <= view.Revision && anchor.Cluster == view.Cluster:
			f.found(view)
			return at.At(anchor.Revision), nil // the watch says what happened since
		case err != nil:
			f.found(view)
			return at, err
		default:
			return f.resume(ctx, at, view)
		}
		if err := clock.Sleep(ctx, lookEvery); err != nil {
			return at, err
		}
	}
}

// resume goes on from a position that the head is at, or has gone on from.
func (f *Follower) resume(ctx context.Context, at journal.Cursor, view journal.View) (journal.Cursor, error) {
	at, err := f.Reader.Resume(ctx, at, view, f)
	var b *journal.BrokenError
	if err == nil || errors.As(err, &b) {
		f.found(view)
		f.moveTo(at, err == nil)
	}
	return at, err
}

// against is Cursor.Against, but also finds that one of the two histories, the state's and
// the one in etcd, is an earlier ancestor of the other than its parent.
func (f *Follower) against(ctx context.Context, at journal.Cursor, view journal.View) error {
	err := at.Against(view.Cursor, view.Err)
	if view.Err != nil || !errors.Is(err, journal.ErrLost) || at.Head.History.Is(view.Cursor.Head.History) {
		return err
	}
	ancestors, failed := f.Reader.Ancestors(ctx)
	if failed != nil {
		return failed
	}
	for _, a := range ancestors {
		if a.History == at.Head.History {
			return journal.Founded(a.Fork, at)
		}
	}
	if f.Descent == nil {
		return err
	}
	for _, a := range f.Descent(at.Head.History) {
		if head := view.Cursor.Head; a.History == head.History {
			return &journal.LostError{Cause: fmt.Sprintf("etcd's head is of history %s, from which this node's, %s, descends", head.History, at.Head.History)}
		}
	}
	return err
}

// shake notes that the journal seems to be lost: await finds out.
func (f *Follower) shake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.apart = f.apart || f.Clock()-f.heard > maxApart
	f.shaken, f.wasLost, f.steady = true, true, f.Clock()
	f.doubts++
}

func (f *Follower) isShaken() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shaken
}

// setLoss notes that the journal is lost, and logs it once for each cause.
func (f *Follower) setLoss(l Loss) {
	f.mu.Lock()
	before := f.loss.Err
	f.loss = l
	f.mu.Unlock()
	if before == nil || before.Cause != l.Err.Cause {
		f.Log.Error().Str("cause", l.Err.Cause).Msg("the journal is lost: this node keeps its state and follows nothing")
	}
}

// found ends a loss.
func (f *Follower) found(v journal.View) {
	f.mu.Lock()
	was := f.loss.Err
	f.wasLost = f.wasLost || f.cluster != 0 && f.cluster != v.Cluster // a backup that the state fits
	f.loss, f.shaken, f.cluster = Loss{}, false, v.Cluster
	f.mu.Unlock()
	if was != nil {
		f.Log.Info().Msg("etcd holds a journal again that this node's state belongs to")
	}
}

// moveTo notes that the same position stands at another revision of etcd, and whether
// the journal goes on from there.
func (f *Follower) moveTo(at journal.Cursor, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.stall = at, stall{}
	if on {
		f.proveLocked()
		f.signal()
	}
}

// Founded goes on with a journal that was founded anew just where this node stands.
func (f *Follower) Founded(at journal.Cursor) error {
	learned := f.Clock()
	store, _ := f.State()
	if own, ok := store.DigestAt(at.Head.Checked); ok && own != at.Head.Digest {
		return &journal.BrokenError{Reason: journal.ReasonDigest, Err: fmt.Errorf(
			"the journal was founded anew at sequence %d with digest %v, this node has %v", at.Head.Checked, at.Head.Digest, own)}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.learned, f.stall = at, learned, stall{}
	f.proveLocked()
	f.signal()
	return nil
}

// checkJournal looks whether etcd still holds the journal that this node follows: a
// watch of an etcd that lost its data reports nothing.
func (f *Follower) checkJournal(ctx context.Context) (journal.Head, error) {
	_, at := f.State() // before the read: the journal never goes back
	view, err := f.Reader.Look(ctx)
	if err != nil {
		return journal.Head{}, err
	}
	f.mu.Lock()
	cluster := f.cluster
	f.mu.Unlock()
	err, back := at.Against(view.Cursor, view.Err), wentBack(at, view, cluster)
	var b *journal.BrokenError
	switch {
	case errors.As(err, &b) && b.Fork > at.Head.Seq && back == nil:
		return at.Head, nil // the watch shows whether the old journal went on up to the fork
	case err != nil:
		return journal.Head{}, err
	}
	f.mu.Lock()
	f.hearLocked()
	f.cluster = view.Cluster
	f.readLocked(view.Cursor.Head.Seq)
	f.mu.Unlock()
	return view.Cursor.Head, cmp.Or(back, view.Err)
}

// wentBack returns an error if etcd, as viewed after this node had reached a position, has
// not come to that position's revision, or has another cluster id than before (0 for not
// known): then a watch would report nothing.
func wentBack(at journal.Cursor, view journal.View, cluster uint64) error {
	const cause = "etcd is another one, or went back to an older revision"
	switch {
	case view.Revision >= at.Revision && (cluster == 0 || cluster == view.Cluster):
		return nil
	case at.Head.Seq == 0: // nothing is lost
		return &journal.BrokenError{Reason: journal.ReasonStart, Err: errors.New(cause)}
	}
	return &journal.LostError{Cause: cause}
}

// mayTake refuses a snapshot of a journal that etcd does not hold. It refuses every snapshot
// while etcd holds another journal than that of the present state, except a fork of it.
func (f *Follower) mayTake(ctx context.Context, start journal.Cursor) error {
	view, err := f.Reader.Look(ctx)
	if err != nil {
		return err
	}
	if err := start.Against(view.Cursor, view.Err); err != nil {
		return fmt.Errorf("the snapshot is not of the journal in etcd: %w", err)
	}
	store, at := f.State()
	if store == nil {
		return nil
	}
	var loss *journal.LostError
	if err := f.against(ctx, at, view); errors.As(err, &loss) && !loss.Forked {
		return err
	}
	return nil
}
