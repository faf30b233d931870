package promote

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// A forgottenNode is what etcd keeps under forgotten/ of a node that an operator gave up: a
// node that was away meanwhile remembers it as complete, and would list it again. The node
// itself deletes the key when it is complete again.
type forgottenNode struct {
	Term metadata.Term `json:"term"`     // the last one of which anybody knew
	Seq  metadata.Seq  `json:"sequence"` // and so the last sequence; 0 from older versions: all of the term
}

// Forget strikes a node off the list of complete ones, because an operator knows that
// it does not come back, or that what it holds is not wanted. Whatever stands under the node's
// key without a lease goes, too. Errors: InvalidParams for
// a node that is not listed, Unavailable while it runs or etcd does not answer, Unresolved
// without an answer to the order itself.
func (n *Node) Forget(ctx context.Context, id string) error {
	const op = "Forget"
	list, err := n.listComplete(ctx)
	if err != nil {
		return errs.Wrap(errs.Unavailable, op, err)
	}
	i := slices.IndexFunc(list, func(c CompleteNode) bool { return c.ID == id })
	if i < 0 {
		return errs.New(errs.InvalidParams, op, "no node %q is listed as complete; there are: %v", id, list)
	}
	if s, runs := n.runs(ctx, list[i]); runs {
		return errs.New(errs.Unavailable, op, "node %s runs, at %s: it holds sequence %d of term %d; see that it reaches etcd, or stop it",
			id, list[i].RPC, s.Position.Seq, s.Position.Term)
	}
	ops, err := n.strike(ctx, list[i])
	if err != nil {
		return errs.Wrap(errs.Unavailable, op, err)
	}
	attempt, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	// A node writes its key on a lease: one without, which compares as none, is a stranger's.
	resp, err := n.Client.Txn(attempt).If(clientv3.Compare(clientv3.LeaseValue(n.Layout.Node(id)), "=", 0)).
		Then(append(ops, clientv3.OpDelete(n.Layout.Node(id)))...).Commit()
	switch {
	case err != nil:
		return errs.Wrap(journal.KindOf(err), op, err)
	case !resp.Succeeded:
		return errs.New(errs.Unavailable, op, "node %s is registered: it runs, or has ended within its session TTL", id)
	}
	n.Log.Warn().Str("gave_up", list[i].String()).Msg("an operator struck a node off the list of complete ones")
	n.poke()
	return nil
}

// forgetAsk is for how long a node that is to be struck off is asked: the packets to a machine
// that has gone may be lost, and the order has a few seconds in all.
const forgetAsk = 2 * time.Second

// runs asks another node that is listed whether it runs.
func (n *Node) runs(ctx context.Context, c CompleteNode) (Standing, bool) {
	if c.ID == n.ID || c.RPC == "" {
		return Standing{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, forgetAsk)
	defer cancel()
	s, err := n.Peers.Standing(ctx, c.RPC)
	return s, err == nil && s.ID == c.ID
}

// strike returns what strikes a node off, and remembers that. At most maxComplete nodes are
// remembered so: the one that was given up first goes.
func (n *Node) strike(ctx context.Context, gone CompleteNode) ([]clientv3.Op, error) {
	view, err := n.reader().Look(ctx)
	if err != nil {
		return nil, err
	}
	forgotten, err := n.listForgotten(ctx)
	if err != nil {
		return nil, err
	}
	seen, head := n.companions.known(), view.Cursor.Head
	value, err := json.Marshal(forgottenNode{Term: max(gone.Term, head.Term, seen.LastTerm), Seq: max(gone.Seq, head.Seq, seen.Seq)})
	if err != nil {
		return nil, err
	}
	ops := []clientv3.Op{
		clientv3.OpDelete(n.Layout.CompleteNode(gone.ID)), clientv3.OpDelete(n.Layout.SavedBy(gone.ID)),
		clientv3.OpPut(n.Layout.ForgottenNode(gone.ID), string(value)),
	}
	if len(forgotten) >= maxComplete {
		first := slices.MinFunc(forgotten, func(a, b *mvccpb.KeyValue) int { return int(a.ModRevision - b.ModRevision) })
		if key := string(first.Key); key != n.Layout.ForgottenNode(gone.ID) {
			ops = append(ops, clientv3.OpDelete(key))
		}
	}
	return ops, nil
}

func (n *Node) listForgotten(ctx context.Context) ([]*mvccpb.KeyValue, error) {
	return listKeys(ctx, n.Client, "the nodes that were given up", clientv3.OpGet(n.Layout.Forgotten(), clientv3.WithPrefix(), clientv3.WithLimit(2*maxComplete)))
}

// relist lists nodes that are remembered as complete and that etcd knows nothing of any
// more: it went back to before they listed themselves. One may be registered, and load its
// state yet. They count as away until they are registered, or an operator gives them up.
// Those that were given up since are left out. It returns the list with them. The list was
// read before: whoever is missing there because he was given up stands under forgotten/.
func (n *Node) relist(ctx context.Context, list absentees, m memory) (absentees, error) {
	forgotten, err := n.listForgotten(ctx)
	if err != nil {
		return list, err
	}
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	for id, address := range m.At {
		isListed := slices.ContainsFunc(list, func(c CompleteNode) bool { return c.ID == id })
		if isListed || len(list) >= maxComplete || n.wasForgotten(forgotten, id, m) {
			continue
		}
		c := CompleteNode{ID: id, RPC: address, History: m.History, Term: m.Term}
		op, err := c.put(n.Layout)
		if err != nil {
			return list, err
		}
		isNew := clientv3.Compare(clientv3.CreateRevision(n.Layout.CompleteNode(id)), "=", 0)
		if _, err := n.Client.Txn(ctx).If(isNew).Then(op).Commit(); err != nil {
			return list, err
		}
		n.Log.Warn().Str("peer", id).Msg("etcd knows nothing of a node that held the whole state: this node lists it as away")
		list = append(list, c)
	}
	return list, nil
}

// wasForgotten reports whether a node was given up after it was remembered: it may have come
// back within the term. What nobody can read was written by somebody else, and says nothing.
func (n *Node) wasForgotten(forgotten []*mvccpb.KeyValue, id string, m memory) bool {
	return slices.ContainsFunc(forgotten, func(kv *mvccpb.KeyValue) bool {
		var f forgottenNode
		if strings.TrimPrefix(string(kv.Key), n.Layout.Forgotten()) != id || json.Unmarshal(kv.Value, &f) != nil {
			return false
		}
		return m.Term < f.Term || m.Term == f.Term && (f.Seq == 0 || m.Seq <= f.Seq)
	})
}
