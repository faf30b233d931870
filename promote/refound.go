package promote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/follower"
)

// A founding says how a lost journal was founded anew.
type founding struct {
	cause   string // of the loss
	by      string // whose state it was founded from
	at      metadata.Seq
	absent  string   // the last primary, or who may have been it, if it took no part
	givenUp []string // nodes that lose what they have beyond that, by an operator's order
	file    bool     // the state came from a file
	// elected is when, by the clock, this node was elected for it. Nobody else could commit
	// any more.
	elected time.Duration
}

// behind reports whether somebody may have acknowledged more than the state holds.
func (f *founding) behind() bool { return f.absent != "" || f.givenUp != nil || f.file }

func (f *founding) String() string {
	text := fmt.Sprintf("founded the journal anew at sequence %d from %s (%s)", f.at, f.by, f.cause)
	if len(f.givenUp) > 0 {
		text += fmt.Sprintf("; what %s held beyond that is given up", strings.Join(f.givenUp, ", "))
	}
	if f.file {
		text += fmt.Sprintf("; it came from a file, what was acknowledged after %d may be missing", f.at)
	} else if f.absent != "" {
		text += fmt.Sprintf("; %s is not here, what it acknowledged after %d may be missing", f.absent, f.at)
	}
	return text
}

const (
	// foundingTerms is by how much the term of a new history exceeds any that was
	// seen, so that no term and no object id is used twice.
	foundingTerms = 1024
	// silentShare divides the terms that are left: a node passes over that many (127 at
	// first) in which nodes that do not answer may have been elected.
	silentShare = 8192
)

// refound founds the lost journal anew from this node's state, if no other node holds
// more of it (docs/failover.md, "etcd has lost the journal"). A state from a file will do
// only if a node answers that did not restart and holds no more. Otherwise, or while others
// may still answer, refound does nothing; it is called again. While takeover is paused, only
// the last primary founds the journal.
func (n *Node) refound(ctx context.Context, f *follower.Follower, seen scene) (*candidate, error) {
	store, at := f.State()
	st := f.Status()
	loss := st.Loss
	switch {
	case loss.Err == nil, loss.Err.Newer, store == nil, !st.Complete && st.File == "":
		return nil, nil
	case loss.Err.Foreign && st.File != "":
		return nil, n.holdsFile(st, loss.Err.Cause)
	case loss.Err.Foreign:
		return nil, nil
	case loss.Err.Forked: // what was acknowledged since is not held here
		return nil, nil
	}
	known := n.companions.known().At
	for _, other := range seen.nodes {
		if other.ID != n.ID && other.Lost != "" && !other.Foreign {
			known[other.ID] = other.RPC
		}
	}
	answers := n.ask(ctx, known)
	self := Standing{ID: n.ID, History: at.Head.History, Position: store.Position(), Complete: st.Complete, Restored: st.File != "", Lapsed: n.Status().Lapsed}
	q := inquiry{
		self: self, primaries: n.lastPrimaries(at.Head), paused: seen.pause.there, late: n.Clock()-loss.Since >= 2*n.RefoundWait, lived: st.Complete,
		term: max(self.Position.Term, at.Head.Term, loss.Found.Cursor.Head.Term, n.electedTerm(), n.forgotten(at.Head, seen.nodes)),
	}
	if err := q.take(answers); err != nil {
		return nil, err
	}
	if len(answers) < len(known) && n.Clock()-loss.Since < n.RefoundWait {
		return nil, nil
	}
	switch {
	case !q.lived:
		return nil, n.holdsFile(st, loss.Err.Cause)
	case seen.pause.there && !q.wasPrimary():
		return nil, seen.pause.obstacle("the journal is lost: " + loss.Err.Cause)
	}
	founded := &founding{cause: loss.Err.Cause, by: "the state of " + n.ID, at: self.Position.Seq, file: self.Restored}
	if missing := q.missing(answers); len(missing) > 0 {
		founded.absent = strings.Join(missing, ", ")
	} else if st.Apart || q.lapsed(answers) { // others may have been elected without the knowledge of these nodes
		founded.absent = silent(known, answers)
	}
	return n.found(ctx, f, grounds{store: store, at: at, head: loss.Found.Cursor, learned: loss.Since}, q.term+foundingTerms, founded)
}

// lastPrimaries returns the nodes that may have acknowledged more than this node's state
// has, as far as it knows: the node that was elected last, and, if the state has nothing of
// that term, also the one that served before. If this node does not know the id of the
// primary that wrote the end of its state, it names the term instead.
func (n *Node) lastPrimaries(head journal.Head) []string {
	m, l := n.companions.known(), n.previousLeader()
	served := m.Primary
	if l.Term == head.Term {
		served = l.NodeID
	} else if m.Term < head.Term {
		served = fmt.Sprintf("the primary of term %d", head.Term)
	}
	if l.Term > max(head.Term, m.Term) && l.NodeID != n.ID && l.NodeID != served {
		return []string{served, l.NodeID}
	}
	return []string{served}
}

// lapsedLocked reports whether this node was elected last, as far as it knows, and had
// committed nothing for longer than the failover time when it found the journal lost, or
// until now. Another node may have been elected since. Needs mu.
func (n *Node) lapsedLocked(s *Status) bool {
	last := n.committed
	if n.term != nil {
		last = cmp.Or(n.term.right.LastCommit(), last)
	}
	return last > 0 && cmp.Or(s.Loss.Since, n.Clock())-last > n.failover(s.Head)
}

// silent names the nodes that were asked and have not answered.
func silent(asked map[string]string, answers map[string]Standing) string {
	var ids []string
	for id := range asked {
		if _, answered := answers[id]; !answered {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, ", ")
}

// holdsFile is the obstacle of a node whose state comes from a file that the journal does
// not continue: more may have been acknowledged, so an operator decides.
func (n *Node) holdsFile(st follower.Status, cause string) error {
	return &Obstacle{
		Cause: HoldsFile,
		Reason: fmt.Sprintf("this node keeps the state from %s, up to sequence %d; more may have been acknowledged, and the journal does not go on from there: %s",
			cmp.Or(st.File, n.StateDir), st.At.Head.Seq, cause),
		Help: fmt.Sprintf("bring etcd's data back, or start the nodes that follow the journal there; or found the journal anew from this state (masterctl refound --from %s); or move the directory away and start again", n.ID),
	}
}

// keepsFile returns the obstacle of a node that only the files in its state directory,
// readable or not, keep from starting empty. It returns nil if there are none, or an
// operator has ordered an empty start.
func (n *Node) keepsFile(st follower.Status) error {
	saved := n.saver.status()
	switch {
	case n.emptyOrdered(), !n.MayStartEmpty:
		return nil
	case saved.Seq > 0:
		return n.holdsFile(st, fmt.Sprintf("a snapshot is needed (%s), and nobody sends one", st.Why))
	case saved.Unread != nil:
		return &Obstacle{
			Cause:  HoldsFile,
			Reason: fmt.Sprintf("no state could be loaded from %s, where state files may stand: %v; this node does not start empty over them", saved.Dir, saved.Unread),
			Help:   fmt.Sprintf("see that this node can read the directory and the files, and start it again; or give up what they hold: masterctl start-empty --yes --node=%s", n.ID),
		}
	}
	return nil
}

// othersMayShow returns an obstacle while this node must wait before it founds a journal in
// an etcd that holds none, since etcd may have lost the journal. It waits for RefoundWait in
// any case, then while a node says that it holds the lost journal's state, and for complete
// nodes that are away.
func (n *Node) othersMayShow(ctx context.Context, s scene) error {
	if !s.view.Missing() || n.Alone {
		n.unfounded = 0
		return nil
	}
	if n.unfounded == 0 {
		n.unfounded = n.Clock()
	}
	o := &Obstacle{Cause: AwaitsOthers}
	if n.Clock()-n.unfounded < n.RefoundWait {
		o.Reason = fmt.Sprintf("etcd holds no journal: this node waits %v for others that may hold one", n.RefoundWait)
		if n.MayStartEmpty {
			o.Reason += " before it founds one"
		}
		return o
	}
	for _, other := range s.nodes {
		if other.ID != n.ID && other.Lost != "" {
			o.Reason = fmt.Sprintf("%s holds the state of a journal that is lost, and is to found it anew", other.ID)
			return o
		}
	}
	return n.awaitComplete(ctx, s.nodes, n.unfounded)
}

// askAgain is how long a node repeats its question to nodes that do not answer: a live one
// may miss it once.
const askAgain = time.Second

// othersHoldMore returns an obstacle while this node must leave the election to others,
// because etcd has gone back and they hold more of the journal than its head says. If etcd
// may have gone back unseen (Status.Unsure), it asks all complete nodes that it knows.
// Otherwise it asks only those that say that they have lost the journal, so that an election
// takes no longer. Nodes with a foreign journal do not count: they never found it anew.
// silent says that nodes which may hold more do not answer.
func (n *Node) othersHoldMore(ctx context.Context, f *follower.Follower, s scene, begun time.Duration) (silent bool, err error) {
	head, asked, unsure := s.view.Cursor.Head, make(map[string]string), f.Status().Unsure
	if head.Seq == 0 {
		return false, nil
	}
	if unsure {
		asked = n.companions.known().At
	}
	for _, other := range s.nodes {
		switch {
		case other.ID == n.ID:
		case other.Foreign:
			delete(asked, other.ID)
		case other.Lost != "", unsure && other.holdsState():
			asked[other.ID] = other.RPC
		}
	}
	answers := n.ask(ctx, asked)
	for id, a := range answers {
		delete(asked, id)
		if a.holdsMore(head) {
			return false, &Obstacle{
				Cause:  AwaitsOthers,
				Reason: fmt.Sprintf("etcd's head is at sequence %d of term %d, and %s holds more, up to sequence %d of term %d", head.Seq, head.Term, id, a.Position.Seq, a.Position.Term),
				Help:   fmt.Sprintf("wait: %s founds the journal anew; if it does not: masterctl refound --from %s, or stop it", id, id),
			}
		}
	}
	silent = unsure && len(asked) > 0
	if until := waitsUntil(n.Clock(), begun, n.leaderless, n.RefoundWait); silent && until != "" {
		return false, &Obstacle{Cause: AwaitsOthers, Reason: fmt.Sprintf("nodes that may hold more of the journal than etcd do not answer: %v; this node asks them until %s",
			slices.Sorted(maps.Keys(asked)), until)}
	}
	return silent, nil
}

// waitsUntil says until when a node still asks those that do not answer: for some time since
// its start, and for a moment since nobody leads; empty if both are over. Times are by the
// clock.
func waitsUntil(now, begun, leaderless, wait time.Duration) string {
	switch {
	case now-begun < wait:
		return fmt.Sprintf("%v after its start", wait)
	case now-leaderless < askAgain:
		return fmt.Sprintf("%v after it saw that nobody leads", askAgain)
	}
	return ""
}

// nextTerm returns the term for which this node stands after a head. forgotten is a later
// term that etcd has lost, 0 for none; silent says that other nodes may have been elected in
// terms that this node does not know. The result is beyond all these terms: so no term is
// used twice, and what those nodes hold is found to be a fork.
func nextTerm(head journal.Head, forgotten metadata.Term, silent bool) metadata.Term {
	switch {
	case forgotten > 0:
		return forgotten + foundingTerms
	case silent:
		return head.Term + 1 + (metadata.MaxTerm-head.Term)/silentShare
	}
	return head.Term + 1
}

// forgotten returns the last term that this node or a registered one remembers, if that is
// later than etcd's head, so that etcd has gone back; otherwise 0. This node's own memory
// counts only if the head is missing, or is of the journal that it remembers or of one that
// this descends from.
func (n *Node) forgotten(head journal.Head, registered []NodeInfo) (term metadata.Term) {
	if m := n.companions.known(); head.Seq == 0 || m.descends(head.History) {
		term = m.LastTerm
	}
	for _, other := range registered {
		if other.ID != n.ID && !other.Foreign && other.LastTerm <= metadata.MaxTerm {
			term = max(term, other.LastTerm)
		}
	}
	if term <= head.Term {
		return 0
	}
	return term
}

// startOver begins an empty term in place of a head that nobody can read, if an
// operator allowed that and no node holds the state. Terms go on above any that was
// recorded.
func (n *Node) startOver(ctx context.Context, f *follower.Follower, s scene, begun time.Duration) (*candidate, error) {
	view := s.view
	if !n.emptyOrdered() || !n.MayStartEmpty || errors.Is(view.Err, journal.ErrNewer) {
		return nil, unreadable(n.ID, view.Err)
	}
	for _, other := range s.nodes {
		if other.ID != n.ID && other.holdsState() {
			return nil, fmt.Errorf("%s holds the state: %w", other.ID, view.Err)
		}
	}
	if err := n.awaitComplete(ctx, s.nodes, max(begun, n.leaderless)); err != nil {
		return nil, err
	}
	records, err := n.Terms(ctx)
	if err != nil {
		return nil, err
	}
	seen := n.electedTerm()
	for _, r := range records {
		seen = max(seen, r.Term)
	}
	behind := view.Cursor // compared by its value
	behind.Head = journal.Head{Term: seen + foundingTerms - 1, Hold: n.Params.HoldTime().Milliseconds()}
	return n.run(ctx, f, behind, behind.Head.Term+1, false, true)
}

// foundEmpty gives an elected node an empty store, and its journal a new history that forks
// from the old one before its first commit. So a node that comes back with the old state
// does not take the empty journal for its continuation. A head without a history is kept,
// since older versions follow it.
func (n *Node) foundEmpty(ctx context.Context, c *candidate) error {
	c.store = metadata.New(n.Options)
	_ = c.store.StartAt(c.before.Seq, c.before.Time) // cannot fail: it is new
	if c.before.History == "" {
		return nil
	}
	head := journal.Founding(c.before, c.store.Position(), c.leader.Term)
	head.Fork = 0
	if err := c.log.Found(ctx, head, nil, ""); err != nil {
		return fmt.Errorf("founding an empty journal: %w", err)
	}
	return nil
}

// grounds say from what a journal is founded anew, and what it replaces.
type grounds struct {
	store *metadata.Store
	at    journal.Cursor // where the store stands in the journal before
	head  journal.Cursor // what stands at the head, compared by its value
	over  string         // value of the leader key that an operator's order replaces; empty for none
	// learned is when, by the clock, nobody could commit to the journal before any
	// more.
	learned time.Duration
}

// found stands for election in place of what stands at the head, and founds the
// journal anew.
func (n *Node) found(ctx context.Context, f *follower.Follower, g grounds, term metadata.Term, how *founding) (*candidate, error) {
	n.setRole(Electing)
	stood, behind := g.head.Head, g.head
	behind.Head = journal.Head{Term: term - 1}
	c, err := n.elect(ctx, f, behind, term, false, g.over)
	if err == nil && g.over != "" {
		stood, err = n.replaced(ctx, c)
		g.learned = n.Clock() // until then the node that was elected could commit
	}
	if err != nil {
		n.setRole(Standby)
		return nil, err
	}
	how.elected = n.Clock()
	head := journal.Founding(g.at.Head, g.store.Position(), term)
	head.Hold = max(head.Hold, stood.Hold, n.Params.HoldTime().Milliseconds())
	head.Window, head.Failover = max(head.Window, stood.Window), max(head.Failover, stood.Failover)
	head.ForkOwed = head.ForkOwed || how.behind() // what an earlier founding owes stays owed
	c.founded, c.why = how, how.String()
	c.store, c.before, c.learned = g.store, head, g.learned
	c.pace.AtLeast(head.ServeWindow())
	if head.Raised {
		c.pace.Resume(n.Clock(), head.FailoverAfter())
	}
	instead := journal.History("")
	if how.givenUp != nil {
		instead = stood.History
	}
	var ancestors []journal.Ancestor
	if known := n.companions.known(); known.History == head.Parent {
		ancestors = known.Ancestors
	}
	if err := c.log.Found(ctx, head, ancestors, instead); err != nil {
		n.giveUp(ctx, c, err)
		return nil, err
	}
	c.before = c.log.Tip().Head
	c.last = lastPrimary{leader: Leader{Term: c.before.Term}, learned: c.learned}
	n.leaderless = 0
	n.setLeader(c.leader)
	n.setRole(Promoting)
	return c, nil
}

// replaced reads the head once more when this node has replaced another one as the
// elected node, and lets the log go on behind it.
func (n *Node) replaced(ctx context.Context, c *candidate) (journal.Head, error) {
	view, err := n.reader().Look(ctx)
	if err != nil {
		n.giveUp(ctx, c, err)
		return journal.Head{}, err
	}
	behind := view.Cursor
	behind.Head = journal.Head{Term: c.leader.Term - 1}
	c.log = n.logBehind(c, behind)
	return view.Cursor.Head, nil
}
