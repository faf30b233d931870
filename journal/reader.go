package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
)

// ErrBroken says that the journal cannot be followed from where the follower
// stands: it needs a snapshot. The error that wraps it names the reason.
var ErrBroken = errors.New("the journal cannot be followed from here")

// A Reason says why a follower needs a snapshot; it is a metric's label.
type Reason string

// The reasons.
const (
	ReasonStart      Reason = "start"      // it has no state yet
	ReasonCompacted  Reason = "compacted"  // the history it needs is gone
	ReasonGap        Reason = "gap"        // a commit is missing
	ReasonCorrupt    Reason = "corrupt"    // a record cannot be decoded or applied
	ReasonDigest     Reason = "digest"     // its state differs from the primary's
	ReasonDifference Reason = "difference" // a full sync of the leases found one
	ReasonLag        Reason = "lag"        // it is too far behind
	ReasonFounded    Reason = "founded"    // the journal was founded anew from another position
)

// A BrokenError is ErrBroken with its reason.
type BrokenError struct {
	Reason Reason
	Err    error
	// Fork is, for ReasonFounded, the last sequence that the state has in common with
	// the journal.
	Fork metadata.Seq
	// Beside says that the journal may have gone on from less than the state holds: etcd
	// may have gone back.
	Beside bool
}

func (e *BrokenError) Error() string { return fmt.Sprintf("%v (%s): %v", ErrBroken, e.Reason, e.Err) }

func (e *BrokenError) Unwrap() []error { return []error{ErrBroken, e.Err} }

func broken(reason Reason, format string, args ...any) error {
	return &BrokenError{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// A Consumer gets what Read finds in the journal.
type Consumer interface {
	// Commit receives the next commit, with the head that it moved. An error
	// ends the reading.
	Commit(c *metadata.Commit, at Cursor) error
	// Founded receives the head that founds the journal anew just where the
	// consumer stands. An error ends the reading.
	Founded(at Cursor) error
	// Changed reports that another key of the cluster changed: the leader's or
	// a node's. It must not block.
	Changed(key string)
}

// A Reader follows the journal.
type Reader struct {
	Client *clientv3.Client
	Layout Layout
	Codec  Codec
	// Ended gets why a watch of Read ended or got stuck, before the next one is begun. It must
	// not block; it may be nil. Set before Read.
	Ended func(err error)
}

// Head returns the journal's end, by a linearizable read. A journal that was
// never written has revision 0.
func (r *Reader) Head(ctx context.Context) (Cursor, error) {
	at, _, err := r.head(ctx)
	return at, err
}

// head also returns the revision at which it was read.
func (r *Reader) head(ctx context.Context) (at Cursor, now int64, err error) {
	v, err := r.Look(ctx)
	if err != nil || v.Err != nil {
		return Cursor{}, 0, errors.Join(err, v.Err)
	}
	return v.Cursor, v.Revision, nil
}

// Start returns the position of a journal that was never written. It fails with
// ErrBroken if there is one.
func (r *Reader) Start(ctx context.Context) (Cursor, error) {
	at, now, err := r.head(ctx)
	if err != nil {
		return Cursor{}, err
	}
	if at.Revision != 0 {
		return Cursor{}, broken(ReasonStart, "the journal is at %d already", at.Head.Seq)
	}
	return Cursor{Revision: now}, nil
}

// Read watches the cluster's root from behind a position and hands each commit to f, in
// order and proven to follow the one before: the head moves by exactly one, with exactly
// the records that it says belong to it. It goes on from its own revision, whatever has
// expired since, until the context ends, f fails, or the journal is broken (ErrBroken) or
// lost (ErrLost). It waits for an etcd that is away.
func (r *Reader) Read(ctx context.Context, behind Cursor, f Consumer) error {
	for silence := watchSilence; ; {
		next, why, err := r.watch(ctx, behind, f, silence)
		if err != nil {
			return err
		}
		if why != nil && r.Ended != nil {
			r.Ended(why)
		}
		if errors.Is(why, errStuck) && next == behind {
			silence = min(2*silence, lastWatchSilence) // one message may take longer
		} else {
			silence = watchSilence
		}
		behind = next
		if err := clock.Sleep(ctx, rewatchDelay); err != nil {
			return err
		}
	}
}

// rewatchDelay is the pause before a watch that ended is begun anew.
const rewatchDelay = 100 * time.Millisecond

// watchSilence is how long a watch may bring nothing before it counts as stuck. A primary
// commits more often, and a stuck watch would keep an elected node from ever catching up.
// After a watch that brought nothing at all, the next one may be silent for twice as
// long, up to lastWatchSilence: to a watcher that is far behind, etcd sends up to 1,000
// revisions as one message, which a slow line may not bring in time.
const (
	watchSilence     = 5 * time.Second
	lastWatchSilence = 2 * time.Minute
)

// watch follows one watch until it ends or gets stuck, and returns where it came to, and why
// it ended, if that is known.
func (r *Reader) watch(parent context.Context, at Cursor, f Consumer, silence time.Duration) (_ Cursor, why, _ error) {
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(parent))
	defer cancel(nil)
	silent := time.AfterFunc(silence, func() { cancel(fmt.Errorf("%w for %v", errStuck, silence)) })
	defer silent.Stop()
	responses := r.Client.Watch(ctx, r.Layout.Root, clientv3.WithPrefix(), clientv3.WithRev(at.Revision+1))
	for resp := range responses {
		silent.Stop()
		if resp.CompactRevision != 0 {
			at, err := r.pass(parent, at, f)
			return at, nil, err
		}
		if why = resp.Err(); why != nil {
			break // the watch is begun anew from where it came to
		}
		for events := resp.Events; len(events) > 0; {
			n := 1
			for n < len(events) && events[n].Kv.ModRevision == events[0].Kv.ModRevision {
				n++
			}
			next, err := r.revision(parent, at, events[:n], f)
			if err != nil {
				return at, nil, err
			}
			at, events = next, events[n:]
		}
		silent.Reset(silence)
	}
	return at, cmp.Or(context.Cause(ctx), why), parent.Err()
}

var errStuck = errors.New("it brought nothing")

// pass goes on after a compaction of revisions that the watch had not reached yet.
func (r *Reader) pass(ctx context.Context, at Cursor, f Consumer) (Cursor, error) {
	head, err := r.Look(ctx)
	if err != nil {
		return at, nil //nolint:nilerr // the watch says the same again
	}
	if at, err = r.Resume(ctx, at, head, f); errors.Is(err, errUnanswered) {
		err = nil
	}
	return at, err
}

// revision takes in the events of one etcd revision.
func (r *Reader) revision(ctx context.Context, at Cursor, events []*clientv3.Event, f Consumer) (Cursor, error) {
	at.Revision = events[0].Kv.ModRevision
	var head *mvccpb.KeyValue
	var of records
	for _, e := range events {
		key := string(e.Kv.Key)
		stream, isRecord := r.Layout.streamOf(key)
		switch {
		case key == r.Layout.Head():
			if e.Type == mvccpb.DELETE {
				if at.Head.Seq == 0 {
					return at, broken(ReasonGap, "the head of the journal was deleted")
				}
				return at, r.deleted(ctx, at)
			}
			head = e.Kv
		case isRecord && e.Type == mvccpb.PUT:
			of[stream] = e.Kv.Value
		case isRecord:
			// Records expire, and are deleted when there are too many: neither is
			// an event.
		default:
			f.Changed(key)
		}
	}
	if head == nil {
		return at, nil
	}
	next, commit, err := r.takeHead(&at, head.Value, f)
	if err != nil || !commit {
		return at, r.passed(ctx, at, of, err)
	}
	c, err := r.commit(at.Head, next, of)
	if err != nil {
		return at, err
	}
	at.Head, at.value = next, string(head.Value)
	return at, f.Commit(c, at)
}

// deleted returns that the journal is lost, as its head was deleted; nil if etcd holds a
// head again that goes on from a position. The watch will bring that one. A watch from
// the position itself would meet the deletion again and again.
func (r *Reader) deleted(ctx context.Context, at Cursor) error {
	view, err := r.Look(ctx)
	if err == nil && !view.Missing() && at.Against(view.Cursor, view.Err) == nil {
		return nil
	}
	return at.Against(Cursor{}, nil)
}

// passed returns the error of a head in the watch, but nil for a loss if no record came with
// that head, and etcd holds one that goes on from the position: somebody has put it right, and
// the watch brings what follows. Otherwise a node that reads the journal later would meet that
// head again and again. With a record the head is a primary's, which went on from elsewhere.
func (r *Reader) passed(ctx context.Context, at Cursor, of records, err error) error {
	isCommit := slices.ContainsFunc(of[:], func(record []byte) bool { return record != nil })
	if isCommit || !errors.Is(err, ErrLost) {
		return err
	}
	view, failed := r.Look(ctx)
	if failed == nil && !view.Missing() && at.Against(view.Cursor, view.Err) == nil {
		return nil
	}
	return err
}

// commit decodes a commit and proves that it follows the head before.
func (r *Reader) commit(before, head Head, of records) (*metadata.Commit, error) {
	if head.Seq != before.Seq+1 || head.Term < before.Term {
		return nil, broken(ReasonGap, "the head moves from %d of term %d to %d of term %d", before.Seq, before.Term, head.Seq, head.Term)
	}
	c := &metadata.Commit{Seq: head.Seq, Term: head.Term, Time: head.Time}
	for stream, record := range of {
		belongs := head.Streams&(1<<stream) != 0
		if belongs != (record != nil) {
			return nil, broken(ReasonGap, "commit %d: its %v record is there: %v, belongs to it: %v", head.Seq, metadata.Stream(stream), record != nil, belongs)
		}
		if record == nil {
			continue
		}
		var err error
		if c.Changes, err = r.Codec.decodeRecord(c.Changes, metadata.Stream(stream), Stamp{head.Term, head.Seq, head.Time}, record); err != nil {
			return nil, broken(ReasonCorrupt, "commit %d: %w", head.Seq, err)
		}
	}
	return c, nil
}

// Records visits the records of a stream that etcd still holds, from one
// sequence through another, in order.
func (r *Reader) Records(ctx context.Context, stream metadata.Stream, from, through metadata.Seq,

	visit func(of Stamp, changes []metadata.Change) error,

) error {
	return r.scan(ctx, stream, from, through, func(_ metadata.Seq, kv *mvccpb.KeyValue) error {
		of, changes, err := r.Codec.DecodeRecord(stream, kv.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", kv.Key, err)
		}
		return visit(of, changes)
	})
}

// Oldest returns the sequence of the oldest record that etcd still holds from one
// sequence through another; one later than any if there is none.
func (r *Reader) Oldest(ctx context.Context, from, through metadata.Seq) (metadata.Seq, error) {
	oldest := metadata.Seq(1<<63 - 1)
	for stream := range metadata.StreamCount {
		err := r.scan(ctx, stream, from, min(oldest, through), func(seq metadata.Seq, _ *mvccpb.KeyValue) error {
			oldest = min(oldest, seq)
			return errFound
		}, clientv3.WithKeysOnly())
		if err != nil && !errors.Is(err, errFound) {
			return 0, err
		}
	}
	return oldest, nil
}

var errFound = errors.New("the record was found")

const (
	// scanPage is how many records one request reads, of up to 1 MiB each.
	scanPage = 16
	// scanGrowth is the factor by which a request covers more sequences than the one
	// before it, if that reached the end of its range.
	scanGrowth = 8
)

// scan visits the keys of a stream's records from one sequence through another, in order.
// Keys that are no record's are somebody else's. etcd counts all keys in the range of a
// request, whatever its limit is, so the ranges are made to hold about a page.
func (r *Reader) scan(ctx context.Context, stream metadata.Stream, from, through metadata.Seq,

	visit func(metadata.Seq, *mvccpb.KeyValue) error, opts ...clientv3.OpOption,

) error {
	key, width := r.Layout.Record(stream, from), metadata.Seq(scanPage)
	for from <= through {
		last := from + min(width-1, through-from)
		resp, err := r.Client.Get(ctx, key, append(opts, clientv3.WithRange(r.Layout.Record(stream, last+1)), clientv3.WithLimit(scanPage))...)
		if err != nil {
			return fmt.Errorf("listing %v from %d: %w", stream, from, err)
		}
		for _, kv := range resp.Kvs {
			key = string(kv.Key) + "\x00"
			seq, err := r.Layout.seqOf(stream, string(kv.Key))
			if err != nil {
				continue
			}
			if err := visit(seq, kv); err != nil {
				return err
			}
			from = seq + 1
		}
		if resp.More {
			width = max(width/metadata.Seq(resp.Count)*scanPage, scanPage)
			continue
		}
		from, width = last+1, min(width, through/scanGrowth+1)*scanGrowth
		key = r.Layout.Record(stream, from)
	}
	return nil
}
