package promote

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/journal"
)

// A Pause is an operator's order that no node takes over by itself, nor founds a lost
// journal anew. It only holds elections back; a primary is fenced as ever. The successor that
// a handover chose, and the node that served last, may still be elected.
//
// It stands in etcd, beside the journal, on a lease: so it ends in time, whatever
// becomes of the operator and the nodes. But etcd restarts a lease's TTL whenever another
// member becomes its leader, or it restarts or is restored; so the nodes count too, by their
// own clocks. A deposal compares the key in its own transaction.
type Pause struct {
	NodeID string `json:"node_id"` // the node that the operator asked
	For    string `json:"for"`     // how long, as time.ParseDuration reads it

	there bool
	lease clientv3.LeaseID // of the key
	rev   int64            // of the key's last change
}

// MaxPause bounds a pause.
const MaxPause = 24 * time.Hour

func pauseOf(kvs []*mvccpb.KeyValue) (p Pause) {
	if len(kvs) == 0 {
		return p
	}
	_ = json.Unmarshal(kvs[0].Value, &p) // it holds, whatever stands in it
	if d, err := time.ParseDuration(p.For); err != nil || d < 0 || d > MaxPause {
		p.For = MaxPause.String()
	}
	p.there, p.lease, p.rev = true, clientv3.LeaseID(kvs[0].Lease), kvs[0].ModRevision
	return p
}

// A pauseCount says since when this node has seen a pause, by its clock.
type pauseCount struct {
	rev   int64
	since time.Duration
}

// servedBy says since when this node has seen one leader key, by its clock.
type servedBy struct {
	by    journal.Election
	since time.Duration
}

// outlast returns the pause that is in force. It deletes the key of a pause that this node
// has seen for as long as it was to last. If the key was lost with the journal, nobody has
// ended the pause, and it goes on. But once one leader key has stood for longer than that of
// a dead node can, the pause was ended, or belongs to another journal.
func (n *Node) outlast(ctx context.Context, s scene, isLost bool) Pause {
	p := s.pause
	if !s.there || s.leader.Election != n.served.by {
		n.served = servedBy{s.leader.Election, n.Clock()}
	}
	switch {
	case !isLost:
		n.lastPause = p
	case p.there: // it was not lost, or stands again: if it goes now, somebody has ended it
		n.lastPause = Pause{}
	case s.there:
		if n.Clock()-n.served.since > 2*n.SessionTTL {
			n.lastPause = Pause{}
		}
	default:
		p = n.retain(ctx)
	}
	left := n.pauseLeft(p)
	n.setPaused(p.there)
	if !p.there || left > 0 {
		return p
	}
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	resp, err := n.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(n.Layout.Pause()), "=", p.rev)).
		Then(clientv3.OpDelete(n.Layout.Pause())).Commit()
	if err != nil || !resp.Succeeded {
		return p // the next look tries again
	}
	n.Log.Warn().Str("lasted", p.For).Msg("automatic takeover is no longer paused: the time is over")
	n.setPaused(false)
	return Pause{}
}

// retain writes the pause that stood beside the journal into etcd again, for as long as it
// still lasts, and returns it, also if it cannot be written.
func (n *Node) retain(ctx context.Context) Pause {
	left := n.pauseLeft(n.lastPause).Round(time.Second)
	if left == 0 {
		return Pause{}
	}
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	put, err := n.putPause(ctx, Pause{NodeID: n.lastPause.NodeID, For: left.String()}, left)
	if err == nil {
		_, err = n.Client.Txn(ctx).If(notPaused(n.Layout)).Then(put).Commit()
	}
	n.Log.Warn().Err(err).Dur("lasts", left).Msg("the pause of automatic takeover was lost with the journal: this node writes it again")
	return n.lastPause
}

// putPause returns the operation that writes a pause, on a lease that it has granted.
func (n *Node) putPause(ctx context.Context, p Pause, d time.Duration) (clientv3.Op, error) {
	value, err := json.Marshal(p)
	if err != nil {
		return clientv3.Op{}, err
	}
	lease, err := n.Client.Grant(ctx, int64((d+time.Second-1)/time.Second))
	if err != nil {
		return clientv3.Op{}, err
	}
	return clientv3.OpPut(n.Layout.Pause(), string(value), clientv3.WithLease(lease.ID)), nil
}

// pauseLeft is how long a pause still lasts for this node; 0 for none.
func (n *Node) pauseLeft(p Pause) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !p.there {
		return 0
	}
	if n.pauseCount.rev != p.rev {
		n.pauseCount = pauseCount{p.rev, n.Clock()}
	}
	d, _ := time.ParseDuration(p.For) // pauseOf has seen to it
	return max(0, d-(n.Clock()-n.pauseCount.since))
}

// notPaused is the condition that no pause stands in etcd.
func notPaused(layout journal.Layout) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(layout.Pause()), "=", 0)
}

// despitePause reports whether this node may be elected in spite of a pause: nobody has ever
// served, the primary handed over to this node, or this node served last. It knows the last
// itself, or after a restart from the records of terms.
func (n *Node) despitePause(ctx context.Context, head journal.Head) (bool, error) {
	if head.Seq == 0 || head.Heir == n.ID || head.Term == n.led {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	resp, err := n.Client.Do(ctx, n.newestTerms())
	if err != nil {
		return false, err
	}
	for _, kv := range resp.Get().Kvs {
		var last TermRecord
		if err := json.Unmarshal(kv.Value, &last); err != nil || last.NodeID != "" {
			return last.NodeID == n.ID, nil
		}
	}
	return false, nil
}

func (n *Node) setPaused(paused bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused = paused
}

// obstacle is that of a node that could take over but for a pause. fault says what is wrong
// with the primary or the journal.
func (p Pause) obstacle(fault string) error {
	return &Obstacle{Cause: TakeoverPaused, Reason: fmt.Sprintf("automatic takeover is paused (masterctl pause --for %s), and %s", p.For, fault),
		Help: "start the primary again, or let another node take over: masterctl resume"}
}

// PauseTakeover pauses automatic takeover for a time, from now on; 0 ends the pause.
// Errors: InvalidParams, Unavailable, Unresolved.
func (n *Node) PauseTakeover(ctx context.Context, d time.Duration) error {
	const op = "PauseTakeover"
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	if d == 0 {
		if _, err := n.Client.Delete(ctx, n.Layout.Pause()); err != nil {
			return errs.Wrap(journal.KindOf(err), op, etcdclient.Explain(err))
		}
		n.Log.Info().Msg("automatic takeover is no longer paused")
		return nil
	}
	if d < time.Second || d > MaxPause {
		return errs.New(errs.InvalidParams, op, "a pause of %v; give 1s to %v", d, MaxPause)
	}
	put, err := n.putPause(ctx, Pause{NodeID: n.ID, For: d.String()}, d)
	if err != nil {
		return errs.Wrap(errs.Unavailable, op, etcdclient.Explain(err))
	}
	if _, err := n.Client.Do(ctx, put); err != nil {
		return errs.Wrap(journal.KindOf(err), op, etcdclient.Explain(err))
	}
	n.Log.Warn().Dur("lasts", d).Msg("automatic takeover is paused: if the primary dies, no other node serves until the pause ends")
	return nil
}

// Paused returns how long the pause in etcd still lasts, at least a second; 0 for none.
func (n *Node) Paused(ctx context.Context) (left time.Duration, err error) {
	resp, err := n.Client.Get(ctx, n.Layout.Pause())
	if err != nil {
		return 0, err
	}
	p := pauseOf(resp.Kvs)
	if !p.there {
		return 0, nil
	}
	left = n.pauseLeft(p)
	if p.lease != 0 { // else somebody wrote it by hand, and only the nodes count
		ttl, err := n.Client.TimeToLive(ctx, p.lease)
		if err != nil {
			return 0, err
		}
		left = min(left, time.Duration(ttl.TTL)*time.Second)
	}
	return max(time.Second, left), nil
}
