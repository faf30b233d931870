package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
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
	Tip   func() Cursor
	Clock clock.Clock
	Log   zerolog.Logger
	// Keep is how long history is kept, so that followers can resume: the
	// events TTL.
	Keep time.Duration
	// KeepFrom returns the revision from which history is kept, within MaxBytes, so
	// that nodes that restart can go on from their state files; may be nil for none.
	KeepFrom func() int64
	// MaxBytes bounds the records that live and the history that can be followed,
	// in bytes, whatever their age. With what is deleted but not yet freed, etcd
	// holds about twice as much.
	MaxBytes int64
	// Owned says that nobody else uses this etcd, so that it may be defragmented
	// and its NOSPACE alarm disarmed.
	Owned bool
	// Recovered is called when space was made after NOSPACE; may be nil.
	Recovered func()

	marks []mark
	cut   int64 // revision compacted last
	full  chan struct{}
}

// A mark remembers where the journal was at a time.
type mark struct {
	at  time.Duration
	tip Cursor
}

// NewCompactor returns c, ready to run.
func NewCompactor(c Compactor) *Compactor {
	c.full = make(chan struct{}, 1)
	return &c
}

// NoSpace tells the compactor that etcd refused a commit for want of space. It
// does not block.
func (c *Compactor) NoSpace() {
	select {
	case c.full <- struct{}{}:
	default:
	}
}

// Run compacts once a second what is old or too much, and makes space when
// etcd is full, until the context ends. Errors are logged and tried again.
func (c *Compactor) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.full:
			err = c.makeSpace(ctx)
		case <-tick.C:
			err = c.step(ctx)
		}
		if err != nil && ctx.Err() == nil {
			c.Log.Warn().Err(err).Msg("compacting the journal failed, it will be tried again")
		}
	}
}

// step notes where the journal is, and cuts it at the newest mark that is too
// old, or behind which there is too much.
func (c *Compactor) step(ctx context.Context) error {
	now, tip := c.Clock(), c.Tip()
	if tip.Head.Bytes == 0 {
		return nil // nothing to compact, or a snapshot's position, which lacks the bytes
	}
	if last := len(c.marks) - 1; last >= 0 && tip.Revision < c.marks[last].tip.Revision {
		c.marks, c.cut = nil, 0 // another etcd, or an older state of it
	}
	c.marks = append(c.marks, mark{now, tip})
	old, much := 0, 0
	for i, m := range c.marks {
		if now-m.at >= c.Keep && (c.KeepFrom == nil || m.tip.Revision <= c.KeepFrom()) {
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

// makeSpace deletes and compacts everything, gives the freed pages back, and
// lifts the NOSPACE alarm. Followers that are behind load a snapshot.
func (c *Compactor) makeSpace(ctx context.Context) error {
	if !c.Owned {
		return errors.New("etcd is out of space; it is not ours to defragment: raise its quota, or compact, defragment and disarm it")
	}
	c.marks = nil
	revision, err := c.deleteRecords(ctx, c.Tip().Head.Seq)
	if err != nil {
		return err
	}
	if err := c.reclaim(ctx, revision); err != nil {
		return err
	}
	select {
	case <-c.full: // told so while space was made
	default:
	}
	return nil
}

// MakeSpace makes space in an etcd of this process while another node is the
// primary, or none is, so that somebody can be. It deletes no records: they run
// out. History behind the last commit stays at first, for followers that have it
// all and resume there; called again behind the same commit, nothing stays. Not
// safe for concurrent use.
func (c *Compactor) MakeSpace(ctx context.Context) error {
	attempt, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	resp, err := c.Client.Get(attempt, c.Layout.Head())
	if err != nil {
		return fmt.Errorf("reading the head: %w", err)
	}
	revision := resp.Header.Revision
	if len(resp.Kvs) == 1 && resp.Kvs[0].ModRevision > c.cut {
		revision = resp.Kvs[0].ModRevision
	}
	return c.reclaim(ctx, revision)
}

// reclaim compacts up to a revision, gives the freed pages back, and lifts the
// NOSPACE alarm.
func (c *Compactor) reclaim(ctx context.Context, revision int64) error {
	if err := c.compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
		return err
	}
	for _, endpoint := range c.Client.Endpoints() {
		if err := c.defragment(ctx, endpoint); err != nil {
			return err
		}
	}
	if err := c.disarm(ctx); err != nil {
		return fmt.Errorf("disarming NOSPACE: %w", err)
	}
	c.Log.Warn().Int64("revision", c.cut).Msg("etcd was out of space; its history was compacted and defragmented")
	if c.Recovered != nil {
		c.Recovered()
	}
	return nil
}

func (c *Compactor) disarm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	list, err := c.Client.AlarmList(ctx)
	if err != nil {
		return err
	}
	for _, alarm := range list.Alarms {
		if alarm.Alarm != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		if _, err := c.Client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(alarm)); err != nil {
			return err
		}
	}
	return nil
}

// defragTimeout bounds the defragmentation of one member, which copies its
// database while nothing else is served.
const defragTimeout = time.Minute

// defragment waits for the end of what it began even if the context ends: etcd
// goes on with it in any case, and an embedded one must not be stopped in it.
func (c *Compactor) defragment(ctx context.Context, endpoint string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), defragTimeout)
	defer cancel()
	if _, err := c.Client.Defragment(ctx, endpoint); err != nil {
		return fmt.Errorf("defragmenting %s: %w", endpoint, err)
	}
	return nil
}
