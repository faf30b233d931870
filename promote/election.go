package promote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/follower"
)

// A candidate is this node between its election and the beginning of its term.
type candidate struct {
	leader  Leader
	session *Session
	right   *journal.Right
	pace    *journal.Pace
	log     *journal.EtcdLog
	// histories says that every node reads heads with a history.
	histories *atomic.Bool
	store     *metadata.Store // nil to start empty
	before    journal.Head    // the last one before this term
	learned   time.Duration   // by the clock: when this node learned of the head in before
	last      lastPrimary     // the one before this term
	why       string          // reason for the election, for people
	empty     bool
	noWriters bool      // no writer from before the empty start is left
	founded   *founding // nil unless it founded the journal anew
	phases    Takeover
}

// campaign stands for election if there is no leader and this node may run,
// and catches up if it wins.
func (n *Node) campaign(ctx context.Context, f *follower.Follower, begun time.Duration) (*candidate, error) {
	_, at := f.State() // before the read: the journal never goes back
	asked := n.Clock()
	s, err := readScene(ctx, n.Client, n.Layout)
	if err != nil {
		return nil, err
	}
	s.asked = asked
	l, view := s.leader, s.view
	n.setLeader(l)
	s.pause = n.outlast(ctx, s, errors.Is(at.Against(view.Cursor, view.Err), journal.ErrLost))
	squatted := n.squatters.look(ctx, n, l, view)
	if s.there {
		n.leaderless = 0
		n.setRole(Standby)
		n.noteLeader(ctx, l)
		n.dropAllowance(l, begun)
		n.watchPrimary(f, at, s)
		if l.State == Serving {
			n.someoneServes()
			n.remember(l, f)
		}
		return nil, cmp.Or(squatted, n.silence.look(n.Clock(), l, view, s.pause))
	}
	if n.Clock() < n.again.at {
		return nil, n.again.why // another node may have more luck
	}
	if f.Lost().Err != nil { // with a state that the head does not continue, no node stands for election
		return n.refound(ctx, f, s)
	}
	if err := at.Against(view.Cursor, view.Err); err != nil {
		return nil, err // the follower finds out more
	}
	if n.leaderless == 0 {
		n.leaderless = n.Clock()
	}
	if view.Err != nil {
		return n.startOver(ctx, f, s, begun)
	}
	head := view.Cursor
	if heir := head.Head.Heir; heir != "" && heir != n.ID && n.Clock()-n.leaderless < n.failover(head.Head) {
		return nil, nil // the previous primary handed over to another node
	}
	if err := n.othersMayShow(ctx, s); err != nil {
		return nil, err
	}
	may, empty, silent, err := n.mayRun(ctx, f, s, begun)
	if err != nil || !may {
		return nil, err
	}
	if of := n.following(f); of != nil && head.Head.Seq == 0 && ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, firstSave)
		n.saver.save(bounded, of) // before the first commit: so the journal continues this file
		cancel()
	}
	forgotten := n.forgotten(head.Head, s.nodes)
	wentBack := head.Head.Seq > 0 && (forgotten > 0 || silent && f.Status().WasLost)
	return n.run(ctx, f, head, nextTerm(head.Head, forgotten, silent || empty), wentBack, empty)
}

// mayRun decides whether this node may stand for election when there is no leader and the
// head can be read. empty says that it would start empty; silent, that nodes which may hold
// more do not answer. An error says what stands in the way.
func (n *Node) mayRun(ctx context.Context, f *follower.Follower, s scene, begun time.Duration) (may, empty, silent bool, err error) {
	head, st := s.view.Cursor, f.Status()
	may, _ = n.promotable(st, head)
	if empty = !may && st.Stalled == nil; empty {
		may, err = n.mayStartEmpty(ctx, head, s.nodes, begun)
	}
	if err == nil && (empty && may || head.Head.Seq == 0) {
		err = cmp.Or(n.keepsFile(st), n.besideOthers(ctx, head, s.nodes))
	}
	switch {
	case err != nil:
	case !may:
		err = n.noneCan(ctx, head, s.nodes)
	case !empty:
		silent, err = n.othersHoldMore(ctx, f, s, begun)
	}
	if err == nil && may && s.pause.there {
		if may, err = n.despitePause(ctx, head.Head); !may && err == nil {
			err = s.pause.obstacle("the primary is gone")
		}
	}
	return may, empty, silent, err
}

// dropAllowance ends the permission to start empty when another node serves:
// there is a state again, which must not be lost when that node goes. The key of a
// node that died before this one started proves nothing, so two session TTLs must pass.
func (n *Node) dropAllowance(l Leader, begun time.Duration) {
	if l.State != Serving || l.NodeID == n.ID || n.Clock()-begun < 2*n.SessionTTL {
		return
	}
	n.endAllowance()
}

// endAllowance ends an operator's permission to start empty, and what the operator said of
// writers: a term has begun, so there is a state again.
func (n *Node) endAllowance() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.allowed, n.idle = false, n.NoWriters
}

// emptyOrdered reports whether an operator ordered an empty start.
func (n *Node) emptyOrdered() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.allowed
}

// writersGone reports whether an operator said, with the order to start empty, that no
// writer is left.
func (n *Node) writersGone() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.idle
}

// watchPrimary notes that a primary commits to the journal that this node's state belongs to.
func (n *Node) watchPrimary(f *follower.Follower, at journal.Cursor, s scene) {
	if s.leader.State != Serving || s.leader.NodeID == n.ID {
		return
	}
	before := n.serving
	n.serving = s
	// A head that was deleted and put back, or rewritten by hand, is no commit.
	was, is := before.view.Cursor.Head, s.view.Cursor.Head
	// A commit seen before etcd was out of reach proves nothing: a restored backup may have it.
	commits := !before.view.Missing() && before.asked >= f.Steady() && (is.Seq > was.Seq || is.Time > was.Time)
	if before.leader.value == s.leader.value && commits && at.Against(s.view.Cursor, s.view.Err) == nil {
		n.watched = s.leader.Term
		n.setCommitted(0)
		f.Vouch()
	}
}

// promotable reports whether this node may take over with the state that its follower has,
// and if not, why.
func (n *Node) promotable(st follower.Status, head journal.Cursor) (bool, string) {
	switch {
	case st.Loss.Err != nil && st.Loss.Err.Foreign:
		return false, st.Loss.Err.Error() + "; this node keeps its state and follows nothing: " + decide(n.ID)
	case st.Loss.Err != nil:
		return false, st.Loss.Err.Error() + "; this node keeps its state and follows nothing"
	case !st.Complete && st.Fault != nil:
		return false, fmt.Sprintf("its state is not complete (%s): %v", st.Why, st.Fault)
	case !st.Complete:
		return false, fmt.Sprintf("its state is not complete (%s); it waits for a snapshot from a primary", st.Why)
	case st.Stalled != nil:
		return false, st.Stalled.Error()
	case head.Head.Seq == 0 && !n.MayStartEmpty:
		return false, "there is no journal yet, and a standby does not begin one; start a master"
	case head.Head.Seq == 0 && n.saver.status().Unread != nil:
		return false, "there is no journal, and the state files of this node cannot be loaded"
	case head.Head.Seq == 0 && len(n.strays(head, nil)) > 0:
		return false, "there is no journal, and state files of other nodes stand beside this node's directory"
	}
	return true, ""
}

// mayStartEmpty reports whether this node may begin a new term with nothing in it,
// because nobody holds the state any more.
func (n *Node) mayStartEmpty(ctx context.Context, head journal.Cursor, nodes []NodeInfo, begun time.Duration) (bool, error) {
	allowed := n.emptyOrdered()
	switch {
	case !n.MayStartEmpty, head.Head.Seq == 0 && !allowed:
		return false, nil
	case !allowed && !n.OwnsEtcd:
		return false, nil // an operator must say so: others may hold the state
	case n.Clock()-max(begun, n.leaderless) < n.SessionTTL:
		return false, nil // a node that holds the state has this long to show itself, the last primary too
	}
	for _, other := range nodes {
		if other.holdsState() && other.ID != n.ID {
			return false, nil
		}
	}
	if err := n.besideOthers(ctx, head, nodes); err != nil { // first, since time does not end it
		return false, err
	}
	if err := n.awaitComplete(ctx, nodes, max(begun, n.leaderless)); err != nil {
		return false, err
	}
	return true, nil
}

// failover returns the failover time of a head, or the session TTL if the head has none.
func (n *Node) failover(head journal.Head) time.Duration {
	return cmp.Or(head.FailoverAfter(), n.SessionTTL)
}

// run stands for election for a term and, if it wins, catches up with the journal, which
// nobody else can write any more. wentBack says that etcd may have gone back to an earlier
// state, so that free memory must stay in quarantine.
func (n *Node) run(ctx context.Context, f *follower.Follower, head journal.Cursor, term metadata.Term, wentBack, empty bool) (*candidate, error) {
	n.setRole(Electing)
	c, err := n.elect(ctx, f, head, term, empty, "")
	if err != nil {
		n.setRole(Standby)
		return nil, err
	}
	n.leaderless = 0
	n.setLeader(c.leader)
	n.setRole(Promoting)
	c.noWriters = n.writersGone()
	n.Log.Info().Uint64("term", uint64(c.leader.Term)).Uint64("sequence", uint64(head.Head.Seq)).Bool("empty", empty).Msg("elected")
	if empty {
		if err := n.foundEmpty(ctx, c); err != nil {
			n.giveUp(ctx, c, err)
			return nil, err
		}
		return c, nil
	}
	if wentBack {
		c.before.ForkOwed, c.before.Clean = true, false
		n.Log.Warn().Uint64("term", uint64(head.Head.Term)).Uint64("sequence", uint64(head.Head.Seq)).
			Msg("etcd seems to have gone back to an earlier state: what was acknowledged since may be missing, and free memory stays in quarantine")
	}
	begun := n.Clock()
	if err := n.catchUp(ctx, f, c); err != nil {
		n.giveUp(ctx, c, err)
		return nil, err
	}
	c.phases.CatchUp = n.Clock() - begun
	return c, nil
}

// elect stands for election, for a term after a head. The first commits then need not
// wait for a session or for the lease of their records: this node holds the session in
// advance, if it can, and etcd grants the lease during the election. over is the value of
// the leader key that an operator's order replaces; empty for none.
func (n *Node) elect(
	ctx context.Context, f *follower.Follower, head journal.Cursor, term metadata.Term, empty bool, over string,
) (*candidate, error) {
	begun := n.Clock()
	c := &candidate{
		leader: Leader{
			Election: journal.NewElection(), NodeID: n.ID, RPC: n.RPC, HTTP: n.HTTP, Term: term, State: Elected,
		},
		right: journal.NewRight(n.Clock), histories: new(atomic.Bool), pace: journal.NewPace(n.FailoverAfter, n.SessionTTL, n.journalLog),
		before: head.Head, learned: begun, empty: empty,
	}
	if known, learned := f.Learned(); known == head.Head {
		c.learned = learned
	}
	n.lookBack(c)
	c.last.inTouch = c.last.learned < begun && f.InTouch(c.last.learned)
	if head.Head.Raised {
		c.pace.Resume(begun, head.Head.FailoverAfter())
	}
	if !head.Head.Clean {
		c.pace.AtLeast(head.Head.ServeWindow())
	}
	c.log = n.logBehind(c, head)
	granting := start(func() error { c.log.Prepare(ctx); return nil })
	defer func() { <-granting.ended }()
	nodes, deposed, err := n.runFor(ctx, c, head, over)
	if err != nil {
		<-granting.ended
		c.log.Release(context.WithoutCancel(ctx))
		return nil, err
	}
	turn(nodes, c.pace, c.histories)
	c.why = cmp.Or(deposed, c.why)
	n.last = c.last
	n.last.why = c.why
	c.phases.Elect = n.Clock() - begun
	n.setCommitted(begun)
	return c, nil
}

// logBehind returns the log of an elected node, which goes on behind a head.
func (n *Node) logBehind(c *candidate, head journal.Cursor) *journal.EtcdLog {
	l := journal.NewEtcdLog(n.Client, n.Layout, c.leader.Election, head, n.EventsTTL, n.Clock)
	l.Random, l.Histories = n.Random, c.histories.Load
	return l
}

// runFor runs the election transaction, on the session that this node holds in advance,
// or on a new one if it has none or etcd has lost that.
func (n *Node) runFor(ctx context.Context, c *candidate, head journal.Cursor, over string) (nodes []NodeInfo, deposed string, err error) {
	for c.session = n.spare.take(c.right); ; c.session = nil {
		held := c.session != nil
		if !held {
			if c.session, err = openSession(ctx, n.Sessions, n.Clock, n.SessionTTL, c.right); err != nil {
				return nil, "", err
			}
		}
		nodes, deposed, err = elect(ctx, n.Client, n.Layout, c.session, c.leader, head, over)
		switch {
		case err == nil:
			return nodes, deposed, nil
		case !held || !errors.Is(err, rpctypes.ErrLeaseNotFound):
			c.session.close(context.WithoutCancel(ctx)) // the key may have been written all the same
			return nil, "", err
		}
	}
}

// catchUp waits until the follower has applied the whole journal. Leadership is
// kept meanwhile, by keepalives and by beats, however long it takes, as long as the follower's
// watch brings something. Otherwise this node is not promotable until it does, and another one
// may be.
func (n *Node) catchUp(ctx context.Context, f *follower.Follower, c *candidate) error {
	ctx, end := c.session.kept(ctx)
	defer end()
	// Each beat is one more commit for the follower to read. A follower that needs longer
	// for one than the time between two would never catch up. So that time doubles, up to
	// half the failover time: nobody deposes this node for that.
	_, failover := c.pace.Windows()
	for pause := c.pace.Every(); ; pause = max(pause, min(2*pause, failover/2)) {
		wait, stop := context.WithTimeout(ctx, pause)
		err := f.WaitApplied(wait, c.log.Tip().Head.Seq)
		stop()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !f.Complete():
			return fmt.Errorf("lost the journal while catching up: %s", f.Status().Why)
		}
		if err := f.Stalled(); err != nil {
			return &Obstacle{Cause: NoneCan, Reason: "this node was elected and cannot catch up: " + err.Error(), Help: watchHelp}
		}
		if err := c.beat(ctx, n.Params.HoldTime()); err != nil {
			return fmt.Errorf("a beat while catching up: %w", err)
		}
	}
}

// beat makes an empty commit, so that nobody deposes this node while it catches up. The
// follower reads it like any other. Cluster time stands still.
func (c *candidate) beat(ctx context.Context, hold time.Duration) error {
	window, failover := c.pace.Windows()
	if window == 0 {
		return nil
	}
	head := c.log.Tip().Head
	head.Term, head.Seq, head.Streams, head.Clean, head.Heir = c.leader.Term, head.Seq+1, 0, false, ""
	head.Hold, head.ForkOwed = max(head.Hold, hold.Milliseconds()), c.before.ForkOwed
	head.Window, head.Failover, head.Raised = window.Milliseconds(), failover.Milliseconds(), c.pace.Slowed()
	err := c.log.Append(ctx, &journal.Sealed{Head: head})
	if _, refused := errors.AsType[*journal.RefusedError](err); refused {
		return nil
	}
	return err
}
