package cluster

import (
	"context"
	"fmt"
	"time"
)

// pollEvery is short beside all that is waited for.
const pollEvery = 10 * time.Millisecond

// Poll waits until something is so, within a time limit. An error of so ends it.
func Poll(ctx context.Context, limit time.Duration, what string, so func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it is not so after %v that %s", limit, what))
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		switch yes, err := so(ctx); {
		case err != nil && ctx.Err() == nil:
			return err
		case yes:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
