package service

import (
	"context"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// maxGrace bounds how long a segment may stay closed: a sum with it stays far from
// overflow.
const maxGrace = 365 * 24 * time.Hour

// GracefulUnmountSegment has a client's segment take no new objects, and unmounts
// it after a grace period. Until then what is there stays readable. A segment that
// is closed already keeps its time. Errors: SegmentNotFound if the client has no
// segment, InvalidParams if this one is not its own.
func (m *Master) GracefulUnmountSegment(ctx context.Context, client segment.ClientID, id segment.ID, grace time.Duration) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	return m.withSegments(ctx, func(ctx context.Context) error {
		return commitOne(ctx, m, 16, func() (*metadata.CloseSegment, error) {
			return m.Store.PrepareClose(client, id, m.Now().Add(min(grace, maxGrace)))
		})
	})
}

// SegmentStatus returns the status of the segment of a name that was mounted last, or
// SegmentNotFound.
func (m *Master) SegmentStatus(ctx context.Context, name string) (metadata.SegmentStatus, error) {
	return segmentStatus(ctx, m, m.Store.StatusOfNamed, name)
}

// SegmentStatusByID returns the status of a segment, or SegmentNotFound.
func (m *Master) SegmentStatusByID(ctx context.Context, id segment.ID) (metadata.SegmentStatus, error) {
	return segmentStatus(ctx, m, m.Store.StatusOf, id)
}

func segmentStatus[K any](ctx context.Context, m *Master, find func(K) (metadata.SegmentStatus, bool), key K) (metadata.SegmentStatus, error) {
	if err := m.Fence(ctx); err != nil {
		return 0, err
	}
	status, ok := find(key)
	if !ok {
		return 0, m.fenced(ctx, errs.SegmentNotFound)
	}
	return status, m.Fence(ctx)
}

// unmountClosed unmounts the closed segments whose grace period is over.
func (m *Master) unmountClosed(ctx context.Context, log zerolog.Logger) {
	for part := range slices.Chunk(m.Store.SegmentsToUnmount(m.Now()), maxUnmounts) {
		err := m.withSegments(ctx, func(ctx context.Context) error { return m.unmount(ctx, part...) })
		switch {
		case err == nil:
			log.Info().Int("segments", len(part)).Msg("closed segments were unmounted")
		case ctx.Err() == nil:
			log.Warn().Err(err).Msg("unmounting closed segments failed, it will be tried again")
		}
	}
}

// wipeDisks asks the owners of SSDs to delete their files, after all objects of a
// tenant were removed; of all tenants if it is empty. It reports whether it asked them, or
// may have.
func (m *Master) wipeDisks(ctx context.Context, tenant string) (asked bool, err error) {
	if m.Store.PrepareWipe(tenant) == nil {
		return false, nil
	}
	err = m.withSegments(ctx, func(ctx context.Context) error {
		return commitOne(ctx, m, 16, func() (*metadata.WipeDisks, error) { return m.Store.PrepareWipe(tenant), nil })
	})
	return err == nil || errs.KindOf(err) == errs.Unresolved, err
}

// PollRemoveAll reports whether a client is to delete all files on its SSD, once.
// Its copies are gone then: also those of objects that RemoveAll has kept. Errors:
// SegmentNotFound if the client has no SSD mounted.
func (m *Master) PollRemoveAll(ctx context.Context, client segment.ClientID) (wipe bool, err error) {
	const op = "PollRemoveAll"
	if err := m.CheckLocalDisk(ctx, op, client); err != nil {
		return false, err
	}
	m.offloads.asked(client)
	if disk, _ := m.Store.FindLocalDisk(client); !disk.Wipe {
		return false, m.fenced(ctx, nil)
	}
	err = m.withSegments(ctx, func(ctx context.Context) error {
		m.offloads.wiped(client)
		m.promotions.drop(client)
		return commitOne(ctx, m, 16, func() (*metadata.WipeDisks, error) {
			disk, ok := m.Store.FindLocalDisk(client)
			if !ok {
				return nil, noLocalDisk(op, client)
			}
			if !disk.Wipe {
				return nil, errs.New(errs.Unavailable, op, "another call of the client has got the answer; ask again")
			}
			return &metadata.WipeDisks{Number: disk.Number}, nil
		})
	})
	return err == nil, err
}
