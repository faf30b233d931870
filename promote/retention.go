package promote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// A retention says how far back the journal, its history and its records, must be kept: to
// the newest state file of every node, so that a node that restarts can go on from its own,
// and to the positions that nodes need while they load a snapshot or write a file.
type retention struct {
	node   *Node
	from   int64                    // revision from which history is kept, as read last; 0 for all
	saved  int64                    // the same for the state files alone
	seq    metadata.Seq             // behind which records are kept, as read last
	absent map[string]time.Duration // since when, by the clock, nodes are not registered
}

// absentFor is how long the journal is kept for a node that is not registered.
const absentFor = time.Hour

// maintain keeps etcd's history within its bounds until the context ends, and makes space
// in an embedded etcd. A node in which etcd is embedded runs it for as long as the node
// lives, since no primary elsewhere compacts that etcd. An external etcd is compacted by the
// primary, during its term.
func (n *Node) maintain(ctx context.Context) error {
	n.retention.from = 0
	clear(n.retention.absent)
	return n.compactor.Run(ctx)
}

// maintainPatience bounds how long a node that stops waits for what maintain has begun.
// Together with the handover and the last save it is shorter than the time that a service
// has to stop (30 s in deploy/systemd).
const maintainPatience = 5 * time.Second

// awaitMaintenance waits for the end of maintain, whose context has ended. What it has begun
// in etcd, such as a defragmentation, goes on in any case.
func (n *Node) awaitMaintenance(maintaining *task) {
	if maintaining == nil {
		return
	}
	patience := time.NewTimer(maintainPatience)
	defer patience.Stop()
	select {
	case <-maintaining.ended:
	case <-patience.C:
		n.etcdBusy.Store(true)
		n.Log.Warn().Dur("waited", maintainPatience).Msg("this node stops while its etcd is compacted or defragmented: that is not waited for")
	}
}

// EtcdBusy reports whether Run has ended while the etcd of this node was compacted or
// defragmented. One that is embedded must not be closed then: it would crash. The end of
// the process does it no harm.
func (n *Node) EtcdBusy() bool { return n.etcdBusy.Load() }

// end returns where the journal ends, for the compactor. It is zero if etcd does not say, or
// may have lost the journal.
func (n *Node) end(ctx context.Context) journal.Cursor {
	at, follows := n.tip() // before the look: the journal never goes back
	if !follows {
		return at
	}
	view, err := n.reader().Look(ctx)
	if err != nil || errors.Is(at.Against(view.Cursor, view.Err), journal.ErrLost) {
		return journal.Cursor{}
	}
	return view.Cursor
}

// tip returns where the journal stands as far as this node knows: zero if it knows nothing,
// or the journal is lost. follows says that another node may write the journal.
func (n *Node) tip() (at journal.Cursor, follows bool) {
	n.mu.Lock()
	t, f := n.term, n.follower
	n.mu.Unlock()
	switch {
	case t != nil:
		return t.log.Tip(), false
	case f == nil || f.Lost().Err != nil:
		return journal.Cursor{}, false
	}
	_, at = f.State()
	return at, true
}

// History returns the journal that this node's state comes from; empty for none, and for one
// that was lost.
func (n *Node) History() journal.History {
	at, _ := n.tip()
	return at.Head.History
}

func newRetention(n *Node) *retention {
	return &retention{node: n, absent: make(map[string]time.Duration)}
}

// keepFrom returns the revision from which history is kept, as read last if etcd does not
// answer.
func (r *retention) keepFrom(ctx context.Context) int64 {
	if err := r.look(ctx); err != nil && ctx.Err() == nil {
		r.node.Log.Debug().Err(err).Msg("reading the positions of state files failed, it will be tried again")
	}
	return r.from
}

// covered returns the sequence up to which no node needs records.
func (r *retention) covered(ctx context.Context) (metadata.Seq, error) {
	if err := r.look(ctx); err != nil {
		return 0, fmt.Errorf("reading the positions of state files: %w", err)
	}
	return r.seq, nil
}

func (r *retention) look(ctx context.Context) error {
	n := r.node
	attempt, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	resp, err := n.Client.Txn(attempt).Then(
		nodesOp(n.Layout), clientv3.OpGet(n.Layout.Saved(), clientv3.WithPrefix()), clientv3.OpGet(n.Layout.Head()),
	).Commit()
	if err != nil {
		return err
	}
	tip := journal.ViewOf(resp.Header, resp.Responses[2].GetResponseRange().Kvs).Cursor.Head
	nodes := nodesOf(resp.Responses[0].GetResponseRange().Kvs)
	for _, id := range r.keepFor(resp.Responses[1].GetResponseRange().Kvs, nodes, tip) {
		if _, err := n.Client.Delete(attempt, n.Layout.SavedBy(id)); err == nil { // else tried again the next time
			delete(r.absent, id)
		}
	}
	return nil
}

// keepFor keeps the journal for the state files that are recorded under saved/ and for what
// nodes need. It returns the ids of nodes whose records are of no use.
func (r *retention) keepFor(files []*mvccpb.KeyValue, nodes []NodeInfo, tip journal.Head) (useless []string) {
	r.saved, r.seq = math.MaxInt64, math.MaxInt64
	for _, kv := range files {
		var file place
		id := strings.TrimPrefix(string(kv.Key), r.node.Layout.Saved())
		registered := slices.ContainsFunc(nodes, func(o NodeInfo) bool { return o.ID == id })
		if r.gone(id, registered) || json.Unmarshal(kv.Value, &file) != nil {
			useless = append(useless, id)
			continue
		}
		r.keep(file, tip, &r.saved)
	}
	r.from = r.saved
	for _, node := range nodes {
		for _, needed := range node.Needs {
			if needed.Revision > 0 {
				r.keep(needed, tip, &r.from)
			}
		}
	}
	return useless
}

// keep keeps the journal from a place on, unless the records behind it exceed
// MaxJournalBytes: then they are cut, and the rest leads nowhere.
func (r *retention) keep(p place, tip journal.Head, from *int64) {
	if p.Bytes == 0 || journal.RecordBytes(journal.Head{Seq: p.Seq, Bytes: p.Bytes}, tip) <= r.node.MaxJournalBytes {
		*from, r.seq = min(*from, p.Revision), min(r.seq, p.Seq)
	}
}

// gone reports whether a node has been absent for so long that it keeps nothing back
// any more.
func (r *retention) gone(id string, registered bool) bool {
	if registered {
		delete(r.absent, id)
		return false
	}
	now := r.node.Clock()
	since, known := r.absent[id]
	if !known {
		r.absent[id], since = now, now
	}
	return now-since >= absentFor
}
