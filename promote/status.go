package promote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/follower"
)

// Status says how this node stands.
type Status struct {
	Self     NodeInfo
	Leader   Leader            // as last seen; zero for none
	Position metadata.Position // of the state; zero for none
	Head     journal.Head      // of the journal, as far as this node knows
	Empty    bool              // the current term, led by this node, started empty
	// MountsHeldFor is how long memory that is mounted stays in quarantine because of that.
	MountsHeldFor time.Duration
	Loads         map[journal.Reason]int
	LastLoad      journal.Reason
	Takeover      Takeover // the last one of this node

	Window, FailoverAfter time.Duration // of the journal's head, or of the next one if this node leads
	Raised, Lapses        int           // how often this node slowed the pace down; how often its right to answer lapsed and came back
	Loss                  follower.Loss // of the journal that this node's state comes from
	Complete              bool          // the state is all that its journal said, though that may be lost since
	Restored              bool          // the state comes from a file, and nothing has shown yet that the journal goes on from there
	Forked                bool          // another primary went on from less than the state holds, which no other node may have
	Lapsed                bool          // this node was elected last, as far as it knows, and committed nothing for so long that another one may have been since
	Founded               string        // how this node founded the journal anew for the term that it leads; empty if it did not
	Deposals              int64         // of primaries, by this node
	Paused                bool          // automatic takeover; false while this node is elected
	Saving                Saving        // of this node's state files
	Unread                bool          // this node holds no state, and has state files that it could not read, or may read yet
	Obstacle              *Obstacle     // why no node serves, as far as this node knows; nil if one does
	Space                 journal.Space // in the etcd that is embedded in this node, if it makes space there
	Counts                PrimaryCounts
}

// Status returns how this node stands. It does not ask etcd.
func (n *Node) Status() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := Status{
		Leader: n.leader, Takeover: n.takeover, LastLoad: n.lastLoad, Deposals: n.deposals.Load(), Raised: n.raised, Lapses: n.lapses, Paused: n.paused && n.term == nil,
		Self: NodeInfo{
			ID: n.ID, Role: n.role, RPC: n.RPC, HTTP: n.HTTP, Version: n.Version, Settings: n.Settings,
			Formats: [2]int{journal.MinFormatVersion, journal.FormatVersion}, Rules: metadata.NewestRules,
		},
		Saving: n.saver.status(), Space: n.compactor.Space(), Counts: n.counts,
	}
	var f follower.Status
	if n.term == nil && n.follower != nil {
		f = n.follower.Status()
	}
	s.Self.Saved, s.Self.Restorable, s.Self.Instance = s.Saving.Seq, s.Saving.Restorable, s.Saving.Instance
	s.Self.Needs = [2]place{placeOf(s.Saving.Needs), placeOf(f.Needs)}
	s.Self.LastTerm = n.companions.lastTerm()
	s.Self.EtcdFull, s.Self.MakesSpace = s.Space.Full(), n.makesSpace()
	s.Loads = maps.Clone(n.loads)
	switch {
	case n.term != nil:
		s.Position = n.term.Store.Position()
		s.Head = n.term.log.Tip().Head
		s.Empty, s.MountsHeldFor = n.term.empty, n.term.Store.MountsHeldFor()
		s.Self.Promotable, s.Complete = true, true
		if n.term.founded != nil {
			s.Founded = n.term.founded.String()
		}
		if n.role == Primary && !n.term.right.Valid() {
			s.Self.Role = Fenced
		}
		s.Window, s.FailoverAfter = n.term.pace.Windows()
		s.Raised += n.term.pace.Raised()
		s.Lapses += n.term.right.Lapses()
	case n.follower != nil:
		n.describe(&s, f)
	default:
		s.Self.Why = "it has just started: it is not registered in etcd yet"
	}
	s.Lapsed = n.lapsedLocked(&s)
	s.Self.Applied = s.Position.Seq
	s.hint(f, n.follower == nil)
	s.Unread = s.Unread || n.follower == nil && n.term == nil && n.StateDir != "" // it may load files yet
	s.Obstacle = n.obstacleLocked(&s)
	return s
}

// describe fills in how a follower stands. Needs mu.
func (n *Node) describe(s *Status, f follower.Status) {
	for reason, count := range f.Loads {
		s.Loads[reason] += count
	}
	if f.LastLoad != "" {
		s.LastLoad = f.LastLoad
	}
	forked := f.Loss.Err != nil && f.Loss.Err.Forked // another primary went on: no election awaits this state
	s.Head, s.Loss = f.At.Head, f.Loss
	holds := f.Complete || f.File != ""
	s.Complete, s.Restored, s.Forked = f.Complete && !forked, f.File != "" && !forked, holds && forked
	s.Window, s.FailoverAfter = f.At.Head.ServeWindow(), f.At.Head.FailoverAfter()
	if store, _ := n.follower.State(); store != nil {
		s.Position = store.Position()
	}
	if f.Loss.Err != nil && holds {
		s.Self.Lost, s.Self.Foreign = f.Loss.Err.Cause, f.Loss.Err.Foreign
	}
	s.Self.Promotable, s.Self.Why = n.promotable(f, f.At)
	s.Self.Stalled = f.Stalled != nil
}

// hint fills in whether this node may hold more than it says. begins says that it has no
// follower yet.
func (s *Status) hint(f follower.Status, begins bool) {
	s.Unread = s.Saving.Unread != nil && s.Position.Seq == 0
	switch {
	case s.Complete && s.Position.Seq > 0:
	case s.Saving.Unread != nil:
		s.Self.MayHold = fmt.Sprintf("it has state files that it could not read: %v", s.Saving.Unread)
		s.Self.Why += "; " + s.Self.MayHold
	case begins && s.Saving.Seq > 0, f.File != "" && f.Why == journal.ReasonStart && f.Loss.Err == nil:
		s.Self.MayHold = "it has not compared its state file with the journal yet"
	}
}

// capability returns those parts of the registration whose changes are published at once.
func (n *Node) capability() (Role, bool) {
	s := n.Status()
	return s.Self.Role, s.Self.Promotable
}

// self is what this node registers.
func (n *Node) self(ctx context.Context) NodeInfo {
	s := n.Status()
	if s.Self.Role != Standby {
		if n.Config.Counts != nil {
			s.Self.Counts = n.Config.Counts()
		}
		return s.Self
	}
	reader := &journal.Reader{Client: n.Client, Layout: n.Layout}
	if head, err := reader.Head(ctx); err == nil {
		entries, behind := head.Head.Lag(s.Position)
		s.Self.Lag, s.Self.LagMillis = entries, behind.Milliseconds()
	}
	return s.Self
}

// Nodes returns the nodes that are registered in etcd, by id.
func (n *Node) Nodes(ctx context.Context) ([]NodeInfo, error) {
	return listNodes(ctx, n.Client, n.Layout)
}

// Store returns this node's state, nil if it has none.
func (n *Node) Store() *metadata.Store {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.term != nil:
		return n.term.Store
	case n.follower != nil:
		store, _ := n.follower.State()
		return store
	}
	return nil
}

// Leader returns the elected node as last seen, zero for none.
func (n *Node) Leader() Leader {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leader
}

// Digest returns the digest of the state at a sequence, once it is applied: of
// the newest one for 0. It waits until the context ends. Errors: InvalidParams
// for a sequence that is too long ago, Unresolved for one that does not come,
// Unavailable without a state, or if this node's term ends first.
func (n *Node) Digest(ctx context.Context, seq metadata.Seq) (metadata.Seq, metadata.Digest, error) {
	n.mu.Lock()
	t, f := n.term, n.follower
	n.mu.Unlock()
	switch {
	case t != nil:
		return t.Digest(ctx, seq)
	case f == nil:
		return 0, 0, errs.New(errs.Unavailable, "Digest", "this node has no state")
	}
	if seq == 0 {
		_, at := f.State()
		seq = at.Head.Seq
	}
	if err := f.WaitApplied(ctx, seq); err != nil {
		return 0, 0, errs.Wrap(errs.Unresolved, "Digest", err)
	}
	digest, ok := f.Digest(seq)
	if !ok {
		return 0, 0, errs.New(errs.InvalidParams, "Digest", "this node does not remember its digest at %d any more", seq)
	}
	return seq, digest, nil
}

// Digest does for a term what Node.Digest says.
func (t *Term) Digest(ctx context.Context, seq metadata.Seq) (metadata.Seq, metadata.Digest, error) {
	for {
		applied := t.Queue.Applied() // before the look: a commit may be applied meanwhile
		p := t.Store.Position()
		if seq == 0 {
			return p.Seq, p.Digest, nil
		}
		if digest, ok := t.Store.DigestAt(seq); ok {
			return seq, digest, nil
		}
		if seq <= p.Seq {
			return 0, 0, errs.New(errs.InvalidParams, "Digest", "this node is at %d, and does not remember its digest at %d any more", p.Seq, seq)
		}
		select {
		case <-ctx.Done():
			return 0, 0, errs.Wrap(errs.Unresolved, "Digest", ctx.Err())
		case <-t.ended:
			return 0, 0, errs.New(errs.Unavailable, "Digest", "term %d has ended before sequence %d; ask again", t.Number, seq)
		case <-applied:
		}
	}
}

// AllowEmpty lets this node start empty, as an operator orders. It is refused while any
// node holds the state, also one that is away. noWriters says that no earlier writer still
// writes. Errors: InvalidParams for another term or on a standby, Unavailable while a node
// serves or can take over.
func (n *Node) AllowEmpty(ctx context.Context, term metadata.Term, noWriters bool) error {
	if !n.MayStartEmpty {
		return errs.New(errs.InvalidParams, "StartEmpty", "this node was started as a standby, which never starts empty; ask a master")
	}
	l, there, err := readLeader(ctx, n.Client, n.Layout)
	if err != nil {
		return errs.Wrap(errs.Unavailable, "StartEmpty", err)
	}
	if there {
		return errs.New(errs.Unavailable, "StartEmpty", "node %s is elected; nothing is lost", l.NodeID)
	}
	view, err := (&journal.Reader{Client: n.Client, Layout: n.Layout}).Look(ctx)
	if err == nil && errors.Is(view.Err, journal.ErrNewer) {
		err = view.Err
	}
	if err != nil {
		return errs.Wrap(errs.Unavailable, "StartEmpty", err)
	}
	if last := view.Cursor.Head; view.Err == nil && last.Seq > 0 && term != 0 && last.Term != term {
		return errs.New(errs.InvalidParams, "StartEmpty", "the last term is %d, not %d; look at the status and ask again", last.Term, term)
	}
	nodes, err := listNodes(ctx, n.Client, n.Layout)
	if err != nil {
		return errs.Wrap(errs.Unavailable, "StartEmpty", err)
	}
	for _, other := range nodes {
		switch {
		case other.Stalled:
			return errs.New(errs.Unavailable, "StartEmpty", "node %s holds the state, but %s; %s, or stop it, and ask again", other.ID, other.Why, watchHelp)
		case other.holdsState():
			return errs.New(errs.Unavailable, "StartEmpty", "node %s holds the state and will take over by itself", other.ID)
		}
	}
	switch absent, err := n.absent(ctx, nodes); {
	case err != nil:
		return errs.Wrap(errs.Unavailable, "StartEmpty", err)
	case len(absent) > 0:
		return errs.New(errs.Unavailable, "StartEmpty", "nodes that held the state are away, or cannot say what they hold: %v; %s, and ask again",
			absent, absent.help())
	}
	n.mu.Lock()
	n.allowed = true
	n.idle = n.NoWriters || noWriters // an earlier order's noWriters does not count
	n.mu.Unlock()
	n.poke()
	return nil
}

// SnapshotStart begins a snapshot of the term in which this node serves: it returns the
// term, the first part, and the journal's position at which that part stands.
func (n *Node) SnapshotStart(ctx context.Context) (*Term, []byte, journal.Cursor, error) {
	n.mu.Lock()
	t, role := n.term, n.role
	n.mu.Unlock()
	if t == nil || role != Primary {
		return nil, nil, journal.Cursor{}, errs.New(errs.NotLeader, "StreamSnapshot", "this node does not serve")
	}
	for ctx.Err() == nil {
		tip := t.log.Tip()
		part, at := t.Store.AppendSnapshotPart(nil, 0)
		if at.Seq == tip.Head.Seq {
			return t, part, tip, nil
		}
		_ = clock.Sleep(ctx, time.Millisecond) // a commit is being applied
	}
	return nil, nil, journal.Cursor{}, ctx.Err()
}

func (n *Node) setRole(r Role) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.role = r
}

func (n *Node) roleNow() Role {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.role
}

func (n *Node) setLeader(l Leader) {
	n.mu.Lock()
	changed := n.leader != l
	if n.leader.value != l.value {
		n.since = n.Clock()
	}
	n.leader = l
	if l.NodeID != "" {
		n.previous = l
	}
	n.mu.Unlock()
	if changed && n.LeaderChanged != nil {
		n.LeaderChanged(l)
	}
}

// leaderSeen returns the elected node as last seen, and since when, by the clock.
func (n *Node) leaderSeen() (Leader, time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leader, n.since
}

func (n *Node) previousLeader() Leader {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.previous
}

// electedTerm returns the term of the last leader. It returns 0 if the leader key had no
// lease: somebody may have written it by hand, with any number.
func (n *Node) electedTerm() metadata.Term {
	if l := n.previousLeader(); l.lease != 0 {
		return l.Term
	}
	return 0
}

func (n *Node) setCommitted(at time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.committed = at
}

func (n *Node) setTakeover(t Takeover) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.takeover = t
}

// tookOver notes that the takeover has come to its end: the term serves.
func (n *Node) tookOver(term metadata.Term) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.takeover.Term = term
}

// setFollower notes the follower: this node is a standby.
func (n *Node) setFollower(f *follower.Follower) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keepLoads()
	if n.term != nil {
		n.raised += n.term.pace.Raised()
		n.lapses += n.term.right.Lapses()
	}
	n.follower, n.term, n.role = f, nil, Standby
}

func (n *Node) setTerm(t *Term) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keepLoads()
	n.term, n.follower = t, nil
}

// keepLoads adds the loads of the follower, which is about to go, to the totals. Needs mu.
func (n *Node) keepLoads() {
	if n.follower == nil {
		return
	}
	f := n.follower.Status()
	for reason, count := range f.Loads {
		n.loads[reason] += count
	}
	if f.LastLoad != "" {
		n.lastLoad = f.LastLoad
	}
}
