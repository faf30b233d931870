package follower

import "context"

// CheckLag is checkLag, for tests.
func (f *Follower) CheckLag(ctx context.Context) error { return f.checkLag(ctx) }
