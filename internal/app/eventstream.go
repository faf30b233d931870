package app

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// Events yields the journal's events that etcd holds.
func (n *clusterNode) Events(ctx context.Context, from metadata.Seq, follow bool) iter.Seq2[*pb.EventsResponse, error] {
	return func(yield func(*pb.EventsResponse, error) bool) {
		for behind := true; ; behind = false { // until it has come to the end once
			head, err := n.reader.Head(ctx)
			if err == nil && head.Head.Seq >= from {
				turn := turn(n.app.scans.CatchUp)
				if !behind && head.Head.Seq-from < eventsNear {
					turn = noTurn
				}
				err = n.events(ctx, from, head.Head.Seq, turn, yield)
				from = head.Head.Seq + 1
			}
			if err != nil && !errors.Is(err, errEnough) {
				yield(nil, errs.Wrap(errs.Unavailable, "Events", etcdclient.Explain(err)))
			}
			if err != nil || !follow || clock.Sleep(ctx, eventsPause) != nil {
				return
			}
			n.awaitCommit(ctx, from)
		}
	}
}

const (
	// eventsPause is how long a follower of events waits so that more commits come.
	eventsPause = 200 * time.Millisecond
	// eventsWait is how long it waits for one that this node may have missed.
	eventsWait = 2 * time.Second
)

// awaitCommit waits until this node has applied a commit, without asking etcd. It waits for
// eventsWait at most: a node that has lost the journal applies none.
func (n *clusterNode) awaitCommit(ctx context.Context, seq metadata.Seq) {
	ctx, cancel := context.WithTimeout(ctx, eventsWait)
	defer cancel()
	if _, _, err := n.Digest(ctx, seq); err != nil && errs.KindOf(err) == errs.Unavailable {
		_ = clock.Sleep(ctx, eventsPause) // it has no state, or its term ends
	}
}

var errEnough = errors.New("the caller takes no more events")

// events yields the events of all streams in a range of sequences, in the order in which
// they apply. It reads the range in steps, and describes few events before it yields them,
// so that little is in memory at once. It reads and describes when it is its turn.
func (n *clusterNode) events(ctx context.Context, from, through metadata.Seq, turn turn, yield func(*pb.EventsResponse, error) bool) error {
	err := turn.take(ctx, func() error {
		first, err := n.reader.Oldest(ctx, from, through)
		from = max(from, first)
		return err
	})
	if err != nil {
		return err
	}
	for ; from <= through; from += eventsStep {
		var commits map[metadata.Seq][]stamped
		last := min(from+eventsStep-1, through)
		err := turn.take(ctx, func() (err error) {
			commits, err = n.records(ctx, from, last)
			return err
		})
		if err != nil {
			return err
		}
		for seq := from; seq <= last; seq++ {
			for _, record := range commits[seq] {
				if err := n.describe(ctx, record, turn, yield); err != nil {
					return err
				}
			}
			delete(commits, seq)
		}
	}
	return nil
}

// records returns the records in a range of sequences, by commit.
func (n *clusterNode) records(ctx context.Context, from, last metadata.Seq) (map[metadata.Seq][]stamped, error) {
	commits := make(map[metadata.Seq][]stamped)
	for stream := range metadata.StreamCount {
		err := n.reader.Records(ctx, stream, from, last, func(of journal.Stamp, changes []metadata.Change) error {
			commits[of.Seq] = append(commits[of.Seq], stamped{of, changes})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return commits, nil
}

// describe yields the events of a record. It describes some, then yields them: a peer that
// reads slowly must not keep the turn.
func (n *clusterNode) describe(ctx context.Context, record stamped, turn turn, yield func(*pb.EventsResponse, error) bool) error {
	var events []*pb.EventsResponse
	for some := range slices.Chunk(record.changes, eventsAtOnce) {
		events = events[:0]
		err := turn.take(ctx, func() error {
			for _, c := range some {
				events = append(events, eventMessage(record.Stamp, c, n.Store()))
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, e := range events {
			if !yield(e, nil) {
				return errEnough
			}
		}
	}
	return nil
}

// A turn waits until a stream of events may use etcd and a processor. end lets the next one
// do so.
type turn func(ctx context.Context) (end func(), err error)

// noTurn is for a stream that keeps up: it reads what was just written, and must not wait
// for those that are behind.
func noTurn(context.Context) (end func(), err error) { return func() {}, nil }

// take does something when it is the stream's turn.
func (t turn) take(ctx context.Context, do func() error) error {
	end, err := t(ctx)
	if err != nil {
		return err
	}
	defer end()
	return do()
}

// A stamped record is the changes of one stream in a commit.
type stamped struct {
	journal.Stamp
	changes []metadata.Change
}

const (
	// eventsStep is how many commits are read at once, of up to 1 MiB each.
	eventsStep = 8
	// eventsAtOnce is how many changes of a commit are described at once.
	eventsAtOnce = 64
	// eventsNear is how many commits a stream that has come to the end may be behind while it
	// still keeps up: about what a busy primary commits within eventsPause.
	eventsNear = 512
)
