package journal

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/metadata/binenc"
)

// errUnanswered says that etcd did not answer: it is asked again.
var errUnanswered = errors.New("etcd did not answer")

// Continues reports whether a watch can go on from a position: etcd still has the
// history behind it, and had this very head there. If not, why says what it found.
func (r *Reader) Continues(ctx context.Context, from Cursor) (why, err error) {
	ctx, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	resp, err := r.Client.Get(ctx, r.Layout.Head(), clientv3.WithRev(from.Revision))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return fmt.Errorf("etcd has no history behind revision %d any more: %w", from.Revision, err), nil
	case errors.Is(err, rpctypes.ErrFutureRev):
		return fmt.Errorf("etcd has not come to revision %d: it is another one, or restored from a backup", from.Revision), nil
	case err != nil:
		return nil, fmt.Errorf("reading the head at revision %d: %w: %w", from.Revision, errUnanswered, err)
	}
	if there := ViewOf(resp.Header, resp.Kvs); !there.Cursor.is(from) {
		found := there.Cursor.Head
		return fmt.Errorf("at revision %d the journal was at %d of term %d in history %q, not at %d of term %d in history %q", from.Revision,
			found.Seq, found.Term, found.History, from.Head.Seq, from.Head.Term, from.Head.History), nil
	}
	return nil, nil
}

// is reports whether a head that was read is the one at a cursor.
func (c Cursor) is(known Cursor) bool {
	if known.value != "" {
		return c.value == known.value
	}
	return c.Head.Term == known.Head.Term && c.Head.Seq == known.Head.Seq && c.Head.History.Is(known.Head.History)
}

// Resume finds out how the journal goes on behind a position, given the head. It returns
// the cursor from which a watch goes on. If etcd has compacted the history in between,
// Resume reads the records, if all of them still stand, and hands their commits to f.
// Whatever it returns, f has got everything up to the cursor. Errors: those of Against
// and of f; a *BrokenError if only a snapshot helps; others if etcd did not answer.
func (r *Reader) Resume(ctx context.Context, at Cursor, head View, f Consumer) (Cursor, error) {
	if err := at.Against(head.Cursor, head.Err); err != nil {
		return at, err
	}
	switch {
	case head.Err != nil:
		return at, broken(ReasonCorrupt, "%w", head.Err)
	case head.Same(at), head.Missing():
		return at.At(head.Revision), nil
	}
	why, err := r.Continues(ctx, at)
	if why == nil {
		return at, err
	}
	missing := head.Cursor.Head.Bytes - at.Head.Bytes
	err = r.behind(ctx, at, head, func(_ metadata.Seq, of records) error {
		missing -= int64(of.bytes())
		return nil
	})
	switch {
	case err != nil:
		return at, err
	case missing != 0:
		return at, &BrokenError{
			Reason: ReasonCompacted, Beside: !errors.Is(why, rpctypes.ErrCompacted) || at.Head.Term > 0 && head.Cursor.Head.Term > at.Head.Term,
			Err: fmt.Errorf("the journal is at %d, this node at %d, and not all records in between stand (bytes missing: %d): %w",
				head.Cursor.Head.Seq, at.Head.Seq, missing, why),
		}
	}
	err = r.behind(ctx, at, head, func(seq metadata.Seq, of records) error {
		next := head.Cursor.At(head.Revision)
		if seq < next.Head.Seq {
			passed, err := of.head(at.Head)
			if err != nil {
				return err
			}
			next = Cursor{Head: passed, Revision: at.Revision}
		}
		c, err := r.commit(at.Head, next.Head, of)
		if err != nil {
			return err
		}
		if next.value == "" && next.Head.Streams == 0 {
			c.Time = 0 // not known: no record says it
		}
		at = next
		return f.Commit(c, at)
	})
	if err == nil && at.Head.Seq == head.Cursor.Head.Seq {
		at = head.Cursor.At(head.Revision)
	}
	return at, err
}

// records are those of one commit, by stream; nil where it has none.
type records [metadata.StreamCount][]byte

func (of records) bytes() (n int) {
	for _, record := range of {
		n += len(record)
	}
	return n
}

// head returns what the records of a commit say of its head: the stamp, and what it
// shares with the head before. A commit without records gets the stamp of the one before.
func (of records) head(before Head) (Head, error) {
	h := before
	h.Seq, h.Streams, h.Election, h.Checked, h.Digest, h.Clean, h.Heir = before.Seq+1, 0, "", 0, 0, false, ""
	h.Bytes += int64(of.bytes())
	for stream, record := range of {
		if record == nil {
			continue
		}
		body, err := unpack(record)
		if err != nil {
			return Head{}, broken(ReasonCorrupt, "commit %d: %w", h.Seq, err)
		}
		stamp := readStamp(binenc.NewReader(body))
		h.Streams |= 1 << stream
		h.Term, h.Time = stamp.Term, stamp.Time
	}
	return h, nil
}

// recordsWindow is how many commits one request reads at most, of up to 1 MiB each.
const recordsWindow = 32

// behind visits the records of all commits behind a position through a head, as they
// stood when it was read.
func (r *Reader) behind(ctx context.Context, at Cursor, head View, visit func(metadata.Seq, records) error) error {
	for from, width := at.Head.Seq+1, metadata.Seq(recordsWindow); from <= head.Cursor.Head.Seq; {
		window, err := r.window(ctx, from, from+width, head.Revision)
		switch {
		case errors.Is(err, context.DeadlineExceeded) && width > 1 && ctx.Err() == nil:
			width /= 2 // more than a slow line brings in time
			continue
		case err != nil:
			return fmt.Errorf("reading the records from %d: %w: %w", from, errUnanswered, err)
		}
		for i, of := range window[:min(width, head.Cursor.Head.Seq-from+1)] {
			if err := visit(from+metadata.Seq(i), of); err != nil {
				return err
			}
		}
		from += width
	}
	return nil
}

// window reads the records of the commits from one sequence on, before another one: at
// most recordsWindow commits.
func (r *Reader) window(ctx context.Context, from, to metadata.Seq, revision int64) (window [recordsWindow]records, err error) {
	ctx, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	var ops []clientv3.Op
	for stream := range metadata.StreamCount {
		ops = append(ops, clientv3.OpGet(r.Layout.Record(stream, from),
			clientv3.WithRange(r.Layout.Record(stream, to)), clientv3.WithRev(revision)))
	}
	resp, err := r.Client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return window, err
	}
	for stream := range metadata.StreamCount {
		for _, kv := range resp.Responses[stream].GetResponseRange().Kvs {
			seq, err := r.Layout.seqOf(stream, string(kv.Key))
			if err == nil && seq >= from && seq < to { // else somebody else's
				window[seq-from][stream] = kv.Value
			}
		}
	}
	return window, nil
}
