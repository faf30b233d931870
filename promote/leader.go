package promote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// A LeaderState says how far an elected node has come.
type LeaderState string

// The states of a leader.
const (
	Elected LeaderState = "elected" // it catches up; nobody serves
	Serving LeaderState = "serving"
)

// A Leader is the value of the leader key.
type Leader struct {
	// Election must stay the first field: see journal.Election.
	Election journal.Election `json:"election,omitempty"`

	NodeID string        `json:"node_id"`
	RPC    string        `json:"rpc_address"`
	HTTP   string        `json:"http_address"`
	Term   metadata.Term `json:"term"`
	State  LeaderState   `json:"state"`

	unreadable bool

	lease int64  // of the key, 0 for none
	value string // as it stands in etcd; empty if this node has not read it
}

// errLost says that another node won the election, or holds the leader key.
var errLost = errors.New("another node is elected")

// readLeader returns the elected node, or false if there is none. A key that cannot
// be read names no node.
func readLeader(ctx context.Context, client *clientv3.Client, layout journal.Layout) (Leader, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	resp, err := client.Get(ctx, layout.Leader())
	if err != nil {
		return Leader{}, false, fmt.Errorf("reading the leader: %w", err)
	}
	l, there := leaderOf(resp.Kvs)
	return l, there, nil
}

func leaderOf(kvs []*mvccpb.KeyValue) (Leader, bool) {
	if len(kvs) == 0 {
		return Leader{}, false
	}
	var l Leader
	if err := json.Unmarshal(kvs[0].Value, &l); err != nil {
		l = Leader{unreadable: true}
	}
	l.value, l.lease = string(kvs[0].Value), kvs[0].Lease
	return l, true
}

// A scene is what an election depends on, as it stands in etcd at one revision.
type scene struct {
	leader Leader
	there  bool // somebody is elected
	view   journal.View
	nodes  []NodeInfo
	pause  Pause
	asked  time.Duration // by the clock: when etcd was asked. For watchPrimary alone.
}

func readScene(ctx context.Context, client *clientv3.Client, layout journal.Layout) (s scene, err error) {
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	resp, err := client.Txn(ctx).Then(clientv3.OpGet(layout.Leader()), clientv3.OpGet(layout.Head()), nodesOp(layout), clientv3.OpGet(layout.Pause())).Commit()
	if err != nil {
		return s, fmt.Errorf("reading the leader and the head: %w", err)
	}
	s.leader, s.there = leaderOf(resp.Responses[0].GetResponseRange().Kvs)
	s.view = journal.ViewOf(resp.Header, resp.Responses[1].GetResponseRange().Kvs)
	s.nodes = nodesOf(resp.Responses[2].GetResponseRange().Kvs)
	s.pause = pauseOf(resp.Responses[3].GetResponseRange().Kvs)
	return s, nil
}

// elect creates the leader key on a session's lease, unless the key exists or etcd has
// another head. If over is not empty, an operator has ordered this node to replace the key
// with that value, whatever the head is. The same transaction reads what the elected node
// must know of others: the registered nodes, and why the previous leader was deposed, if a
// node recorded that.
func elect(
	ctx context.Context, client *clientv3.Client, layout journal.Layout, s *Session, l Leader, head journal.Cursor, over string,
) (nodes []NodeInfo, deposed string, err error) {
	if l.Term > metadata.MaxTerm {
		return nil, "", fmt.Errorf("term %d is beyond the last one possible, %d: start a new cluster id", l.Term, metadata.MaxTerm)
	}
	value, err := json.Marshal(l)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	vacant := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(layout.Leader()), "=", 0), head.Stands(layout)}
	if over != "" { // the head is not compared: the node with that key may commit until it loses it
		vacant = []clientv3.Cmp{clientv3.Compare(clientv3.Value(layout.Leader()), "=", over)}
	}
	resp, err := client.Txn(ctx).If(vacant...).Then(
		clientv3.OpPut(layout.Leader(), string(value), clientv3.WithLease(s.lease)),
		nodesOp(layout), clientv3.OpGet(layout.Term(head.Head.Term+1)),
	).Commit()
	if err != nil {
		return nil, "", fmt.Errorf("running for election: %w", err)
	}
	if !resp.Succeeded {
		return nil, "", errLost
	}
	var record TermRecord
	if kvs := resp.Responses[2].GetResponseRange().Kvs; len(kvs) == 1 && json.Unmarshal(kvs[0].Value, &record) == nil && record.NodeID == "" {
		deposed = record.Why
	}
	return nodesOf(resp.Responses[1].GetResponseRange().Kvs), deposed, nil
}

// announcement returns the operations that announce that the elected node serves: in its
// leader key, in the record of its term, in the key with its address for Mooncake's clients
// (if there is one), and in the list of complete nodes.
func announcement(layout journal.Layout, s *Session, l Leader, complete CompleteNode, r TermRecord) ([]clientv3.Op, error) {
	l.State = Serving
	value, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	record, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	ops, err := complete.list(layout)
	if err != nil {
		return nil, err
	}
	ops = append(ops, clientv3.OpPut(layout.Leader(), string(value), clientv3.WithLease(s.lease)), clientv3.OpPut(layout.Term(l.Term), string(record)))
	if layout.View != "" {
		ops = append(ops, clientv3.OpPut(layout.View, l.RPC, clientv3.WithLease(s.lease)))
	}
	return ops, nil
}

// announce writes an announcement, and returns etcd's revision with it.
func announce(ctx context.Context, client *clientv3.Client, layout journal.Layout, l Leader, ops []clientv3.Op) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	resp, err := client.Txn(ctx).If(l.Election.Holds(layout)...).Then(ops...).Commit()
	if err != nil {
		return 0, fmt.Errorf("announcing that this node serves: %w", err)
	}
	if !resp.Succeeded {
		return 0, errLost
	}
	return resp.Header.Revision, nil
}

// deleteLeader deletes the elected node's own leader key, and the key with its address for
// Mooncake's clients if etcd lets this node write that one.
func deleteLeader(ctx context.Context, client *clientv3.Client, layout journal.Layout, l Leader) error {
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	_, err := client.Txn(ctx).If(l.Election.Holds(layout)...).
		Then(layout.DeleteLeader()...).Commit()
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		_, err = client.Txn(ctx).If(l.Election.Holds(layout)...).Then(clientv3.OpDelete(layout.Leader())).Commit()
	}
	return err
}
