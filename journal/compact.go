package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
)

// A Compactor bounds what the journal takes in etcd. The TTL of records bounds
// how many keys live, not the history of the keys that lived: only compaction
// frees that.
type Compactor struct {
	Client *clientv3.Client
	Layout Layout
	// Tip returns where the journal is known to stand, zero for nowhere; for Run alone.
	Tip   func(ctx context.Context) Cursor
	Clock clock.Clock
	Log   *slog.Logger
	// Keep is how long history is kept, so that followers can resume: the
	// events TTL.
	Keep time.Duration
	// KeepFrom returns the revision from which history is kept, within MaxBytes, so
	// that nodes that restart can go on from their state files; may be nil for none.
	KeepFrom func(ctx context.Context) int64
	// MaxBytes bounds the records that live and the history that can be followed,
	// in bytes, whatever their age. With what is deleted but not yet freed, etcd
	// holds about twice as much.
	MaxBytes int64
	// Cover says what of the journal may go when etcd is nearly full. Nil unless the etcd
	// is embedded, so that it is ours to defragment and to disarm.
	Cover func(ctx context.Context) (Cover, error)

	// Cuts reports whether this node cuts the history, where several nodes each have a
	// member of the etcd. leadsEtcd says whether this node's member leads. Nil for
	// always.
	Cuts func(leadsEtcd bool) bool

	marks []mark
	cut   int64 // revision compacted last
	space *atomic.Pointer[Space]
	after time.Duration // by the clock: when space may be made again

	// defragAfter is when, by the clock, the next defragmentation may begin that can free
	// little.
	defragAfter time.Duration
	pause       time.Duration // between two such defragmentations
}

// A mark remembers where the journal was at a time.
type mark struct {
	at  time.Duration
	tip Cursor
}

// NewCompactor returns c, ready to run.
func NewCompactor(c Compactor) *Compactor {
	c.space = new(atomic.Pointer[Space])
	c.space.Store(new(Space))
	return &c
}

// Run compacts once a second what is old or too much, and makes space when an embedded
// etcd is nearly full, until the context ends. Errors are logged and tried again.
func (c *Compactor) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if err := errors.Join(c.step(ctx), c.watchSpace(ctx)); err != nil && ctx.Err() == nil {
			c.Log.Warn("compacting the journal failed, it will be tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// step notes where the journal is, and cuts it at the newest mark that is too
// old, or behind which there is too much.
func (c *Compactor) step(ctx context.Context) error {
	now, tip := c.Clock(), c.Tip(ctx)
	if tip.Head.Bytes == 0 {
		return nil // nothing to compact, or a snapshot's position, which lacks the bytes
	}
	if last := len(c.marks) - 1; last >= 0 && tip.Revision < c.marks[last].tip.Revision {
		c.marks, c.cut = nil, 0 // another etcd, or an older state of it
	}
	if c.Cuts != nil && !c.Cuts(false) {
		c.marks = nil
		return nil
	}
	c.marks = append(c.marks, mark{now, tip})
	old, much, from := 0, 0, tip.Revision
	if c.KeepFrom != nil {
		from = c.KeepFrom(ctx)
	}
	for i, m := range c.marks {
		if now-m.at >= c.Keep && m.tip.Revision <= from {
			old = i + 1
		}
		if HistoryBytes(m.tip, tip) > c.MaxBytes {
			much = i + 1
		}
	}
	n := max(old, much)
	if n == 0 {
		return nil
	}
	to := c.marks[n-1].tip
	c.marks = append(c.marks[:0], c.marks[n:]...)
	if much > old {
		// Records that are too young to have expired, but too many. History stays
		// from the mark on, for those who follow from behind it. What is deleted
		// here is freed only by a later cut, behind these deletes: etcd may so hold
		// about twice MaxBytes.
		if _, err := c.deleteRecords(ctx, to.Head.Seq); err != nil {
			return err
		}
	}
	return c.compact(ctx, to.Revision)
}

// revisionBytes is about what a revision takes besides records: its head, or a
// node's key.
const revisionBytes = 512

// HistoryBytes is about what etcd keeps to follow the journal from one position to
// another.
func HistoryBytes(from, to Cursor) int64 {
	return to.Head.Bytes - from.Head.Bytes + (to.Revision-from.Revision)*revisionBytes
}

// deleteRecords deletes all records up to a sequence, and returns the revision
// of the last delete.
func (c *Compactor) deleteRecords(ctx context.Context, to metadata.Seq) (revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, cutTimeout)
	defer cancel()
	for stream := range metadata.StreamCount {
		resp, err := c.Client.Delete(ctx, c.Layout.Record(stream, 0), clientv3.WithRange(c.Layout.Record(stream, to+1)))
		if err != nil {
			return 0, fmt.Errorf("deleting %v records up to %d: %w", stream, to, err)
		}
		revision = resp.Header.Revision
	}
	return revision, nil
}

// cutTimeout bounds a cut, which deletes up to MaxBytes of records.
const cutTimeout = 30 * time.Second

func (c *Compactor) compact(ctx context.Context, revision int64, opts ...clientv3.CompactOption) error {
	if revision <= c.cut {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cutTimeout)
	defer cancel()
	_, err := c.Client.Compact(ctx, revision, opts...)
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compacting to revision %d: %w", revision, err)
	}
	c.cut = revision
	return nil
}
