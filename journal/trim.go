package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
)

// A Trimmer deletes the records of the journal that nobody needs any more, for as long as
// one node is elected: those that are older than Keep and covered by the nodes' state
// files, and the oldest ones beyond MaxBytes, even if they are needed. It deletes no
// others. Their leases last long enough for nodes that were all away to go on from their
// files, although etcd has compacted its history.
type Trimmer struct {
	Journal *EtcdLog // of the elected node: a deposed one deletes nothing
	Clock   clock.Clock
	Log     *slog.Logger
	Keep    time.Duration // --events-ttl
	// Covered returns the sequence up to which no state file needs records.
	Covered  func(ctx context.Context) (metadata.Seq, error)
	MaxBytes int64 // of the records that stand, as of RecordBytes

	marks []mark       // of commits that moved the bytes, the oldest first
	bytes int64        // at the newest mark so far
	begun bool         // there was a mark: the first stands for all records of earlier terms
	done  metadata.Seq // no record stands up to it
	found int64        // records of the slice that was deleted last
	slice metadata.Seq // commits in the next slice
}

const (
	// trimEvery is the pause between two searches for records that may go.
	trimEvery = time.Second
	// minTrimSlice and maxTrimSlice bound how many commits lose their records in one
	// transaction, as commits wait for it. After one that took less than quickSlice the
	// next has twice as many, after one that took longer than slowSlice half as many.
	minTrimSlice = 64
	maxTrimSlice = 512
	quickSlice   = 5 * time.Millisecond
	slowSlice    = 20 * time.Millisecond
	// trimRest is the length of the pause behind the deletion of a slice, as a multiple
	// of the time that the deletion took, but between minTrimRest and maxTrimRest. So
	// etcd has most of its time for commits, however slow it is. For records beyond
	// MaxBytes the multiple is urgentRest. Commits cannot outrun that in their half of
	// the time: a transaction deletes many records, each at less cost than its commit
	// had.
	trimRest    = 4
	urgentRest  = 1
	minTrimRest = 10 * time.Millisecond
	maxTrimRest = time.Second
)

// RecordBytes is about what etcd holds of the records between two heads: their bytes, and
// what a key takes besides.
func RecordBytes(from, to Head) int64 {
	return to.Bytes - from.Bytes + int64(to.Seq-from.Seq)*revisionBytes
}

// Run deletes records until the context ends. Errors are logged and tried again.
func (t *Trimmer) Run(ctx context.Context) {
	for clock.Sleep(ctx, trimEvery) == nil {
		if err := t.step(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, ErrFenced) {
			t.Log.Warn("deleting records of the journal failed, it will be tried again", "error", err)
		}
	}
}

// step notes where the journal is, and deletes what may go. It asks etcd nothing while no
// record is old enough.
func (t *Trimmer) step(ctx context.Context) error {
	now, tip := t.Clock(), t.Journal.Tip()
	if !t.begun || tip.Head.Bytes != t.bytes {
		t.marks = append(t.marks, mark{now, tip})
		t.begun, t.bytes = true, tip.Head.Bytes
	}
	var old, much metadata.Seq
	for _, m := range t.marks {
		if now-m.at >= t.Keep {
			old = m.tip.Head.Seq
		}
		if RecordBytes(m.tip.Head, tip.Head) > t.MaxBytes {
			much = m.tip.Head.Seq
		}
	}
	if old > t.done {
		covered, err := t.Covered(ctx)
		if err != nil { // etcd is away: the next look is soon, and nothing is urgent
			t.Log.Debug("what state files cover is not known, it will be looked up again", "error", err)
			covered = t.done
		}
		old = min(old, covered)
	}
	to := max(old, much)
	if to <= t.done {
		return nil
	}
	if err := t.trim(ctx, to, much); err != nil {
		return err
	}
	for len(t.marks) > 0 && t.marks[0].tip.Head.Seq <= to {
		t.marks = t.marks[1:]
	}
	return nil
}

// trim deletes the records up to a sequence, the oldest first, in slices. It looks the
// oldest one up at first, and again after a slice without any: earlier terms may have
// deleted many. Those up to urgent are beyond MaxBytes.
func (t *Trimmer) trim(ctx context.Context, to, urgent metadata.Seq) error {
	for t.done < to {
		first := t.done + 1
		if t.found == 0 {
			var err error
			if first, err = t.oldest(ctx, to); err != nil {
				return err
			}
		}
		if first > to {
			t.done = to
			return nil
		}
		t.slice = min(max(t.slice, minTrimSlice), maxTrimSlice)
		through := min(first+t.slice-1, to)
		begun := t.Clock()
		found, err := t.deleteSlice(ctx, first, through)
		if err != nil {
			return err
		}
		t.done, t.found = through, found
		took, rest := t.Clock()-begun, time.Duration(trimRest)
		if through <= urgent {
			rest = urgentRest
		}
		switch {
		case took < quickSlice:
			t.slice *= 2
		case took > slowSlice:
			t.slice /= 2
		}
		if err := clock.Sleep(ctx, min(max(minTrimRest, rest*took), maxTrimRest)); err != nil {
			return err
		}
	}
	return nil
}

// oldest returns the sequence of the oldest record that may stand, up to a sequence.
func (t *Trimmer) oldest(ctx context.Context, to metadata.Seq) (metadata.Seq, error) {
	ctx, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	reader := &Reader{Client: t.Journal.client, Layout: t.Journal.layout}
	return reader.Oldest(ctx, t.done+1, to)
}

// deleteSlice deletes the records of some commits, if this node is still elected: sequences
// may be used again in a journal that another node founds. It returns how many there were.
func (t *Trimmer) deleteSlice(ctx context.Context, first, through metadata.Seq) (deleted int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	l := t.Journal
	var ops []clientv3.Op
	for stream := range metadata.StreamCount {
		ops = append(ops, clientv3.OpDelete(l.layout.Record(stream, first), clientv3.WithRange(l.layout.Record(stream, through+1))))
	}
	resp, err := l.client.Txn(ctx).If(l.election.Holds(l.layout)...).Then(ops...).Commit()
	switch {
	case err != nil:
		return 0, fmt.Errorf("deleting the records %d to %d: %w", first, through, err)
	case !resp.Succeeded:
		return 0, ErrFenced
	}
	for _, r := range resp.Responses {
		deleted += r.GetResponseDeleteRange().GetDeleted()
	}
	return deleted, nil
}
