package promote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote/follower"
)

// An Obstacle is why no node serves, as far as one node knows, with what an operator
// can do about it.
type Obstacle struct {
	Cause   Cause
	Reason  string
	Help    string // empty if time mends it
	Awaited int    // complete nodes that are waited for
}

func (o *Obstacle) Error() string { return o.Reason }

// A Cause is the kind of an obstacle.
type Cause string

// The causes.
const (
	JournalLost    Cause = "journal lost"
	AwaitsOthers   Cause = "others may hold a journal"
	AwaitsComplete Cause = "complete nodes are away"
	HoldsFile      Cause = "a state from a file"
	NoneCan        Cause = "no node can take over"
	Squatted       Cause = "leader key without an owner"
	EtcdAway       Cause = "etcd does not answer"
	EtcdFull       Cause = "etcd is full"
	EtcdCorrupt    Cause = "etcd is corrupt"
	EtcdRefuses    Cause = "etcd refuses this node"
	RightLapsed    Cause = "commits do not come through"
	Deposed        Cause = "deposed"
	HandsOver      Cause = "handover"
	GetsReady      Cause = "the elected node gets ready"
	TakeoverPaused Cause = "automatic takeover is paused"
	Unelected      Cause = "no node is elected"
)

// facts are what an obstacle is derived from.
type facts struct {
	role   Role
	leader Leader
	loss   follower.Loss
	failed error // of the last look at an election
	ended  error // why this node's last term ended; nil if none, or it ended on purpose
	// refused is why this node's last election led to no term that served, nil if a node served since.
	refused error
	commit  error  // of the last attempt to commit; nil if it succeeded
	owns    bool   // etcd is in this very process, or a member of it
	member  bool   // which is one of several
	fault   error  // why no space can be made in it; nil if it can
	id      string // of this node
	owner   string // of the node in which etcd is embedded, if it makes space there; empty for none
}

// obstacle returns nil if a node serves.
func (f facts) obstacle() *Obstacle {
	var met *Obstacle
	switch {
	case f.role == Primary:
		return nil
	case f.role == Fenced:
		return f.lapsed()
	case f.role == HandingOver:
		return f.handsOver()
	case (f.role == Electing || f.role == Promoting) && f.refusal() != nil:
		return f.refusal()
	case f.role == Electing || f.role == Promoting:
		return &Obstacle{Cause: GetsReady, Reason: "this node is about to serve: it is " + string(f.role)}
	case errors.Is(f.failed, rpctypes.ErrNoSpace):
		return f.etcdFull(f.failed)
	case f.failed != nil && f.etcdObstacle(f.failed) != nil:
		return f.etcdObstacle(f.failed)
	case errors.As(f.failed, &met):
		return met
	case f.loss.Err != nil && !(f.loss.Err.Foreign && f.leader.State == Serving):
		return f.lost()
	case f.leader.State == Serving:
		return nil
	case f.refusal() != nil:
		return f.refusal()
	case f.leader.NodeID != "":
		return &Obstacle{Cause: GetsReady, Reason: fmt.Sprintf("%s is elected in term %d and does not serve yet", f.leader.NodeID, f.leader.Term)}
	case f.failed != nil:
		return &Obstacle{Cause: Unelected, Reason: "no node is elected: " + etcdclient.Says(f.failed)}
	case errors.Is(f.ended, journal.ErrFenced):
		return &Obstacle{Cause: Deposed, Reason: "this node was deposed, and no other node is elected yet: its commits had stopped, or somebody deleted the leader key",
			Help: "wait for the election; masterctl history shows who deposed it"}
	case f.ended != nil:
		return &Obstacle{Cause: Unelected, Reason: "no node is elected since this node's term ended: " + f.ended.Error()}
	}
	return &Obstacle{Cause: Unelected, Reason: "no node is elected yet"}
}

// handsOver is the obstacle of a primary that ends its term.
func (f facts) handsOver() *Obstacle {
	o := &Obstacle{Cause: HandsOver, Reason: "this node has stopped taking calls, and hands over or ends its term"}
	if f.commit != nil {
		why := f.lapsed()
		o.Reason, o.Help = o.Reason+"; its last commits did not come through: "+why.Reason, why.Help
	}
	return o
}

// lapsed is the obstacle of a primary whose commits do not come through.
func (f facts) lapsed() *Obstacle {
	const reason = "this node is elected and answers nobody: no commit has come through for longer than it may answer without one"
	o := &Obstacle{Cause: RightLapsed, Reason: reason, Help: "see that etcd answers quickly, has a leader and has space"}
	if errors.Is(f.commit, rpctypes.ErrNoSpace) {
		o = f.etcdFull(f.commit)
	} else if of := f.etcdObstacle(f.commit); of != nil {
		o.Reason, o.Help = reason+"; "+of.Reason, of.Help
		o.Cause = of.Cause
	} else if f.commit != nil {
		o.Reason += "; the last one failed: " + etcdclient.Says(f.commit)
	}
	return o
}

// lost is the obstacle of a node whose journal is lost.
func (f facts) lost() *Obstacle {
	o := &Obstacle{Cause: JournalLost, Reason: f.loss.Err.Error() + "; this node keeps its state"}
	switch {
	case f.loss.Err.Newer:
		o.Help = "upgrade this node: a newer version leads the cluster"
	case f.loss.Err.Forked:
		o.Help = fmt.Sprintf("start the node that was the primary since; or found the journal anew from this one, without what that one acknowledged: masterctl refound --from %s", f.id)
	case f.loss.Err.Foreign:
		o.Help = decide(f.id)
	default:
		if f.failed != nil {
			o.Reason += ": " + f.failed.Error()
		}
		o.Help = fmt.Sprintf("wait: the complete node that holds most founds the journal anew, if it reaches etcd; if none does: masterctl refound --from %s", f.id)
	}
	return o
}

// decide is the advice for a node that holds the state of a foreign journal.
func decide(id string) string {
	return fmt.Sprintf("decide which journal counts: that of this node (masterctl refound --from %s), or that in etcd (stop this node, move its state directory away, start it again)", id)
}

// etcdObstacle returns what an error says of etcd itself, nil if nothing.
func (f facts) etcdObstacle(err error) *Obstacle {
	away := etcdclient.Silent(err)
	switch {
	case errors.Is(err, rpctypes.ErrCorrupt):
		return &Obstacle{Cause: EtcdCorrupt, Reason: "etcd has raised its alarm CORRUPT and refuses all calls: " + etcdclient.Says(err),
			Help: "find the member whose data differ (etcdctl alarm list), replace it, and disarm the alarm (etcdctl alarm disarm)"}
	case etcdclient.Refuses(err):
		return &Obstacle{Cause: EtcdRefuses, Reason: "etcd refuses this node's calls: " + etcdclient.Says(err),
			Help: "see that the user of --etcd-user, with its password, or the name in the certificate, may read and write all that the cluster keeps in etcd: its prefix, and mooncake-store/ (etcdctl user get, etcdctl role grant-permission)"}
	case away && f.member:
		return &Obstacle{Cause: EtcdAway, Reason: "the nodes' own etcd does not answer: " + etcdclient.Says(err),
			Help: "see that more than half of the members of etcd run (masterctl member list); if they do, look at their disks, CPU and network"}
	case away && f.owns:
		return &Obstacle{Cause: EtcdAway, Reason: "the embedded etcd does not answer: " + etcdclient.Says(err), Help: "look at the log of etcd and at the disk of --data-dir"}
	case away:
		return &Obstacle{Cause: EtcdAway, Reason: "etcd does not answer: " + etcdclient.Says(err), Help: "see that etcd runs, has a leader, and is reached at --etcd_endpoints"}
	}
	return nil
}

func (f facts) etcdFull(err error) *Obstacle {
	o := &Obstacle{Cause: EtcdFull, Reason: "etcd has raised its alarm NOSPACE and refuses writes: " + etcdclient.Says(err)}
	switch {
	case f.owns && f.fault != nil:
		o.Reason += "; its history is kept, since it is still needed: " + f.fault.Error()
		o.Help = "let a complete node save its state (--state-dir must be writable and have space), or raise --etcd-quota-bytes and start this node again"
	case f.owns:
		o.Help = "wait until this node has made space; if it does not, raise --etcd-quota-bytes"
	case f.owner != "":
		o.Help = fmt.Sprintf("wait until %s, in which etcd is embedded, has made space; if it does not, see what it says in masterctl status, or raise its --etcd-quota-bytes", f.owner)
	default:
		o.Help = "compact etcd, defragment it (etcdctl defrag), disarm its alarm (etcdctl alarm disarm), and raise its quota"
	}
	return o
}

// squatted is the obstacle of a leader key that no lease ends, or that nobody can read.
func squatted(key string, l Leader, after time.Duration) *Obstacle {
	what := "no lease ends it"
	if l.unreadable {
		what = "nobody can read it"
	}
	return &Obstacle{Cause: Squatted, Reason: fmt.Sprintf("the leader key stands in the way of an election: %s", what),
		Help: fmt.Sprintf("wait: a node deletes it when no head has moved behind it for %v; or delete it: etcdctl del %s", after, key)}
}

// noneCan returns an obstacle if no registered node could take over, with the reason of
// each, and with those that are listed as complete and away.
func (n *Node) noneCan(ctx context.Context, head journal.Cursor, nodes []NodeInfo) error {
	var whys []string
	stalled := false
	for _, other := range nodes {
		if other.Promotable {
			return nil
		}
		if other.ID == n.ID {
			other = n.Status().Self
		}
		stalled = stalled || other.Stalled
		whys = append(whys, other.ID+": "+other.Why)
	}
	absent, err := n.absent(ctx, nodes)
	if err != nil {
		return err
	}
	o := &Obstacle{Cause: NoneCan, Reason: "no node can take over: " + strings.Join(whys, "; ")}
	start, strays := "start a node that holds the state", n.strays(head, nodes)
	if n.saver.status().Unread != nil {
		start = "see that this node can read its state files, and start it again; or " + start
	}
	switch {
	case stalled:
		o.Help = watchHelp
	case len(absent) > 0:
		o.Reason += "; nodes that held the state are away, or cannot say what they hold: " + absent.String()
		if o.Help = absent.help(); n.MayStartEmpty && !n.OwnsEtcd {
			o.Help += fmt.Sprintf("; after that: masterctl start-empty --yes --node=%s", n.ID)
		}
	case !n.MayStartEmpty:
		o.Help = start + ", or a master, which can start empty"
	case n.OwnsEtcd && len(strays) > 0:
		o.Help = start
	case n.OwnsEtcd:
		o.Help = fmt.Sprintf("%s, or wait: this master starts empty after %v", start, n.SessionTTL)
	default:
		o.Help = fmt.Sprintf("%s; if there is none: masterctl start-empty --yes --node=%s (with --no-writers if no earlier writer is left)", start, n.ID)
	}
	if len(strays) > 0 {
		o.Help = claim(strays) + "; or " + o.Help
	}
	return o
}

// watchHelp is the advice for a node whose watch of etcd brings nothing.
const watchHelp = "see that etcd's watches reach that node as its other calls do, through each proxy and load balancer between them; or start it again"

// unreadable is the obstacle of a node without a state that cannot read the head.
func unreadable(id string, err error) error {
	if errors.Is(err, journal.ErrNewer) {
		return &Obstacle{Cause: JournalLost, Reason: err.Error(), Help: "upgrade this node: a newer version leads the cluster"}
	}
	return &Obstacle{Cause: JournalLost, Reason: err.Error() + ", and this node holds no state",
		Help: fmt.Sprintf("start a node that holds the state; if there is none: masterctl start-empty --yes --node=%s", id)}
}

// A silence says since when the head has not moved, and when that was last checked, by the
// clock. Only campaign uses it.
type silence struct {
	at            journal.Cursor
	since, looked time.Duration
}

// silentFor is how many failover times a leader may commit nothing before that counts as an
// obstacle: after one, others should have deposed it.
const silentFor = 3

// look returns an obstacle while a leader commits nothing and nobody deposes it: for example,
// because etcd answers reads but refuses writes, or because takeover is paused.
func (s *silence) look(now time.Duration, leader Leader, view journal.View, pause Pause) error {
	after := s.at.Head.FailoverAfter()
	if leader.State != Serving || view.Err != nil || !view.Still(s.at) || now-s.looked > silentFor*after { // etcd was away
		*s = silence{view.Cursor, now, now}
		return nil
	}
	s.looked = now
	if after == 0 || now-s.since < silentFor*after {
		return nil
	}
	if pause.there {
		return pause.obstacle(leader.NodeID + " is elected and commits nothing")
	}
	return &Obstacle{
		Cause: RightLapsed, Reason: fmt.Sprintf("%s is elected and has committed nothing for more than %v, so it answers nobody, and nobody could depose it", leader.NodeID, silentFor*after),
		Help: "look at what that node says in masterctl status; see that etcd answers quickly, has space, and has no alarm (etcdctl alarm list)",
	}
}

// obstacleLocked returns the obstacle at a status. Needs mu.
func (n *Node) obstacleLocked(s *Status) *Obstacle {
	f := facts{role: s.Self.Role, leader: s.Leader, loss: s.Loss, failed: n.failed, ended: n.ended, refused: n.refused, owns: n.OwnsEtcd || n.EtcdMember, member: n.EtcdMember, fault: s.Space.Fault, id: n.ID, owner: n.companions.known().Owner}
	if n.term != nil {
		if err := n.term.failing.Load(); err != nil {
			f.commit = *err
		}
	}
	return f.obstacle()
}

// meet notes the outcome of a look at an election. When the cause that keeps nodes from
// serving has changed, it logs the new one, and how long the previous one lasted.
func (n *Node) meet(err error) {
	if errors.Is(err, errLost) {
		err = nil // another node is elected
	}
	n.mu.Lock()
	n.failed = err
	n.mu.Unlock()
	var cause Cause
	o := n.Status().Obstacle
	if o != nil {
		cause = o.Cause
	}
	now := n.Clock()
	n.mu.Lock()
	before, lasted := n.cause, now-n.causeSince
	if before != cause {
		n.cause, n.causeSince = cause, now
	}
	n.mu.Unlock()
	if before == cause {
		return
	}
	level := zerolog.WarnLevel
	switch {
	case cause.passes() && before.passes(): // as in any takeover
		level = zerolog.DebugLevel
	case before == "" && cause == AwaitsOthers, before == AwaitsOthers && cause.passes(): // as at any first start
		level = zerolog.InfoLevel
	}
	line := filled(n.Log.WithLevel(level), "before", string(before)).Dur("lasted", lasted)
	if o == nil {
		line.Msg("a node serves")
		return
	}
	filled(line, "help", o.Help).Msg("no node serves: " + o.Reason)
}

// filled adds a field to a line of the log, unless it is empty.
func filled(line *zerolog.Event, field, value string) *zerolog.Event {
	if value == "" {
		return line
	}
	return line.Str(field, value)
}

// passes reports whether a cause is part of a takeover that goes well, or none at all.
func (c Cause) passes() bool { return c == "" || c == Unelected || c == GetsReady }

func (n *Node) setEnded(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failed, n.ended = nil, err
}

// turn notes that this node begins or stops answering, at a time by the clock. It returns
// how long the opposite lasted, and false if nothing has changed.
func (n *Node) turn(answers bool, at time.Duration) (lasted time.Duration, changed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.answers == answers || answers && n.role != Primary {
		return 0, false
	}
	lasted = max(0, at-n.answersSince) // the right may have ended before the term opened
	n.answers, n.answersSince = answers, at
	n.cause, n.causeSince = "", at
	return lasted, true
}
