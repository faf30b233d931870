package promote

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
)

// errEnding is returned to callers that wait while the term ends.
var errEnding = errs.New(errs.NotLeader, "fence", "this node's term is ending")

// failover returns how long this node may commit nothing before followers depose it. It
// also bounds how long no node serves during a handover.
func (t *Term) failover() time.Duration { return t.node.failover(t.log.Tip().Head) }

// awaitSilence waits until no earlier primary has the right to answer: for the serve
// window of the last head before this term, from when this node learned of that head,
// unless that head says that its term ended cleanly [model].
func (t *Term) awaitSilence(ctx context.Context) error {
	n, left := t.node, t.untilSilence()
	if left == 0 {
		return nil
	}
	n.Log.Info().Uint64("term", uint64(t.Number)).Dur("wait", left).Msg("waiting until the right of the previous primary to answer has ended")
	return clock.Sleep(ctx, left)
}

// untilSilence returns how long an earlier primary may still have the right to answer.
func (t *Term) untilSilence() time.Duration {
	if t.before.Clean {
		return 0
	}
	since := t.learned
	if t.founded != nil {
		since = t.founded.elected // a primary may have committed after this node found the journal lost
	}
	return max(0, since+t.before.ServeWindow()-t.node.Clock())
}

// paceEvery is how often a primary checks that all nodes read its heads.
const paceEvery = time.Second

// turn lets heads carry windows and histories as long as all nodes read them.
func turn(nodes []NodeInfo, pace *journal.Pace, histories *atomic.Bool) {
	all := allRead(nodes, journal.FormatBeats)
	pace.Turn(all)
	histories.Store(all)
}

// keepPace checks every second whether all nodes read what heads may carry, and whether
// etcd has space for changes, until the context ends.
func (t *Term) keepPace(ctx context.Context) {
	n := t.node
	for clock.Sleep(ctx, paceEvery) == nil {
		if nodes, err := listNodes(ctx, n.Client, n.Layout); err == nil {
			turn(nodes, t.pace, t.histories)
			t.hold(nodes)
		}
	}
}

// lapse says why the right to answer has lapsed.
func (t *Term) lapse() *Obstacle {
	if o := t.node.Status().Obstacle; o != nil {
		return o
	}
	return facts{}.lapsed()
}

// watchRight logs when the right to answer lapses, and when it is back, and counts that as
// an interruption, until the context ends.
func (t *Term) watchRight(ctx context.Context) {
	n := t.node
	var lapsed time.Duration // since when, by the clock; 0 if it has not
	for ctx.Err() == nil {
		until, changed := t.right.Until()
		left := until - n.Clock()
		switch {
		case until < 0: // given up
			return
		case left > 0 && lapsed > 0:
			n.turn(true, n.Clock())
			t.lapsed.Store(nil)
			lasted := n.Clock() - lapsed
			t.interrupted(lasted)
			n.Log.Info().Uint64("term", uint64(t.Number)).Dur("lasted", lasted).Msg("commits come through again: this node answers")
			lapsed = 0
		case left <= 0 && until > 0 && lapsed == 0:
			lapsed = until
			served, _ := n.turn(false, until)
			o := t.lapse()
			t.lapsed.Store(o)
			filled(n.Log.Warn().Uint64("term", uint64(t.Number)).Dur("served_for", served).Str("cause", string(o.Cause)).Str("reason", o.Reason), "help", o.Help).
				Msg("no commit comes through: this node answers nobody until one does")
		}
		if left > 0 {
			_ = clock.Sleep(ctx, left)
			continue
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}
