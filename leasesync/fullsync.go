package leasesync

import (
	"context"
	"fmt"

	"github.com/understudy-store/understudy/metadata"
)

// Records visits the renewal records that etcd still holds, through a sequence,
// each with the term it was written in.
type Records func(ctx context.Context, through metadata.Seq, visit func(metadata.Term, []metadata.Change) error) error

// FullSync compares a follower's state with every renewal of its term that
// etcd still holds, up to what the follower has applied: the list of the
// prefix that the seeds ask for as a safety net. It must find nothing; it
// returns how many renewals do not show in the state, and changes none.
func FullSync(ctx context.Context, store *metadata.Store, records Records, counters *Counters) (missing int, err error) {
	at := store.Position()
	err = records(ctx, at.Seq, func(term metadata.Term, changes []metadata.Change) error {
		if term != at.Term {
			return nil
		}
		for _, c := range changes {
			batch, ok := c.(*Batch)
			if !ok {
				return fmt.Errorf("a %T among the lease renewals", c)
			}
			for _, r := range batch.Renewals {
				if !store.CheckRenewal(r) {
					missing++
				}
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("full sync of the leases: %w", err)
	}
	counters.Synced.Add(1)
	counters.Differed.Add(int64(missing))
	return missing, nil
}
