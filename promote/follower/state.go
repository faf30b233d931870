package follower

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// State returns the store and the journal's position it stands at. The store
// is nil on a node that has nothing yet.
func (f *Follower) State() (*metadata.Store, journal.Cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store, f.at
}

// Learned returns the head that the store stands at, and when this node learned
// of it, by its clock.
func (f *Follower) Learned() (journal.Head, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at.Head, f.learned
}

// Complete reports whether the store follows the journal without a gap.
func (f *Follower) Complete() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.complete
}

// Status says how a follower stands.
type Status struct {
	At       journal.Cursor
	Complete bool
	Why      journal.Reason // why it is not complete
	Fault    error          // why it still is not, nil if nothing failed
	Loads    map[journal.Reason]int
	LastLoad journal.Reason // empty for none
	// Needs is from where on a snapshot that is being loaded needs the journal; zero for none.
	Needs journal.Cursor
	Loss  Loss // of the journal
	// File names the state file that the state comes from; empty once the journal is found
	// to go on from it.
	File string
	// Unsure says that the journal goes on from the state, but that etcd may have gone
	// back since more of it was acknowledged: the state comes from a file, the journal
	// seemed lost, or etcd was out of reach.
	Unsure bool
	// Apart says that Unsure is set because etcd was out of reach, or because the state
	// comes from a file: other nodes may have been elected meanwhile.
	Apart bool
	// WasLost says that Unsure is set because the journal seemed lost.
	WasLost bool
	// Stalled is what the method of that name returns.
	Stalled error
	// Doubts is how often the journal seemed lost, or etcd was out of reach: the journal may
	// have been founded anew, or gone back, and have looked well again at once.
	Doubts int
}

// Status returns how the follower stands.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{At: f.at, Complete: f.complete, Loads: maps.Clone(f.loads), LastLoad: f.last, Needs: f.needs, Loss: f.loss, File: f.file, WasLost: f.wasLost, Doubts: f.doubts, Apart: f.restored || f.apart, Unsure: f.restored || f.wasLost || f.apart || f.Clock()-f.heard > maxApart}
	s.Stalled = f.stalledLocked()
	if !f.complete {
		s.Why, s.Fault = f.why, f.fault
	}
	return s
}

// Digest returns the digest that the state had at one of the last 1,024
// sequences.
func (f *Follower) Digest(seq metadata.Seq) (metadata.Digest, bool) {
	store, _ := f.State()
	if store == nil {
		return 0, false
	}
	return store.DigestAt(seq)
}

// WaitApplied waits until a sequence is applied.
func (f *Follower) WaitApplied(ctx context.Context, seq metadata.Seq) error {
	for {
		f.mu.Lock()
		at, complete, moved := f.at, f.complete, f.moved
		f.mu.Unlock()
		if complete && at.Head.Seq >= seq {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lose notes that the state does not follow the journal any more.
func (f *Follower) lose(b *journal.BrokenError) {
	f.mu.Lock()
	was := f.complete
	if !was && b.Reason == journal.ReasonLag { // something else is wrong already, and catching up does not mend that
		f.mu.Unlock()
		return
	}
	if f.diverged == nil && f.kept != f.at.Head && (f.wasLost || f.mayDiffer(b)) {
		f.diverged = b // a journal that went back, seen or not, may have gone on without what this node holds
	}
	f.complete, f.why, f.fault = false, b.Reason, b.Err
	if b.Reason == journal.ReasonStart && f.at.Head.Seq == 0 {
		f.store, f.at = nil, journal.Cursor{} // there is nothing in it, and the journal may begin elsewhere
	}
	f.signal()
	f.mu.Unlock()
	if was {
		f.Log.Warn().Err(b.Err).Str("reason", string(b.Reason)).Msg("this node lost the journal and needs a snapshot; until then it cannot take over")
	}
}

// mayDiffer reports whether a state that does not follow the journal may have commits that
// the journal does not have. Of states with another digest or other leases one is kept in
// each term: the cause may be a defect of the program, and come again. Needs mu.
func (f *Follower) mayDiffer(b *journal.BrokenError) bool {
	switch b.Reason {
	case journal.ReasonGap:
		return true
	case journal.ReasonFounded:
		return f.at.Head.Seq > b.Fork || b.Beside && f.complete
	case journal.ReasonDigest, journal.ReasonDifference:
		return f.kept.Term != f.at.Head.Term
	default:
		return b.Beside
	}
}

// regain marks the state as complete again if only its lag had made it incomplete.
func (f *Follower) regain() {
	f.mu.Lock()
	was := f.complete || f.why != journal.ReasonLag
	if !was {
		f.complete, f.fault = true, nil
		f.signal()
	}
	f.mu.Unlock()
	if !was {
		f.Log.Info().Msg("this node has caught up with the journal and can take over again")
	}
}

// note keeps, for people, what keeps the state from being complete.
func (f *Follower) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = err
}

// adopt replaces the store by one that is whole.
func (f *Follower) adopt(store *metadata.Store, at journal.Cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store, f.at, f.learned, f.complete, f.fault, f.file, f.diverged = store, at, f.Clock(), true, nil, "", nil
	f.wasLost, f.restored, f.apart, f.stall = false, false, false, stall{}
	f.signal()
}

// Vouch says that a primary writes the journal that the state belongs to: etcd has not
// gone back.
func (f *Follower) Vouch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.complete && !f.shaken {
		f.wasLost, f.restored, f.apart = false, false, false
	}
}

// maxApart is how long etcd may be out of reach before it may have gone back: less than it
// takes to restore a backup, and more than the time between two checks of the lag.
const maxApart = 2 * lagInterval

// hearLocked notes that etcd has answered. It may have gone back if it was out of reach
// before, or this process was stopped. Needs mu.
func (f *Follower) hearLocked() {
	now := f.Clock()
	if now-f.heard > maxApart {
		f.steady = now
		if !f.apart {
			f.apart = true
			f.doubts++
		}
	}
	f.heard = now
}

// Steady returns since when, by the clock, etcd cannot have gone back unseen: it has been in
// reach since then, and the journal did not seem lost. While etcd is out of reach, Steady
// returns the present time.
func (f *Follower) Steady() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.Clock(); now-f.heard > maxApart {
		return now
	}
	return f.steady
}

// InTouch reports whether etcd has been in reach since a while before a time by the clock: what
// this node learned then had just been written.
func (f *Follower) InTouch(since time.Duration) bool { return f.Steady()+maxApart < since }

// Restore says, before Run, that the state that the follower begins with comes from a
// file: it is not complete before the journal is found to go on from it.
func (f *Follower) Restore(file string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.complete, f.why, f.fault = false, journal.ReasonStart, errors.New("the state from "+file+" was not compared with the journal yet")
	f.file, f.restored, f.shaken = file, true, true
}

// proveLocked notes that the journal goes on from the state.
func (f *Follower) proveLocked() {
	if f.file != "" {
		f.file, f.complete, f.fault, f.diverged = "", true, nil, nil
	}
}
