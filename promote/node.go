package promote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/clock"
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
	ClusterID  string
	Layout     journal.Layout
	Codec      journal.Codec
	Client     *clientv3.Client // of the journal
	Sessions   *clientv3.Client // of keepalives alone, a connection of its own
	Clock      clock.Clock
	Log        zerolog.Logger
	SessionTTL time.Duration // whole seconds, at least 2
	// FailoverAfter is for how long a primary commits nothing before it is deposed, in
	// terms that this node begins; 0 for never, its session decides then.
	FailoverAfter time.Duration
	EventsTTL     time.Duration
	// StateDir is where this node keeps its state files, empty for none;
	// StateSaveInterval is how often it writes one.
	StateDir          string
	StateSaveInterval time.Duration

	Params          metadata.Params
	Cleanup         Cleanup
	SyncInterval    time.Duration // of lease renewals
	QueueBytes      int64
	MaxJournalBytes int64
	Compact         bool // the journal's history is ours to cut
	OwnsEtcd        bool // etcd is embedded in this very process
	HandoverTimeout time.Duration
	Random          func() float64 // spreads retries, as in journal.Jitter; may be nil

	// RefoundWait is how long a node that founds the journal waits for others that may
	// hold more of it.
	RefoundWait time.Duration
	// Alone says that no other node can know this node's etcd: then it founds a journal
	// at once where there is none.
	Alone bool

	// MayStartEmpty lets the node begin a journal that was never written, as
	// cmd/master does and cmd/standby never.
	MayStartEmpty bool
	// StartEmpty lets it also begin anew behind a journal whose state is lost.
	StartEmpty bool

	// Options of stores that this node makes itself.
	Options metadata.Options
	// Follower is what followers work with; the node fills in where they read.
	Follower follower.Config
	Journal  journal.Observer
	Peers    Peers
	Server   Server
	// LeaderChanged is told of the elected node whenever it changes; may be nil.
	LeaderChanged func(Leader)
}

// Peers reaches other nodes.
type Peers interface {
	// Fetch streams a snapshot from the node at an RPC address.
	Fetch(ctx context.Context, address string, add func(part []byte) error) (journal.Cursor, error)
	// Standing asks the node at an RPC address what it holds.
	Standing(ctx context.Context, address string) (Standing, error)
	// WaitApplied waits until the node at an RPC address has applied a sequence.
	WaitApplied(ctx context.Context, address string, seq metadata.Seq) error
}

// A Server answers calls during a term.
type Server interface {
	// Serve opens the node for calls and runs the primary's loops until the
	// context ends, or one of them fails. It returns when nothing of it runs any
	// more and no call is taken.
	Serve(ctx context.Context, t *Term) error
}

// A Node runs one node's part in the cluster.
type Node struct {
	Config
	registry *registry
	space    *reclaimer
	saver    *saver
	wake     chan struct{} // the leader, or the follower's state, may have changed
	// leaderless is since when there is no leader, by the clock; 0 if there is one.
	// For campaign alone.
	leaderless time.Duration
	squatters  squatters
	companions companions
	// unfounded is since when etcd has held no head, by the clock; 0 if it has one, or
	// if that is not known. For campaign alone.
	unfounded time.Duration
	deposals  atomic.Int64 // of primaries by this node

	mu       sync.Mutex // guards all below
	role     Role
	leader   Leader                 // last seen; zero for none
	since    time.Duration          // by the clock: when leader was new
	previous Leader                 // the last one that was not zero
	follower *follower.Follower     // nil while this node is elected
	term     *Term                  // nil unless this node is elected
	allowed  bool                   // to start empty, by an operator
	loads    map[journal.Reason]int // snapshot loads of followers before
	lastLoad journal.Reason
	takeover Takeover // the last one of this node
	raised   int      // in terms before: the pace was slowed down
	lapses   int      // in terms before: the right to answer lapsed and came back
}

// New returns a node that is ready to run.
func New(c Config) *Node {
	n := &Node{
		Config: c, role: Standby, allowed: c.StartEmpty,
		wake:  make(chan struct{}, 1),
		loads: make(map[journal.Reason]int),
	}
	n.space, n.saver = newReclaimer(n), newSaver(n)
	n.registry = &registry{
		client: c.Sessions, layout: c.Layout, clock: c.Clock, ttl: c.SessionTTL, log: c.Log, self: n.self, capability: n.capability,
		noSpace: n.space.reclaim, recordsLive: c.EventsTTL,
	}
	return n
}

// Run plays the node's part until the context ends; a primary then hands over
// if it can.
func (n *Node) Run(ctx context.Context) error {
	store, at, doubt := n.saver.open(ctx)
	defer func() { n.saver.close(ctx, store, at) }()
	session, err := n.registry.register(ctx)
	if err != nil {
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

	saving := start(func() error { n.saver.run(ctx); return nil })
	defer func() { <-saving.ended }()
	for ctx.Err() == nil {
		var won *candidate
		won, store, at = n.standBy(ctx, store, at, doubt)
		if won == nil {
			break
		}
		store, at = n.runTerm(ctx, won)
		doubt = nil
	}
	n.setRole(Stopping)
	return ctx.Err()
}

// A candidate is a node that won an election.
type candidate struct {
	leader  Leader
	session *Session
	right   *journal.Right
	pace    *journal.Pace
	log     *journal.EtcdLog
	// histories says that every node reads heads with a history.
	histories *atomic.Bool
	store     *metadata.Store // nil to start empty
	before    journal.Head    // of the terms before
	learned   time.Duration   // by the clock: when this node learned of before
	why       string          // it was elected
	empty     bool
	founded   *founding // nil unless it founded the journal anew
	phases    Takeover
}

// standBy follows the journal, from a former primary's state if there is one,
// until this node is elected and has caught up. When the context ends it returns
// the complete state that there is instead. A doubt is why the state cannot be
// followed with.
func (n *Node) standBy(
	ctx context.Context, store *metadata.Store, at journal.Cursor, doubt *journal.BrokenError,
) (*candidate, *metadata.Store, journal.Cursor) {
	c := n.Config.Follower
	c.Reader = &journal.Reader{Client: n.Client, Layout: n.Layout, Codec: n.Codec}
	c.Snapshot, c.Options, c.Log, c.MaxLagBytes = snapshots{n}, n.Options, n.Log, n.MaxJournalBytes
	c.Changed, c.Random, c.Clock = func(string) { n.poke() }, n.Random, n.Clock
	f := follower.New(c, store, at)
	if doubt != nil {
		f.Doubt(doubt)
	}
	n.setFollower(f)
	following, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(following) })
	running.Go(func() { n.space.watch(following) })
	running.Go(func() { n.companions.run(following, n, func() journal.Cursor { _, at := f.State(); return at }) })
	running.Go(func() { (&watchdog{node: n, follower: f}).run(following) })
	defer func() { stop(); running.Wait() }()

	begun := n.Clock()
	for {
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
		switch {
		case err != nil && ctx.Err() == nil:
			n.Log.Debug().Err(err).Msg("not elected")
			if errors.Is(err, rpctypes.ErrNoSpace) {
				n.space.reclaim(ctx)
			}
		case c != nil:
			stop()
			running.Wait()
			if c.empty {
				return c, nil, journal.Cursor{}
			}
			var at journal.Cursor
			if c.store, at = f.State(); at.Head.Seq > c.log.Tip().Head.Seq {
				// Another node was elected since, and has committed: this one follows it.
				n.giveUp(ctx, c)
				return n.standBy(ctx, c.store, at, nil)
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

// campaign stands for election if there is no leader and this node may run,
// and catches up if it wins.
func (n *Node) campaign(ctx context.Context, f *follower.Follower, begun time.Duration) (*candidate, error) {
	l, there, err := readLeader(ctx, n.Client, n.Layout)
	if err != nil {
		return nil, err
	}
	n.setLeader(l)
	if err := n.squatters.look(ctx, n, l); err != nil {
		return nil, err
	}
	if there {
		n.leaderless = 0
		n.setRole(Standby)
		n.dropAllowance(l, begun)
		return nil, nil
	}
	if f.Lost().Err != nil { // a state that the head does not continue stands in no election
		return n.refound(ctx, f)
	}
	_, at := f.State() // before the read: the journal never goes back
	reader := &journal.Reader{Client: n.Client, Layout: n.Layout, Codec: n.Codec}
	view, err := reader.Look(ctx)
	if err != nil {
		return nil, err
	}
	if err := at.Against(view.Cursor, view.Err); err != nil {
		return nil, err // the follower finds out more
	}
	if view.Err != nil {
		return n.startOver(ctx, f, view)
	}
	head := view.Cursor
	if n.leaderless == 0 {
		n.leaderless = n.Clock()
	}
	if heir := head.Head.Heir; heir != "" && heir != n.ID && n.Clock()-n.leaderless < n.failover(head.Head) {
		return nil, nil // the primary before handed over to another node
	}
	if wait, err := n.othersMayShow(ctx, view); err != nil || wait {
		return nil, err
	}
	empty := false
	if may, _ := n.promotable(f, head); !may {
		if may, err = n.mayStartEmpty(ctx, head, begun); err != nil || !may {
			return nil, err
		}
		empty = true
	}
	if of := n.following(f); of != nil && head.Head.Seq == 0 && ctx.Err() == nil {
		n.saver.save(ctx, of) // from here on the journal has it all
	}
	return n.run(ctx, f, head, empty)
}

// dropAllowance ends the permission to start empty when another node serves:
// there is a state again, which must not be lost when that node goes. The key
// of a node that died before this one began is no sign of that, and goes first.
func (n *Node) dropAllowance(l Leader, begun time.Duration) {
	if l.State != Serving || l.NodeID == n.ID || n.Clock()-begun < 2*n.SessionTTL {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.allowed = false
}

// promotable reports whether this node may take over with the state it has,
// and if not, why.
func (n *Node) promotable(f *follower.Follower, head journal.Cursor) (bool, string) {
	st := f.Status()
	switch {
	case st.Loss.Err != nil:
		return false, st.Loss.Err.Error() + "; this node keeps its state and follows nothing"
	case !st.Complete && st.Fault != nil:
		return false, fmt.Sprintf("its state is not complete (%s): %v", st.Why, st.Fault)
	case !st.Complete:
		return false, fmt.Sprintf("its state is not complete (%s); it waits for a snapshot from a primary", st.Why)
	case head.Head.Seq == 0 && !n.MayStartEmpty:
		return false, "there is no journal yet, and a standby does not begin one; start a master"
	}
	return true, ""
}

// mayStartEmpty reports whether this node may begin a new term without the
// state of before, because nobody has it any more.
func (n *Node) mayStartEmpty(ctx context.Context, head journal.Cursor, begun time.Duration) (bool, error) {
	n.mu.Lock()
	allowed := n.allowed
	n.mu.Unlock()
	switch {
	case !n.MayStartEmpty, head.Head.Seq == 0:
		return false, nil
	case !allowed && !n.OwnsEtcd:
		return false, nil // an operator must say so: others may hold the state
	case n.Clock()-max(begun, n.leaderless) < n.SessionTTL:
		return false, nil // a node that holds the state has this long to show itself, the last primary too
	}
	nodes, err := listNodes(ctx, n.Client, n.Layout)
	if err != nil {
		return false, err
	}
	for _, other := range nodes {
		if other.Promotable && other.ID != n.ID {
			return false, nil
		}
	}
	return true, nil
}

// failover returns the failover time of a head, or what counts without one.
func (n *Node) failover(head journal.Head) time.Duration {
	return cmp.Or(head.FailoverAfter(), n.SessionTTL)
}

// run stands for election and catches up with the journal, which nobody else
// can write any more.
func (n *Node) run(ctx context.Context, f *follower.Follower, head journal.Cursor, empty bool) (*candidate, error) {
	n.setRole(Electing)
	c, err := n.elect(ctx, f, head, empty)
	if err != nil {
		n.setRole(Standby)
		return nil, err
	}
	n.leaderless = 0
	n.setLeader(c.leader)
	n.setRole(Promoting)
	n.mu.Lock()
	n.allowed = false // was for this once
	n.mu.Unlock()
	n.Log.Info().Uint64("term", uint64(c.leader.Term)).Uint64("sequence", uint64(head.Head.Seq)).Bool("empty", empty).Msg("elected")
	if empty {
		return c, nil
	}
	begun := n.Clock()
	if err := n.catchUp(ctx, f, c); err != nil {
		n.giveUp(ctx, c)
		return nil, err
	}
	c.phases.CatchUp = n.Clock() - begun
	return c, nil
}

// giveUp ends an election that leads to no term.
func (n *Node) giveUp(ctx context.Context, c *candidate) {
	ctx = context.WithoutCancel(ctx)
	_ = deleteLeader(ctx, n.Client, n.Layout, c.leader)
	c.session.close(ctx)
	n.setRole(Standby)
}

// elect stands for election, for the term behind a head.
func (n *Node) elect(ctx context.Context, f *follower.Follower, head journal.Cursor, empty bool) (*candidate, error) {
	begun := n.Clock()
	c := &candidate{
		right: journal.NewRight(n.Clock), histories: new(atomic.Bool), pace: journal.NewPace(n.FailoverAfter, n.SessionTTL, n.Log),
		before: head.Head, learned: begun, why: reason(head.Head, n.previousLeader(), empty), empty: empty,
	}
	if known, learned := f.Learned(); known == head.Head {
		c.learned = learned
	}
	if !head.Head.Clean {
		c.pace.AtLeast(head.Head.ServeWindow())
	}
	var err error
	if c.session, err = openSession(ctx, n.Sessions, n.Clock, n.SessionTTL, c.right); err != nil {
		return nil, err
	}
	c.leader, err = elect(ctx, n.Client, n.Layout, c.session, Leader{NodeID: n.ID, RPC: n.RPC, HTTP: n.HTTP}, head)
	if err != nil {
		c.session.close(context.WithoutCancel(ctx)) // the key may be there all the same
		return nil, err
	}
	c.log = journal.NewEtcdLog(n.Client, n.Layout, c.leader.Election, head, n.EventsTTL, n.Clock)
	c.log.Random, c.log.Histories = n.Random, c.histories.Load
	n.survey(ctx, c)
	c.phases.Elect = n.Clock() - begun
	return c, nil
}

// survey reads once what an elected node must know of others: whether all read
// heads with serve windows, and whether somebody deposed the leader before, and why.
// Without an answer heads carry no windows for now.
func (n *Node) survey(ctx context.Context, c *candidate) {
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	resp, err := n.Client.Txn(ctx).Then(nodesOp(n.Layout), clientv3.OpGet(n.Layout.Term(c.leader.Term))).Commit()
	if err != nil {
		return
	}
	turn(nodesOf(resp.Responses[0].GetResponseRange().Kvs), c.pace, c.histories)
	var deposed TermRecord
	if kvs := resp.Responses[1].GetResponseRange().Kvs; len(kvs) == 1 && json.Unmarshal(kvs[0].Value, &deposed) == nil {
		c.why = deposed.Why
	}
}

// catchUp waits until the follower has applied the whole journal. Leadership is
// kept meanwhile, however long it takes: by keepalives, and by beats.
func (n *Node) catchUp(ctx context.Context, f *follower.Follower, c *candidate) error {
	ctx, cancel := context.WithCancelCause(ctx)
	keeping := start(func() error {
		err := c.session.keepAlive(ctx)
		cancel(err)
		return err
	})
	defer func() {
		cancel(nil)
		<-keeping.ended
	}()
	for {
		wait, stop := context.WithTimeout(ctx, c.pace.Every())
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
		if err := c.beat(ctx, n.Params.HoldTime()); err != nil {
			return fmt.Errorf("a beat while catching up: %w", err)
		}
	}
}

// beat commits nothing, so that nobody deposes this node while it catches up. The
// follower reads it like any commit. Cluster time stands still.
func (c *candidate) beat(ctx context.Context, hold time.Duration) error {
	window, failover := c.pace.Windows()
	if window == 0 {
		return nil
	}
	head := c.log.Tip().Head
	head.Term, head.Seq, head.Streams, head.Clean, head.Heir = c.leader.Term, head.Seq+1, 0, false, ""
	head.Hold = max(head.Hold, hold.Milliseconds())
	head.Window, head.Failover = window.Milliseconds(), failover.Milliseconds()
	err := c.log.Append(ctx, &journal.Sealed{Head: head})
	var refused *journal.RefusedError
	if errors.As(err, &refused) {
		return nil
	}
	return err
}
