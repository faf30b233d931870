package promote

import (
	"context"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
)

// cleanUp removes the objects whose lease had run out, if the policy says so: as of
// the last commit before this term, less one SyncInterval for renewals that the previous
// primary may not have journaled.
func (t *Term) cleanUp(ctx context.Context, before journal.Head, phases *Takeover) error {
	n := t.node
	below := before.Time.Add(-n.SyncInterval)
	if !t.cleansUp() || t.empty || below <= 0 {
		return nil
	}
	for {
		pass := eviction.Select(t.Store, eviction.Bounds{Objects: cleanupSlice, IncludePinned: true, Below: below})
		if pass == nil {
			break
		}
		for _, c := range leasesync.Pack(pass.NearMisses) { // members of groups whose lease holds
			if err := t.writer.Commit(ctx, c); err != nil {
				pass.Cutoff.Abort(t.Store)
				return err
			}
		}
		if pass.Victims == 0 {
			pass.Cutoff.Abort(t.Store)
			if !pass.More {
				break
			}
			continue
		}
		if err := t.writer.Commit(ctx, pass.Cutoff); err != nil {
			return err
		}
		phases.Objects += pass.Victims
		phases.Bytes += pass.Bytes
	}
	n.Log.Info().Uint64("term", uint64(t.Number)).Int("objects", phases.Objects).Uint64("bytes", phases.Bytes).
		Msg("cleaned up what had expired")
	return nil
}

func (t *Term) cleansUp() bool {
	n := t.node
	return n.Cleanup == CleanupExpired || n.Cleanup == CleanupAuto && n.Params.LeaseOnPutEnd
}

// cleanupSlice bounds the objects of one cutoff.
const cleanupSlice = 2048
