package leasesync

import (
	"context"
	"fmt"

	"github.com/understudy-store/understudy/metadata"
)

// Records visits renewal records that etcd still holds, up to a sequence, each with its
// term and sequence. It may leave out those of an earlier FullSync of the same state.
type Records func(ctx context.Context, through metadata.Seq, visit func(metadata.Term, metadata.Seq, []metadata.Change) error) error

// FullSync compares a follower's state with the renewals of its term in the records, up
// to what the follower has applied. It is a safety net: without a defect it finds no
// difference. It returns how many renewals the state lacks, and the sequence of the first
// record that has one of them. It changes nothing.
func FullSync(ctx context.Context, store *metadata.Store, records Records, counters *Counters) (missing int, first metadata.Seq, err error) {
	at := store.Position()
	err = records(ctx, at.Seq, func(term metadata.Term, seq metadata.Seq, changes []metadata.Change) error {
		if term != at.Term {
			return nil
		}
		for _, c := range changes {
			batch, ok := c.(*Batch)
			if !ok {
				return fmt.Errorf("a %T among the lease renewals", c)
			}
			for _, r := range batch.Renewals {
				if shows(store, r) {
					continue
				}
				if missing++; missing == 1 {
					first = seq
				}
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("full sync of the leases: %w", err)
	}
	counters.Synced.Add(1)
	counters.Differed.Add(int64(missing))
	return missing, first, nil
}

// shows reports whether the state has a journaled renewal: the object's deadline
// is at least as late, or the object is gone.
func shows(store *metadata.Store, r Renewal) bool {
	e := store.LockRef(r.Ref)
	defer e.Unlock()
	return !e.Exists() || e.JournaledEnd() >= r.Deadline
}
