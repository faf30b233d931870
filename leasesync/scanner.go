package leasesync

import (
	"context"
	"errors"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

// Run scans for marked leases once per interval, and early when a renewal is
// critical, until the context ends. After a failure the marks are still there,
// and the next scan takes them.
func (l *Leases) Run(ctx context.Context) error {
	tick := time.NewTicker(l.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-l.wake:
			l.Counters.CriticalScans.Add(1)
			if err := l.join(ctx); err != nil {
				return err
			}
		}
		if err := l.Scan(ctx); err != nil && ctx.Err() == nil {
			l.Counters.Failed.Add(1)
			if !errors.Is(err, errs.NotLeader) { // else the term ends anyway
				l.Log.Warn().Err(err).Msg("lease renewals could not be written, the next scan takes them again")
			}
		}
	}
}

// join waits for further critical renewals, which the scan to come takes along.
func (l *Leases) join(ctx context.Context) error {
	delay := time.NewTimer(min(l.CriticalDelay, l.Interval))
	defer delay.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-delay.C:
	}
	select {
	case <-l.wake:
	default:
	}
	return nil
}

// roundBatches is how many batches are collected and submitted at once.
const roundBatches = 3

// Scan commits all marked renewals, in rounds.
func (l *Leases) Scan(ctx context.Context) error {
	l.Counters.Scans.Add(1)
	return EachRound(l.Store, roundBatches*MaxBatch, func(renewals []Renewal) error {
		changes := Pack(renewals)
		for len(changes) > 0 {
			n := min(len(changes), roundBatches)
			if _, err := l.Journal.Submit(ctx, changes[:n]...); err != nil {
				return err
			}
			for _, c := range changes[:n] {
				l.Counters.Committed.Add(int64(len(c.(*Batch).Renewals)))
			}
			changes = changes[n:]
		}
		return nil
	})
}

// EachRound collects the marked renewals of a store, about limit at a time, and
// hands them to commit, which is done with them when it returns. It ends with
// commit's first error.
//
// A mark goes only when a later scan finds the renewal journaled and the lease
// not renewed again: what is not committed is collected once more.
func EachRound(store *metadata.Store, limit int, commit func([]Renewal) error) error {
	var renewals []Renewal
	collect := func(e metadata.Entry) (keep bool) {
		if e.LeaseEnd() <= e.JournaledEnd() {
			return false
		}
		renewals = append(renewals, Renewal{e.Ref(), e.LeaseEnd()})
		return true
	}
	for shard := 0; shard < metadata.ShardCount; {
		renewals = renewals[:0]
		for ; shard < metadata.ShardCount && len(renewals) < limit; shard++ {
			store.EachMarked(shard, collect)
		}
		if len(renewals) == 0 {
			continue
		}
		if err := commit(renewals); err != nil {
			return err
		}
	}
	return nil
}
