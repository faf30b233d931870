package promote

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// A TermRecord describes for operators how a term began. No decision depends on it.
type TermRecord struct {
	Term   metadata.Term `json:"term"`
	NodeID string        `json:"node_id,omitempty"` // empty while nobody has served in the term
	Began  string        `json:"began,omitempty"`   // wall time, RFC 3339
	Why    string        `json:"why"`               // the node became primary
	Gap    int64         `json:"gap_ms"`            // without a primary before, as the node saw it
}

// keptTerms is how many records of terms are kept.
const keptTerms = 100

// Terms returns the records of the last terms, oldest first.
func (n *Node) Terms(ctx context.Context) ([]TermRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	resp, err := n.Client.Get(ctx, n.Layout.Terms(), clientv3.WithPrefix(), clientv3.WithLimit(2*keptTerms))
	if err != nil {
		return nil, fmt.Errorf("reading the history of terms: %w", err)
	}
	var records []TermRecord
	for _, kv := range resp.Kvs {
		var r TermRecord
		if json.Unmarshal(kv.Value, &r) == nil {
			records = append(records, r)
		}
	}
	return records, nil
}

// record writes the record of a term that has begun to serve, and deletes those
// that are too old. It is no part of the takeover: if it fails, only the record is
// missing.
func (t *Term) record(ctx context.Context) {
	n := t.node
	r := TermRecord{
		Term: t.Number, NodeID: n.ID, Began: clock.Wall().UTC().Format(time.RFC3339Nano), Why: t.why, Gap: t.gap.Milliseconds(),
	}
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	value, err := json.Marshal(r)
	if err != nil {
		return
	}
	ops := []clientv3.Op{clientv3.OpPut(n.Layout.Term(t.Number), string(value))}
	if t.Number > keptTerms {
		ops = append(ops, clientv3.OpDelete(n.Layout.Term(0), clientv3.WithRange(n.Layout.Term(t.Number-keptTerms+1))))
	}
	if _, err := n.Client.Txn(ctx).Then(ops...).Commit(); err != nil {
		n.Log.Debug().Err(err).Msg("the term was not recorded")
	}
}

// reason returns why a term begins, as far as the head before it and the previous
// leader show.
func reason(before journal.Head, leader Leader, empty bool) string {
	switch {
	case before.Seq == 0:
		return "there was no journal"
	case empty:
		return "no node held the previous state; started empty"
	case before.Clean && before.Heir != "":
		return fmt.Sprintf("%s handed over", leader.NodeID)
	case before.Clean:
		return fmt.Sprintf("%s stopped", leader.NodeID)
	case leader.NodeID == "":
		return "there was no leader key"
	}
	return fmt.Sprintf("the leader key of %s was gone: its session had ended, or somebody deleted it", leader.NodeID)
}
