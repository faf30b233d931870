package promote

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/zslog"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/follower"
)

// A Role is what a node does now.
type Role string

// The roles.
const (
	Standby     Role = "standby"      // it follows, or tries to
	Electing    Role = "electing"     // it stands for election
	Promoting   Role = "promoting"    // it is elected and catches up
	Primary     Role = "primary"      // it serves
	HandingOver Role = "handing over" // it is elected and has stopped taking calls
	Fenced      Role = "fenced"       // it is elected, but its right to answer has lapsed
	Stopping    Role = "stopping"
)

// Cleanup says what a new primary removes.
type Cleanup string

// The cleanup policies (design section 8, step 4).
const (
	CleanupAuto    Cleanup = "auto"    // expired under the expiry policy, else none
	CleanupExpired Cleanup = "expired" // objects whose lease had run out
	CleanupNone    Cleanup = "none"
)

// Config is what a node works with.
type Config struct {
	ID         string
	RPC, HTTP  string // addresses that peers and clients use
	Version    string
	Settings   string // those that should be equal on all nodes, for NodeInfo; no decision depends on them
	ClusterID  string
	Layout     journal.Layout
	Codec      journal.Codec
	Client     *clientv3.Client // of the journal
	Sessions   *clientv3.Client // of sessions and the registration: a connection without the journal's traffic
	Clock      clock.Clock
	Log        zerolog.Logger
	SessionTTL time.Duration // whole seconds, at least 2
	// FailoverAfter is how long a primary may commit nothing before standbys depose it, in
	// the terms that this node begins. With 0 nobody deposes it, and its session decides.
	FailoverAfter time.Duration
	EventsTTL     time.Duration
	// StateDir is where this node keeps its state files, empty for none;
	// StateSaveInterval is how often it writes one.
	StateDir          string
	StateSaveInterval time.Duration
	// StateBeside says that StateDir stands beside those of other nodes of the cluster, each
	// named by its id. A state there may be this node's own, from when it had another id.
	StateBeside bool

	Params          metadata.Params
	Cleanup         Cleanup
	SyncInterval    time.Duration // of lease renewals
	QueueBytes      int64
	MaxJournalBytes int64
	Compact         bool // this node may compact etcd's history
	OwnsEtcd        bool // etcd is embedded in this very process, and nowhere else
	EtcdMember      bool // one of several members of etcd is embedded in this process
	HandoverTimeout time.Duration
	Random          func() float64 // spreads retries, as in journal.Jitter; may be nil

	// RefoundWait is how long a node waits, before it founds the journal, for others that
	// may hold more of it.
	RefoundWait time.Duration
	// WaitForState is how long this node, before it starts empty, waits for nodes that
	// are listed as complete and away; 0 for ever.
	WaitForState time.Duration
	// Alone says that no other node can know this node's etcd. Then it founds a missing
	// journal at once.
	Alone bool

	// MayStartEmpty lets the node found the first journal of a cluster. cmd/master sets it,
	// cmd/standby never does.
	MayStartEmpty bool
	// StartEmpty lets it also begin an empty term after a journal whose state no node holds.
	StartEmpty bool
	// NoWriters says that no writer from before an empty start still writes.
	NoWriters bool

	// Options of stores that this node makes itself.
	Options metadata.Options
	// Follower has the Counters and the FullSyncInterval; the node fills in the rest.
	Follower follower.Config
	Journal  journal.Observer
	Tracer   journal.Tracer // may be nil
	Peers    Peers
	Server   Server
	// Counts returns what this node registers of its calls while it is elected; may be nil.
	Counts func() Counts
	// LeaderChanged is called with the elected node whenever it changes; may be nil.
	LeaderChanged func(Leader)
}

// Peers reaches other nodes.
type Peers interface {
	// Fetch streams a snapshot from the node at an RPC address.
	Fetch(ctx context.Context, address string, add func(part []byte) error) (journal.Cursor, error)
	// Standing asks the node at an RPC address what it holds.
	// Errors: *StartingError of a node that runs and cannot say yet what it holds.
	Standing(ctx context.Context, address string) (Standing, error)
	// WaitApplied waits until a node has applied a sequence. It fails if another node answers
	// at its RPC address.
	WaitApplied(ctx context.Context, node NodeInfo, seq metadata.Seq) error
}

// A Server answers calls during a term.
type Server interface {
	// Serve opens the node for calls and runs the primary's loops until the
	// context ends, or one of them fails. It returns when these loops have ended and
	// the node takes no more calls.
	Serve(ctx context.Context, t *Term) error
}

// A Node runs one node's part in the cluster.
type Node struct {
	Config
	registry *registry
	spare    spare
	// compactor and retention bound etcd's history where that is this node's to do.
	compactor *journal.Compactor
	retention *retention
	saver     *saver
	etcdBusy  atomic.Bool   // see EtcdBusy
	wake      chan struct{} // the leader, or the follower's state, may have changed
	// leaderless is when this node found that there is no leader, by the clock; 0 if there
	// is one. Only campaign uses it.
	leaderless time.Duration
	journalLog *slog.Logger // Log, for package journal: masterctl links that, and no zerolog
	squatters  squatters
	silence    silence
	serving    scene         // as last seen while a node served; only campaign uses it
	watched    metadata.Term // of the primary that this node last saw commit; for campaign and the term that follows
	led        metadata.Term // the last one in which this node served; for that term and later ones
	last       lastPrimary   // for campaign and the term that follows
	followed   Leader        // the last other node that was logged as serving; only campaign uses it
	served     servedBy      // the leader key that stands; only campaign uses it
	lastPause  Pause         // as last seen together with the journal; for campaign and the term that follows
	companions companions
	// unfounded is when this node first found no head in etcd, by the clock; 0 if there is
	// one. Only campaign uses it.
	unfounded time.Duration
	deposals  atomic.Int64 // of primaries by this node
	again     again

	mu         sync.Mutex // guards all below
	role       Role
	leader     Leader                 // last seen; zero for none
	since      time.Duration          // by the clock: when the leader key last changed
	committed  time.Duration          // by the clock: this node's last election, or the last commit of its term; 0 if it saw another primary commit since
	previous   Leader                 // the last one that was not zero
	follower   *follower.Follower     // nil while this node is elected
	term       *Term                  // nil unless this node is elected
	allowed    bool                   // to start empty, by an operator
	idle       bool                   // an operator says that no writer from before an empty start is left
	ordered    *refounding            // by an operator, nil for none
	loads      map[journal.Reason]int // snapshot loads of earlier followers
	lastLoad   journal.Reason
	takeover   Takeover   // the last one of this node
	paused     bool       // automatic takeover, when this node looked at an election last
	pauseCount pauseCount // of the pause seen last
	failed     error      // of the last look at an election
	ended      error      // why this node's last term ended; nil if none, or it ended on purpose
	refused    error      // why this node's last election led to no term that served; nil if a node served since
	cause      Cause      // of the obstacle that was logged last; empty for none
	// causeSince is when cause began, answersSince when answers last changed, by the clock.
	causeSince, answersSince time.Duration
	answers                  bool
	raised                   int // how often the pace was slowed down, in earlier terms
	lapses                   int // how often the right to answer lapsed and came back, in earlier terms
	counts                   PrimaryCounts
}

// New returns a node that is ready to run.
func New(c Config) *Node {
	n := &Node{
		Config: c, role: Standby, allowed: c.StartEmpty, idle: c.NoWriters,
		wake:  make(chan struct{}, 1),
		loads: make(map[journal.Reason]int),

		companions: companions{wake: make(chan struct{}, 1)},

		journalLog: zslog.New(c.Log),
	}
	n.causeSince, n.answersSince = c.Clock(), c.Clock()
	n.saver, n.retention = newSaver(n), newRetention(n)
	compactor := journal.Compactor{
		Client: c.Client, Layout: c.Layout, Tip: n.end, Clock: c.Clock, Log: n.journalLog,
		Keep: c.EventsTTL, KeepFrom: n.retention.keepFrom, MaxBytes: c.MaxJournalBytes,
	}
	if c.OwnsEtcd || c.EtcdMember {
		compactor.Cover = n.cover
	}
	if c.EtcdMember {
		compactor.Cuts = n.cuts
	}
	n.compactor = journal.NewCompactor(compactor)
	n.registry = &registry{
		client: c.Sessions, layout: c.Layout, clock: c.Clock, ttl: c.SessionTTL, log: c.Log, self: n.self, capability: n.capability,
		noSpace: func() { n.meet(rpctypes.ErrNoSpace) }, recordsLive: c.EventsTTL, makesSpace: n.makesSpace(),
	}
	return n
}

// Run plays the node's part until the context ends; a primary then hands over
// if it can.
func (n *Node) Run(ctx context.Context) error {
	store, at, file := n.saver.open()
	var maintaining *task
	defer func() { n.awaitMaintenance(maintaining) }() // after the last save, which must not be cut short
	defer func() { n.saver.close(ctx, store, at) }()
	session, err := n.registry.register(ctx)
	if err != nil && !(n.makesSpace() && errors.Is(err, rpctypes.ErrNoSpace)) { // maintain makes space first, then the node registers
		store = nil
		return err
	}
	// The registration outlives the context, so that a handover can be seen.
	registered, unregister := context.WithCancel(context.WithoutCancel(ctx))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = n.registry.run(registered, session)
	}()
	defer func() { unregister(); <-gone }()

	if n.makesSpace() {
		maintaining = start(func() error { return n.maintain(registered) })
		defer unregister()
	}
	saving := start(func() error { n.saver.run(ctx); return nil })
	defer func() { <-saving.ended }()
	for ctx.Err() == nil {
		var won *candidate
		won, store, at = n.standBy(ctx, store, at, file)
		if won == nil {
			break
		}
		store, at = n.runTerm(ctx, won)
		file = ""
	}
	n.setRole(Stopping)
	return ctx.Err()
}

// makesSpace reports whether making space in etcd is this node's to do.
func (n *Node) makesSpace() bool { return (n.OwnsEtcd || n.EtcdMember) && n.Compact }

// cuts reports whether this node compacts etcd's history, where several nodes run a member
// of etcd: the primary does, or without one the node whose member leads etcd.
func (n *Node) cuts(leadsEtcd bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.term != nil || leadsEtcd && n.leader.NodeID == ""
}

// standBy follows the journal, from the state of an earlier term if there is one,
// until this node is elected and has caught up. When the context ends it returns
// the complete state instead, if there is one. file names the file that the state comes
// from, if that was not compared with the journal yet; else it is empty.
func (n *Node) standBy(
	ctx context.Context, store *metadata.Store, at journal.Cursor, file string,
) (*candidate, *metadata.Store, journal.Cursor) {
	f := follower.New(n.followerConfig(), store, at)
	if file != "" {
		f.Restore(file)
	}
	return n.standByWith(ctx, f)
}

// standByAgain goes on from a follower that has stopped, with its state, complete or not.
func (n *Node) standByAgain(ctx context.Context, before *follower.Follower) (*candidate, *metadata.Store, journal.Cursor) {
	return n.standByWith(ctx, follower.Again(n.followerConfig(), before))
}

func (n *Node) followerConfig() follower.Config {
	c := n.Config.Follower
	c.Reader = n.reader()
	c.Snapshot, c.Options, c.Log, c.MaxLagBytes = snapshots{n}, n.Options, n.Log, n.MaxJournalBytes
	c.Changed, c.Random, c.Clock = func(string) { n.poke() }, n.Random, n.Clock
	known := n.companions.known()
	c.Diverged, c.Descent, c.Cluster, c.WentBack = n.saver.keepDiverged, n.companions.descent, known.Cluster, known.WentBack
	return c
}

// standByWith is standBy with a given follower.
func (n *Node) standByWith(ctx context.Context, f *follower.Follower) (*candidate, *metadata.Store, journal.Cursor) {
	n.setFollower(f)
	following, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(following) })
	running.Go(func() { n.spare.run(following, n) })
	running.Go(func() { n.companions.run(following, n, f.Status) })
	running.Go(func() { (&watchdog{node: n, follower: f}).run(following) })
	defer func() { stop(); running.Wait() }()

	begun := n.Clock()
	for {
		if o := n.takeOrder(); o != nil {
			stop()
			running.Wait()
			c, err := n.obey(ctx, f, o)
			o.done <- err
			if err != nil {
				return n.standByAgain(ctx, f)
			}
			return c, nil, journal.Cursor{}
		}
		if err := n.pause(ctx); err != nil {
			stop()
			running.Wait()
			if !f.Complete() {
				return nil, nil, journal.Cursor{}
			}
			store, at := f.State()
			return nil, store, at
		}
		c, err := n.campaign(ctx, f, begun)
		if c == nil {
			n.meet(err)
		}
		switch {
		case err != nil && ctx.Err() == nil:
			n.Log.Debug().Err(err).Msg("not elected")
		case c != nil:
			stop()
			running.Wait()
			if c.empty {
				return c, nil, journal.Cursor{}
			}
			var at journal.Cursor
			if c.store, at = f.State(); c.store == nil { // the follower has just dropped it, as it was empty
				n.giveUp(ctx, c, nil)
				return n.standByAgain(ctx, f)
			}
			if at.Head.Seq > c.log.Tip().Head.Seq {
				// Another node was elected since, and has committed: this one follows it.
				n.giveUp(ctx, c, nil)
				return n.standBy(ctx, c.store, at, "")
			}
			return c, nil, journal.Cursor{}
		}
	}
}

// pause waits for a change, or for a while.
func (n *Node) pause(ctx context.Context) error {
	timer := time.NewTimer(n.SessionTTL / 10)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-n.wake:
	case <-timer.C:
	}
	return nil
}

func (n *Node) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}
