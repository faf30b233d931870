package promote

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/journal"
)

// errUncovered says that history is kept because nobody has saved what it leads to.
var errUncovered = errors.New("this node has no complete state to save in its place; see that it becomes one, or raise --etcd-quota-bytes")

// cover says which part of the journal may go when the embedded etcd is nearly full. A
// complete node saves its state first, and then everything up to that state may go.
// Otherwise history is kept back to the oldest of the nodes' newest state files, as always.
// If no node has a file, a restart of all nodes loses the state in any case. The error says
// why more is kept.
func (n *Node) cover(ctx context.Context) (journal.Cover, error) {
	view, err := n.reader().Look(ctx)
	if err != nil {
		return journal.Cover{}, err
	}
	if err := n.retention.look(ctx); err != nil {
		return journal.Cover{}, err
	}
	// Only state files count here (saved), not snapshots that are being loaded: in a full
	// etcd a node may be unable to publish that it needs the journal no more.
	head, from := view.Cursor.Head, n.retention.saved
	same := func(at journal.Cursor) bool { return view.Err == nil && at.Head.History.Is(head.History) }
	covers := func(at journal.Cursor) bool { return same(at) && at.Head.Bytes == head.Bytes } // most beats hold nothing
	all := journal.Cover{Revision: view.Revision, Seq: head.Seq}
	of, files := n.source(), n.saver.dir != nil
	switch {
	case of == nil && from < view.Revision:
		err = errUncovered
	case of == nil:
	case !files && from == math.MaxInt64 && covers(of.At()):
		return all, nil
	case files:
		if !covers(n.saver.position()) && n.saver.rested() {
			n.saver.save(ctx, of)
		}
		fault, saved := n.saver.status().Fault, n.saver.position()
		switch {
		case covers(saved):
			return all, nil
		case fault != nil:
			err = fmt.Errorf("this node's state cannot be saved in its place: %w; see that --state-dir can be written and has space, or raise --etcd-quota-bytes", fault)
		case same(saved):
			return journal.Cover{Revision: saved.Revision, Seq: saved.Head.Seq}, nil // beats that free memory have come since
		default:
			err = errUncovered
		}
	}
	return journal.Cover{Revision: min(from, view.Revision)}, err
}

// hold refuses changes while an embedded etcd, this node's or another one's, is nearly
// full: what is left is for beats, elections and the making of space.
func (t *Term) hold(nodes []NodeInfo) {
	n := t.node
	full := n.compactor.Space().Full() || slices.ContainsFunc(nodes, func(o NodeInfo) bool { return o.EtcdFull })
	if full == t.held {
		return
	}
	if t.held = full; !full {
		t.Queue.Hold(nil)
		n.Log.Info().Msg("etcd has space again: changes are taken")
		return
	}
	t.Queue.Hold(errEtcdFull)
	n.Log.Warn().Msg("etcd is nearly full: changes are refused until there is space")
}

var errEtcdFull = errs.New(errs.Unavailable, "journal", "etcd's database has reached 90 %% of its quota, and changes are refused until its node has made space; nothing was changed, try again")
