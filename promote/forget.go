package promote

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// A forgottenNode is the value under forgotten/ for a node that an operator gave up. Without
// it, a node that was away meanwhile would list that node as complete again. The node itself
// deletes the key when it is complete again.
type forgottenNode struct {
	Term metadata.Term `json:"term"`     // the last one that was known
	Seq  metadata.Seq  `json:"sequence"` // the last one that was known; 0, from older versions, means all of the term
}

// Forget strikes a node off the list of complete ones, because an operator knows that
// it does not come back, or that what it holds is not wanted. It also deletes the node's key
// under nodes/ if that has no lease. Errors: InvalidParams for a node that is not listed,
// Unavailable while it runs or etcd does not answer, Unresolved without an answer to the
// order itself.
func (n *Node) Forget(ctx context.Context, id string) error {
	const op = "Forget"
	list, err := n.listComplete(ctx)
	if err != nil {
		return errs.Wrap(errs.Unavailable, op, etcdclient.Explain(err))
	}
	i := slices.IndexFunc(list, func(c CompleteNode) bool { return c.ID == id })
	if i < 0 && len(list) == 0 {
		return errs.New(errs.InvalidParams, op, "no node %q is listed as complete; no node is listed", id)
	}
	if i < 0 {
		return errs.New(errs.InvalidParams, op, "no node %q is listed as complete; there are: %v", id, list)
	}
	s, runs, err := n.runs(ctx, list[i])
	if err != nil {
		return errs.New(errs.Unavailable, op, "node %s runs, at %s, and cannot say yet what it holds (%v): wait until it can, or stop it, and ask again", id, list[i].RPC, err)
	}
	if runs {
		if s.Position.Seq == 0 {
			return errs.New(errs.Unavailable, op, "node %s runs, at %s, without a state; stop it, and ask again", id, list[i].RPC)
		}
		return errs.New(errs.Unavailable, op, "node %s runs, at %s: it holds sequence %d of term %d; see that it reaches etcd, or stop it",
			id, list[i].RPC, s.Position.Seq, s.Position.Term)
	}
	ops, err := n.strike(ctx, list[i])
	if err != nil {
		return errs.Wrap(errs.Unavailable, op, err)
	}
	attempt, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	// A node writes its key on a lease. One without compares as 0, like no key: not the node's.
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

// forgetAsk bounds the question to a node that is to be struck off: packets to a machine
// that is gone may be lost, and the whole order has only a few seconds.
const forgetAsk = 2 * time.Second

// runs asks another node that is listed whether it runs. It returns a *StartingError if that
// one runs and cannot say yet what it holds.
func (n *Node) runs(ctx context.Context, c CompleteNode) (Standing, bool, error) {
	if c.ID == n.ID || c.RPC == "" {
		return Standing{}, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, forgetAsk)
	defer cancel()
	s, err := n.Peers.Standing(ctx, c.RPC)
	var starting *StartingError
	if errors.As(err, &starting) && starting.NodeID == c.ID {
		return Standing{}, false, starting
	}
	return s, err == nil && s.ID == c.ID, nil
}

// strike returns the operations that strike a node off and record that under forgotten/. At
// most maxComplete nodes are recorded there: the one that was given up first goes.
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

// relist lists the nodes that this node remembers as complete and that etcd lists no more,
// because it went back to before they listed themselves. They count as away until they are
// registered, or an operator gives them up. One may be registered already, and still load
// its state. Nodes that were given up since stay off the list: list was read before
// forgotten/, so each of them stands there. relist returns the list with those that it added.
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

// wasForgotten reports whether a node was given up after it was remembered. Sequences count,
// too: the node may have come back within the term. A value that cannot be read was written
// by somebody else, and does not count.
func (n *Node) wasForgotten(forgotten []*mvccpb.KeyValue, id string, m memory) bool {
	return slices.ContainsFunc(forgotten, func(kv *mvccpb.KeyValue) bool {
		var f forgottenNode
		if strings.TrimPrefix(string(kv.Key), n.Layout.Forgotten()) != id || json.Unmarshal(kv.Value, &f) != nil {
			return false
		}
		return m.Term < f.Term || m.Term == f.Term && (f.Seq == 0 || m.Seq <= f.Seq)
	})
}
