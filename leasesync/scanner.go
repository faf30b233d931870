package leasesync

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

// A Journal commits changes.
type Journal interface {
	Submit(ctx context.Context, changes ...metadata.Change) ([]error, error)
}

// roundLimit bounds the renewals that are packed at once: three batches
// to a submission.
const roundLimit = 3 * MaxBatch

// A Scanner takes the marks of renewed leases once per interval, and early
// when a renewal is critical, packs them and has them committed. After a
// failure the marks are still there and the next scan takes them.
type Scanner struct {
	Store    *metadata.Store
	Journal  Journal
	Interval time.Duration // between scans, at least 50 ms
	// CriticalDelay is how long a critical renewal waits for others to join it.
	CriticalDelay time.Duration
	Counters      *Counters
	Log           zerolog.Logger

	critical chan struct{}
}

// Counters count renewals, on this node, ever.
type Counters struct {
	Scans     atomic.Int64
	Committed atomic.Int64 // renewals in commits
	Failed    atomic.Int64 // scans that could not commit all
	Critical  atomic.Int64 // scans that a critical renewal asked for
	Applied   atomic.Int64 // renewals that this node applied as a follower
	Synced    atomic.Int64 // full syncs of this node as a follower
	Differed  atomic.Int64 // renewals that a full sync found missing
}

// Critical asks a scanner for an early scan. The zero value is ready, before
// there is a scanner.
type Critical struct{ wake atomic.Pointer[chan struct{}] }

// Notify asks for an early scan. It does not block.
func (c *Critical) Notify() {
	if wake := c.wake.Load(); wake != nil {
		select {
		case *wake <- struct{}{}:
		default:
		}
	}
}

// NewScanner returns a scanner that critical renewals of c wake.
func NewScanner(s Scanner, c *Critical) *Scanner {
	s.critical = make(chan struct{}, 1)
	c.wake.Store(&s.critical)
	return &s
}

// Run scans until the context ends.
func (s *Scanner) Run(ctx context.Context) error {
	tick := time.NewTicker(s.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-s.critical:
			s.Counters.Critical.Add(1)
			if err := pause(ctx, min(s.CriticalDelay, s.Interval)); err != nil {
				return err
			}
			s.join()
		}
		if err := s.Scan(ctx); err != nil && ctx.Err() == nil {
			s.Counters.Failed.Add(1)
			s.report(err)
		}
	}
}

// join takes back the wish of renewals that the scan to come will include.
func (s *Scanner) join() {
	select {
	case <-s.critical:
	default:
	}
}

// report logs a failure, unless the node stops serving anyway.
func (s *Scanner) report(err error) {
	if !errors.Is(err, errs.NotLeader) {
		s.Log.Warn().Err(err).Msg("lease renewals could not be written, the next scan takes them again")
	}
}

// Scan commits all marked renewals, in rounds.
func (s *Scanner) Scan(ctx context.Context) error {
	s.Counters.Scans.Add(1)
	var renewals []metadata.Renewal
	for shard := 0; shard < metadata.ShardCount; {
		renewals, shard = s.Store.CollectRenewals(renewals[:0], shard, roundLimit)
		if len(renewals) == 0 {
			continue
		}
		if err := s.commit(ctx, renewals); err != nil {
			return err
		}
	}
	return nil
}

// commit submits renewals in pieces that fit a submission.
func (s *Scanner) commit(ctx context.Context, renewals []metadata.Renewal) error {
	changes := Changes(renewals)
	for len(changes) > 0 {
		n := min(len(changes), roundLimit/MaxBatch)
		if _, err := s.Journal.Submit(ctx, changes[:n]...); err != nil {
			return err
		}
		for _, c := range changes[:n] {
			s.Counters.Committed.Add(int64(len(c.(*Batch).Renewals)))
		}
		changes = changes[n:]
	}
	return nil
}

// Changes is Batches, as changes.
func Changes(renewals []metadata.Renewal) []metadata.Change {
	batches := Batches(renewals)
	changes := make([]metadata.Change, len(batches))
	for i, b := range batches {
		changes[i] = b
	}
	return changes
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
