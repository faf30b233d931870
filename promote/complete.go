package promote

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// A CompleteNode is what etcd keeps under complete/ of a node that holds the whole
// state, so that nobody starts empty while that node is only away.
//
// A node lists itself when it has become complete, and when it announces that it serves.
// If etcd went back to before that, a node that remembers it lists it again. No lease ends
// the key, and the node does not delete it: whoever waits for a node that is listed and
// registered asks that node what it holds. Two things delete the key: an operator (masterctl
// forget), and past maxComplete a node that holds more, when it lists itself.
type CompleteNode struct {
	ID      string          `json:"node_id"`
	RPC     string          `json:"rpc_address"`
	History journal.History `json:"history,omitempty"`
	Term    metadata.Term   `json:"term"`
	Seq     metadata.Seq    `json:"sequence"` // when this was written; the node may hold more

	mayHold    string // why the node is awaited though it is registered; empty if it is away
	isUnlisted bool   // it only says that it may hold the state: etcd does not list it
}

func (c CompleteNode) String() string {
	text := fmt.Sprintf("%s (everything up to sequence %d of term %d at least)", c.ID, c.Seq, c.Term)
	switch {
	case c.isUnlisted:
		return c.ID + ", which runs, but " + c.mayHold
	case c.mayHold != "":
		text += ", which runs, but " + c.mayHold
	}
	return text
}

// maxComplete bounds the complete nodes that are listed.
const maxComplete = 100

// absentees are complete nodes that are not registered, or that cannot say what they hold.
type absentees []CompleteNode

func (a absentees) String() string {
	texts := make([]string, len(a))
	for i, c := range a {
		texts[i] = c.String()
	}
	return strings.Join(texts, ", ")
}

// listed returns the ids of those that are listed.
func (a absentees) listed() (ids []string) {
	for _, c := range a {
		if !c.isUnlisted {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// forget returns the command that gives up those that are listed; empty for none.
func (a absentees) forget() string {
	ids := a.listed()
	if ids == nil {
		return ""
	}
	return "give up what they hold: masterctl forget --yes " + strings.Join(ids, " ")
}

// help is what an operator can do about them.
func (a absentees) help() string {
	help, link := "start them", ", or "
	if slices.ContainsFunc(a, func(c CompleteNode) bool { return c.mayHold != "" }) {
		help, link = "see that they can read their state files, and start them again; or stop them", ", and "
	}
	if forget := a.forget(); forget != "" {
		return help + link + forget
	}
	return help
}

// complete returns what this node lists of itself at a head.
func (n *Node) complete(head journal.Head) CompleteNode {
	return CompleteNode{ID: n.ID, RPC: n.RPC, History: head.History, Term: head.Term, Seq: head.Seq}
}

// absent returns the complete nodes that are listed and not registered, and the registered
// ones that may hold more than they say. This node is never among them: it knows what it
// holds, also when it comes back without its state.
func (n *Node) absent(ctx context.Context, registered []NodeInfo) (absentees, error) {
	list, err := n.listComplete(ctx)
	for i := range list {
		for _, r := range registered {
			if r.ID == list[i].ID {
				list[i].mayHold = r.MayHold
			}
		}
	}
	list = slices.DeleteFunc(list, func(c CompleteNode) bool {
		return c.ID == n.ID || c.mayHold == "" && isAmong(registered, c.ID)
	})
	for _, r := range registered { // what was listed may be lost
		if r.ID != n.ID && r.MayHold != "" && !slices.ContainsFunc(list, func(c CompleteNode) bool { return c.ID == r.ID }) {
			list = append(list, CompleteNode{ID: r.ID, RPC: r.RPC, mayHold: r.MayHold, isUnlisted: true})
		}
	}
	return list, err
}

// CompleteNodes returns the other nodes that are listed as complete, by id. Those that are
// not registered are away.
func (n *Node) CompleteNodes(ctx context.Context) (ids []string, err error) {
	list, err := n.listComplete(ctx)
	for _, c := range list {
		if c.ID != n.ID {
			ids = append(ids, c.ID)
		}
	}
	return ids, err
}

func isAmong(nodes []NodeInfo, id string) bool {
	return slices.ContainsFunc(nodes, func(n NodeInfo) bool { return n.ID == id })
}

func (n *Node) listComplete(ctx context.Context) (absentees, error) {
	kvs, err := listKeys(ctx, n.Client, "the complete nodes", clientv3.OpGet(n.Layout.Complete(), clientv3.WithPrefix(), clientv3.WithLimit(2*maxComplete)))
	return n.completeOf(kvs), err
}

// completeOf decodes what is listed. A value that nobody can read counts by its key.
func (n *Node) completeOf(kvs []*mvccpb.KeyValue) (list absentees) {
	for _, kv := range kvs {
		var c CompleteNode
		if json.Unmarshal(kv.Value, &c) != nil {
			c = CompleteNode{}
		}
		c.ID = strings.TrimPrefix(string(kv.Key), n.Layout.Complete())
		list = append(list, c)
	}
	return list
}

// enlist lists this node if it holds the whole state and the list does not say so yet,
// at a head that was compared with etcd's.
func (n *Node) enlist(ctx context.Context, registered []NodeInfo, list absentees, at journal.Head) {
	s := n.Status()
	if !s.Complete || s.Loss.Err != nil || at.Seq == 0 || s.Self.Role != Primary && s.Self.Role != Standby {
		return
	}
	self := n.complete(at)
	known := slices.IndexFunc(list, func(c CompleteNode) bool { return c.ID == n.ID })
	if known >= 0 && list[known].History == self.History && list[known].Term == self.Term && list[known].RPC == self.RPC {
		return
	}
	ops, err := self.list(n.Layout)
	if err != nil {
		return
	}
	if known < 0 && len(list) >= maxComplete {
		// This node holds all that an absent node held in an earlier term of the same history.
		behind := slices.IndexFunc(list, func(c CompleteNode) bool {
			return c.History == self.History && c.Term < self.Term && !isAmong(registered, c.ID)
		})
		if behind < 0 {
			n.Log.Warn().Int("listed", len(list)).Msg("this node is not listed as complete: the list is full; strike nodes off that do not come back, with masterctl forget --yes NODE")
			return
		}
		ops = append(ops, clientv3.OpDelete(n.Layout.CompleteNode(list[behind].ID)))
	}
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	if _, err := n.Client.Txn(ctx).Then(ops...).Commit(); err != nil {
		n.Log.Debug().Err(err).Msg("this node was not listed as complete, it will be tried again")
	}
}

// list returns the operations with which a node lists itself, also after it was given up.
func (c CompleteNode) list(layout journal.Layout) ([]clientv3.Op, error) {
	op, err := c.put(layout)
	return []clientv3.Op{op, clientv3.OpDelete(layout.ForgottenNode(c.ID))}, err
}

func (c CompleteNode) put(layout journal.Layout) (clientv3.Op, error) {
	value, err := json.Marshal(c)
	return clientv3.OpPut(layout.CompleteNode(c.ID), string(value)), err
}

// awaitComplete returns an obstacle while this node, which would start empty, must wait for
// complete nodes that are away: for WaitForState after since, a time by the clock.
func (n *Node) awaitComplete(ctx context.Context, registered []NodeInfo, since time.Duration) error {
	absent, err := n.absent(ctx, registered)
	if err != nil || len(absent) == 0 {
		return err
	}
	waited := n.Clock() - since
	if n.WaitForState > 0 && waited >= n.WaitForState {
		n.Log.Warn().Stringer("absent", absent).Dur("waited", waited).Msg("this node starts without what these nodes hold")
		return nil
	}
	o := &Obstacle{
		Cause:  AwaitsComplete,
		Reason: "this node holds no state, and waits for nodes that held it, and are away or cannot say what they hold: " + absent.String(),
		Help:   absent.help(), Awaited: len(absent),
	}
	if n.WaitForState > 0 {
		o.Reason += fmt.Sprintf("; it starts empty without them after %v", n.WaitForState)
	}
	return o
}
