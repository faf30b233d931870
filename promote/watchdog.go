package promote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote/follower"
)

// A watchdog deposes the elected node when its commits stop although etcd is well
// (docs/design.md, section 8, Beats). It belongs to a standby.
//
// When no newer head has come for the failover time of the last one, it reads the leader
// and the head twice. If both reads are quick and show what this node knows, it deletes the
// leader key in a transaction that compares both values: a commit that comes in between
// keeps the primary. The transaction also writes, so that a full etcd refuses it: then the
// primary is not at fault. Another read, earlier, shows whether etcd is well (see wait).
type watchdog struct {
	node     *Node
	follower *follower.Follower

	head  journal.Head  // the newest that this node knows of, from its watch or by reading
	since time.Duration // by the clock: when it learned of it
	// doubt says that etcd did not answer in time since then. The primary may have been cut
	// off, too, so a whole failover time passes between the two reads.
	doubt bool
	asked bool // etcd was read since then, before the failover time had passed
}

const (
	// promptly bounds a read: if etcd takes longer, the primary may be silent because
	// of etcd. It is also the time between the two reads.
	promptly = 100 * time.Millisecond
	// lookPause is the pause after a read that did not succeed in time.
	lookPause = 50 * time.Millisecond
	// lookEvery is how often a node that may not depose checks whether it may now.
	lookEvery = 250 * time.Millisecond
)

// run watches until the context ends.
func (w *watchdog) run(ctx context.Context) {
	for ctx.Err() == nil {
		left, armed := w.left()
		switch {
		case !armed:
			_ = clock.Sleep(ctx, lookEvery)
		case left > 0:
			w.wait(ctx, left)
		default:
			w.bite(ctx)
		}
	}
}

// wait waits until the failover time has passed, for left at most. After 3/5 of that time
// it reads once, to learn whether etcd is well while the primary is silent: if etcd came
// back only at the end, the silence would prove nothing against the primary.
func (w *watchdog) wait(ctx context.Context, left time.Duration) {
	early := left - w.head.FailoverAfter()*2/5
	switch {
	case early > 0:
		_ = clock.Sleep(ctx, early)
	case !w.asked:
		w.asked = true
		_, _ = w.look(ctx)
	default:
		_ = clock.Sleep(ctx, left)
	}
}

// left returns how long it is until the elected node has been silent for too
// long. It reports false if this node may depose nobody.
func (w *watchdog) left() (left time.Duration, armed bool) {
	n := w.node
	if head, learned := w.follower.Learned(); head.After(w.head) {
		w.head, w.since, w.doubt, w.asked = head, learned, false, false
	}
	failover := w.head.FailoverAfter()
	leader, since := n.leaderSeen()
	if may, _ := n.promotable(w.follower.Status(), journal.Cursor{Head: w.head}); !may || failover == 0 || leader.value == "" {
		return 0, false
	}
	return max(w.since, since) + failover - n.Clock(), true
}

// bite deposes the elected node if etcd is well and shows that its commits have
// stopped.
func (w *watchdog) bite(ctx context.Context) {
	n, apart := w.node, promptly
	first, err := w.look(ctx)
	if err != nil {
		return
	}
	if w.doubt {
		apart = w.head.FailoverAfter()
	}
	if clock.Sleep(ctx, apart) != nil {
		return
	}
	second, err := w.look(ctx)
	if err != nil || first != second {
		return
	}
	silent := n.Clock() - w.since
	if err := w.depose(ctx, second, silent); err != nil {
		n.Log.Debug().Err(err).Msg("not deposed")
		w.since = n.Clock() // a full etcd is no reason to ask all the time
		return
	}
	n.deposals.Add(1)
	n.Log.Warn().Str("leader", second.of.NodeID).Uint64("term", uint64(second.of.Term)).Dur("silent", silent).
		Msg("deposed the primary: its commits have stopped, and etcd is well")
	w.since = n.Clock()
	n.poke()
}

// A standing is the leader and the head, read from etcd at one revision.
type standing struct {
	of           Leader
	leader, head string // values
}

var errMoved = errors.New("the leader or the head has changed")

// look reads the leader and the head. It fails if that takes too long, or if they are
// not those that this node knows; it remembers them then.
func (w *watchdog) look(ctx context.Context) (standing, error) {
	n := w.node
	attempt, cancel := context.WithTimeout(ctx, promptly)
	defer cancel()
	begun := n.Clock()
	resp, err := n.Client.Txn(attempt).Then(clientv3.OpGet(n.Layout.Leader()), clientv3.OpGet(n.Layout.Head())).Commit()
	now := n.Clock()
	if err != nil || now-begun > promptly {
		w.doubt = true
		_ = clock.Sleep(ctx, lookPause)
		return standing{}, errors.Join(err, errors.New("etcd did not answer in time"))
	}
	leaders, heads := resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs
	known, _ := n.leaderSeen()
	if len(leaders) != 1 || string(leaders[0].Value) != known.value || len(heads) != 1 {
		w.since = now
		n.poke()
		return standing{}, errMoved
	}
	head, err := journal.DecodeHead(heads[0].Value)
	if err != nil || head != w.head {
		w.since, w.doubt, w.asked = now, false, false
		if err == nil && head.After(w.head) {
			w.head = head
		}
		return standing{}, errors.Join(err, errMoved)
	}
	return standing{known, string(leaders[0].Value), string(heads[0].Value)}, nil
}

// depose deletes the leader key, and the key for Mooncake's clients with it, if the leader
// and the head are still as they were. It writes why into the record of the next term.
func (w *watchdog) depose(ctx context.Context, s standing, silent time.Duration) error {
	n := w.node
	next := TermRecord{
		Term: w.head.Term + 1,
		Why:  fmt.Sprintf("%s deposed %s, which had committed nothing for %v", n.ID, cmp.Or(s.of.NodeID, "a node whose leader key nobody can read"), silent.Round(time.Millisecond)),
	}
	record, err := json.Marshal(next)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	resp, err := n.Client.Txn(ctx).If(
		clientv3.Compare(clientv3.Value(n.Layout.Leader()), "=", s.leader),
		clientv3.Compare(clientv3.Value(n.Layout.Head()), "=", s.head), notPaused(n.Layout),
	).Then(append(n.Layout.DeleteLeader(), clientv3.OpPut(n.Layout.Term(next.Term), string(record)))...).Commit()
	switch {
	case err != nil:
		return err
	case !resp.Succeeded:
		return errMoved
	}
	return nil
}
