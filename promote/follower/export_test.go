package follower

import (
	"context"

	"github.com/understudy-store/understudy/journal"
)

// CheckLag is checkLag, for tests.
func (f *Follower) CheckLag(ctx context.Context) error { return f.checkLag(ctx) }

// Lose is lose, for tests.
func (f *Follower) Lose(b *journal.BrokenError) { f.lose(b) }

// KeepDiverged is keepDiverged, for tests.
func (f *Follower) KeepDiverged(ctx context.Context) error { return f.keepDiverged(ctx) }
