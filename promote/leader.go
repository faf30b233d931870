package promote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

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
	if len(resp.Kvs) == 0 {
		return Leader{}, false, nil
	}
	var l Leader
	if err := json.Unmarshal(resp.Kvs[0].Value, &l); err != nil {
		l = Leader{unreadable: true}
	}
	l.value, l.lease = string(resp.Kvs[0].Value), resp.Kvs[0].Lease
	return l, true, nil
}

// elect creates the leader key on a session's lease, for the term behind the
// head's, unless somebody else holds it.
func elect(ctx context.Context, client *clientv3.Client, layout journal.Layout, s *Session, l Leader, head journal.Cursor) (Leader, error) {
	l.Term, l.State, l.Election = head.Head.Term+1, Elected, journal.NewElection()
	if l.Term > metadata.MaxTerm {
		return l, fmt.Errorf("term %d is beyond the last one possible, %d: start a new cluster id", l.Term, metadata.MaxTerm)
	}
	value, err := json.Marshal(l)
	if err != nil {
		return l, err
	}
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	resp, err := client.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(layout.Leader()), "=", 0),
		head.Stands(layout),
	).Then(clientv3.OpPut(layout.Leader(), string(value), clientv3.WithLease(s.lease))).Commit()
	if err != nil {
		return l, fmt.Errorf("running for election: %w", err)
	}
	if !resp.Succeeded {
		return l, errLost
	}
	return l, nil
}

// announce says in the elected node's own leader key that it serves, in the key for
// other clients where, and that this node is complete. It returns etcd's revision of
// that.
func announce(ctx context.Context, client *clientv3.Client, layout journal.Layout, s *Session, l Leader, complete CompleteNode) (int64, error) {
	l.State = Serving
	value, err := json.Marshal(l)
	if err != nil {
		return 0, err
	}
	listed, err := complete.put(layout)
	if err != nil {
		return 0, err
	}
	ops := []clientv3.Op{clientv3.OpPut(layout.Leader(), string(value), clientv3.WithLease(s.lease)), listed}
	if layout.View != "" {
		ops = append(ops, clientv3.OpPut(layout.View, l.RPC, clientv3.WithLease(s.lease)))
	}
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

// deleteLeader deletes the elected node's own leader key, and what goes with it.
func deleteLeader(ctx context.Context, client *clientv3.Client, layout journal.Layout, l Leader) error {
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	_, err := client.Txn(ctx).If(l.Election.Holds(layout)...).
		Then(layout.DeleteLeader()...).Commit()
	return err
}
