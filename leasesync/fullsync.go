package leasesync

import (
	"context"
	"fmt"

	"github.com/understudy-store/understudy/metadata"
)

// Records visits the renewal records that etcd still holds, through a sequence,
// each with the term and the sequence it was written at.
type Records func(ctx context.Context, through metadata.Seq, visit func(metadata.Term, metadata.Seq, []metadata.Change) error) error

// FullSync compares a follower's state with every renewal of its term that etcd
// still holds, up to what the follower has applied. It is a safety net: without a
// defect it finds no difference. It returns how many renewals the state lacks, and
// the sequence of the first record that has one of them. It changes nothing.
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
