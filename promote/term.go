package promote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/follower"
)

// A Term is this node's time as the elected node, and what its server works
// with.
type Term struct {
	Number metadata.Term
	Store  *metadata.Store
	Queue  *journal.Queue
	Now    func() metadata.Time // the cluster clock
	// Fence returns nil while this node may answer. If the right has lapsed, it waits for
	// the commit that renews it, until others may depose this node; then it returns
	// errs.NotLeader.
	Fence func(ctx context.Context) error
	// Answers reports whether this node may answer now.
	Answers func() bool
	View    int64 // etcd's revision of the announcement that this node serves
	// MayLack says that the store may lack what was acknowledged before the term: the term
	// began empty, or etcd may have gone back, or the journal was founded anew without its
	// last primary.
	MayLack bool

	node    *Node
	leader  Leader
	session *Session
	right   *journal.Right
	pace    *journal.Pace
	log     *journal.EtcdLog
	// histories says that every node reads heads with a history.
	histories *atomic.Bool
	writer    *journal.Writer
	before    journal.Head  // the last one before this term
	learned   time.Duration // by the clock: when this node learned of the head in before
	last      lastPrimary   // the one before this term
	why       string        // reason for the term, for people
	end       string        // how it ended, if it was ended on purpose
	left      time.Duration // from the end of calls until the handover was committed
	until     time.Duration // by the clock: when this node gives up the leader key at the latest, set at the end of calls
	recorded  TermRecord    // zero until the term serves. For record, and then recordEnd.
	gap       time.Duration // how long no node answered before the term served
	// gapAtLeast says that the gap may be longer.
	gapAtLeast bool
	empty      bool
	noWriters  bool      // no writer from before the empty start is left
	founded    *founding // nil unless this node founded the journal anew for the term
	trusted    bool      // the store has what the journal says; false before the first commit on nothing

	failing       atomic.Pointer[error]         // error of the last attempt to commit; nil if it succeeded
	interruptions atomic.Pointer[Interruptions] // nil for none; watchRight stores it
	counted       chan struct{}                 // has a value after an interruption was counted
	lapsed        atomic.Pointer[Obstacle]      // why no commit comes through; nil while they do; watchRight stores it
	held          bool                          // changes are refused, since etcd is nearly full; for keepPace alone

	flushed bool // every lease is in the journal, and no call is answered any more; for leave alone

	stop   context.CancelCauseFunc // ends the term
	saved  <-chan struct{}         // closed when a state file leads to a new journal; nil if an earlier one does
	orders chan *order             // handovers that operators ask for
	ended  chan struct{}           // closed when no order is taken any more
}

// Takeover says how long the steps of a takeover took, and what it cleaned up.
type Takeover struct {
	Term metadata.Term // that the takeover led to; 0 until it serves
	// Announce is 0 if the first entry of the term announced that this node serves.
	Elect, CatchUp, Begin, Clean, Announce time.Duration
	Objects                                int
	Bytes                                  uint64
}

// runTerm runs a term from its election to its end, and returns the state with which
// this node then follows: none if the state cannot be trusted.
func (n *Node) runTerm(ctx context.Context, c *candidate) (*metadata.Store, journal.Cursor) {
	// The session outlives ctx, for HandoverTimeout at most, so that the term can end in order.
	running, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(n.HandoverTimeout, func() { end(context.Canceled) })
	})()
	t := n.newTerm(c)
	t.stop = end
	var keeping sync.WaitGroup
	keeping.Go(func() { end(c.session.keepAlive(running)) })
	keeping.Go(func() { t.keepPace(running) })
	keeping.Go(func() { t.watchRight(running) })
	keeping.Go(func() { n.companions.run(running, n, t.following) })
	keeping.Go(func() { t.trimmer().Run(running) })
	if n.Compact && !n.makesSpace() {
		keeping.Go(func() { _ = n.maintain(running) })
	}
	defer keeping.Wait()
	defer end(nil)

	n.setTerm(t)
	n.lastPause = Pause{}
	err := t.begin(running, &c.phases)
	if err != nil {
		close(t.ended)
	} else {
		n.endAllowance()
		n.setTakeover(c.phases)
		if t.empty || t.before.Seq == 0 || t.founded != nil && !n.saver.leadsTo(t.Store, t.before.Parent, t.before.Fork) {
			saved := make(chan struct{})
			t.saved = saved
			keeping.Go(func() { n.saver.save(running, t.source()); close(saved) })
		}
		err = t.serve(ctx, running)
	}
	n.setRole(HandingOver)
	n.setEnded(err)
	if err != nil && !errors.Is(err, context.Canceled) {
		n.Log.Warn().Err(err).Uint64("term", uint64(t.Number)).Msg("the term ended")
	}
	t.right.Stop()
	if last := t.right.LastCommit(); last > 0 {
		n.setCommitted(last)
	}
	n.conclude(context.WithoutCancel(ctx), t, err)
	t.Store.DropOverlay()
	tip := t.log.Tip()
	if p := t.Store.Position(); !t.trusted || p.Seq != tip.Head.Seq {
		return nil, journal.Cursor{}
	}
	return t.Store, tip
}

// conclude gives up the leader key of a term that has ended, and records why it ended.
func (n *Node) conclude(ctx context.Context, t *Term, why error) {
	gone := n.resign(ctx, t.leader, t.session)
	if gone {
		t.recordEnd(ctx, why)
	}
	if n.led == t.Number {
		n.last = lastPrimary{leader: t.leader, learned: n.Clock(), wall: clock.Wall().UnixMilli()}
		return
	}
	if gone {
		t.log.Release(ctx)
	}
	if why != nil && !errors.Is(why, context.Canceled) {
		n.unserved(why)
	}
}

// following returns how the term stands to the journal, for companions: complete once the
// head is of this term. If etcd went back before, that head says so (ForkOwed) until the
// first entry of the term has quarantined what is free.
func (t *Term) following() follower.Status {
	at := t.log.Tip()
	return follower.Status{At: at, Complete: at.Head.Term == t.Number}
}

// trimmer deletes the records that no state file needs any more.
func (t *Term) trimmer() *journal.Trimmer {
	n := t.node
	return &journal.Trimmer{
		Journal: t.log, Clock: n.Clock, Log: n.journalLog, Keep: n.EventsTTL, Covered: newRetention(n).covered, MaxBytes: n.MaxJournalBytes,
	}
}

// tried notes the outcome of an attempt to commit.
func (t *Term) tried(err error) {
	if err == nil {
		t.failing.Store(nil)
		return
	}
	failed := err
	t.failing.Store(&failed)
}

func (n *Node) newTerm(c *candidate) *Term {
	t := &Term{
		counted: make(chan struct{}, 1), Number: c.leader.Term, Store: c.store, node: n, leader: c.leader, session: c.session, right: c.right, pace: c.pace, log: c.log, histories: c.histories,
		before: c.before, learned: c.learned, last: c.last, why: c.why, empty: c.empty, noWriters: c.noWriters, founded: c.founded,
		MayLack: c.empty || c.before.ForkOwed,
	}
	t.orders, t.ended = make(chan *order), make(chan struct{})
	t.trusted = !t.empty && c.before.Seq > 0
	t.Store.StartIDs(t.Number)
	t.Now = metadata.NewClock(n.Clock, c.before.Time)
	t.Fence, t.Answers = t.right.Fence, t.right.Valid
	t.log.Tried = t.tried
	t.Queue = journal.NewQueue(t.Store, n.QueueBytes)
	t.writer = journal.NewWriter(journal.WriterConfig{
		Store: t.Store, Queue: t.Queue, Log: t.log, Term: t.Number, Hold: n.Params.HoldTime(),
		Now: t.Now, Elapsed: n.Clock, Observer: n.Journal, Tracer: n.Tracer, Pace: t.pace, Right: t.right,
		Filler: leasesync.NewFiller(),
	})
	return t
}

// begin writes the first entry of the term and cleans up. If there is nothing to clean up
// and nothing else to wait for, the transaction of that entry also announces that this node
// serves: the node has applied the whole journal, and no earlier primary may answer. Even
// then it answers nobody before the commit has given it the right, and its server is open.
func (t *Term) begin(ctx context.Context, phases *Takeover) error {
	n, started := t.node, t.node.Clock()
	guard := t.guard(t.before)
	entry := []metadata.Change{&metadata.TermStart{Term: t.Number, Params: n.Params, Empty: t.empty, Guard: guard}}
	if t.before.ForkOwed {
		entry = append(entry, &metadata.Fork{Hold: guard})
	}
	ready := t.untilSilence() == 0 && t.before.History != "" && !t.empty && !t.cleansUp()
	if ready {
		t.pace.AtLeast(0)
		head := t.writer.Next()
		head.History = t.before.History
		t.measureGap()
		ops, err := announcement(n.Layout, t.session, t.leader, n.complete(head), t.beginning())
		if err != nil {
			return err
		}
		t.log.With(ops)
	}
	if err := t.writer.Commit(ctx, entry...); err != nil {
		return fmt.Errorf("beginning term %d: %w", t.Number, err)
	}
	if ready {
		t.announced(t.log.Tip().Revision)
	}
	t.trusted = true
	began := n.Clock()
	phases.Begin = began - started
	if err := t.cleanUp(ctx, t.before, phases); err != nil {
		return fmt.Errorf("cleaning up: %w", err)
	}
	phases.Clean = n.Clock() - began
	return nil
}

// guard returns how long freed memory must stay in quarantine. The previous primary may
// have granted leases that this node does not know, and may grant more until its right to
// answer ends. After an empty start this node knows no reservations either, and after a
// fork without the last primary it lacks the newest ones. So writers get their release
// time, except after an empty start for which an operator said that there are none.
func (t *Term) guard(before journal.Head) time.Duration {
	if before.Clean && !t.empty {
		return 0
	}
	silence := (t.untilSilence() + time.Millisecond - 1).Truncate(time.Millisecond) // as in the journal
	hold := time.Duration(before.Hold) * time.Millisecond
	if t.empty && !t.noWriters || before.ForkOwed {
		hold = max(hold, t.node.Params.ReleaseTimeout)
	}
	return hold + silence
}

// serve takes calls until something ends that. If that is no error, it then hands over or
// resigns.
func (t *Term) serve(ctx, running context.Context) error {
	defer close(t.ended)
	o, err := t.takeCalls(ctx, running)
	if err != nil {
		return err
	}
	return t.leave(ctx, running, o)
}

// open announces that this node serves, unless the first entry of the term did, and
// updates this node's own status.
func (t *Term) open(ctx context.Context) error {
	n := t.node
	if t.saved != nil {
		select { // what is acknowledged from here on is lost if this node dies before there is a file
		case <-t.saved:
		case <-time.After(firstSave):
			n.Log.Warn().Uint64("term", uint64(t.Number)).Msg("no state file leads to this journal yet, the disk may hang: this node serves all the same")
		case <-ctx.Done():
		}
	}
	if t.leader.State != Serving {
		if err := t.announce(ctx); err != nil {
			return err
		}
	}
	n.setLeader(t.leader)
	n.setRole(Primary)
	n.tookOver(t.Number)
	n.someoneServes()
	n.companions.hurry()
	if t.founded != nil {
		n.Log.Warn().Uint64("term", uint64(t.Number)).Msg(t.founded.String())
	}
	if t.empty {
		n.Log.Warn().Uint64("term", uint64(t.Number)).Msg("started empty: no node held the state; owners of segments are told to mount them again")
		if held := t.Store.MountsHeldFor(); held > n.Params.HoldTime() {
			n.Log.Warn().Dur("for", held).Msg("mounted memory is given out only after this time, since writers that reserved it earlier may still write to it; " +
				"an operator who knows that there are none says so with the next empty start (--no-writers)")
		}
	}
	idle, _ := n.turn(true, n.Clock())
	n.led = t.Number
	n.Log.Info().Uint64("term", uint64(t.Number)).Uint64("sequence", uint64(t.Store.Position().Seq)).Dur("idle_for", idle).
		Int64("objects", t.Store.Stats().Objects).Str("why", t.why).Dur("gap", t.gap).Bool("gap_at_least", t.gapAtLeast).Msg("serving")
	return nil
}

// announce announces that this node serves, once no earlier primary may answer.
func (t *Term) announce(ctx context.Context) error {
	n := t.node
	if err := t.awaitSilence(ctx); err != nil {
		return err
	}
	t.pace.AtLeast(0)
	started := n.Clock()
	t.measureGap()
	ops, err := announcement(n.Layout, t.session, t.leader, n.complete(t.log.Tip().Head), t.beginning())
	if err != nil {
		return err
	}
	view, err := announce(ctx, n.Client, n.Layout, t.leader, ops)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.takeover.Announce = n.Clock() - started
	n.mu.Unlock()
	t.announced(view)
	return nil
}

// announced notes that the announcement stands in etcd, as of a revision.
func (t *Term) announced(revision int64) {
	t.leader.State, t.View = Serving, revision
	t.measureGap()
}

// takeCalls serves until something ends that: an error, or an order to hand
// over, or to stop. When it returns, nothing is answered any more, the server's
// loops have ended, and what was queued is committed or taken back.
func (t *Term) takeCalls(ctx, running context.Context) (*order, error) {
	n := t.node
	serving, stop := context.WithCancel(running)
	defer stop()
	writer := start(func() error { return t.writer.Run(running) })
	server := start(func() error {
		if err := t.open(serving); err != nil {
			return err
		}
		open, end := context.WithCancel(serving)
		recorded := start(func() error { return t.record(open) })
		defer func() { end(); <-recorded.ended }()
		return n.Server.Serve(serving, t)
	})

	o, err := t.wait(ctx, running, writer, server)
	// Reads end first: the fence closes before anything else.
	n.setRole(HandingOver)
	t.right.Stop()
	t.until = n.Clock() + t.failover()
	if served, changed := n.turn(false, n.Clock()); changed {
		cause := "an order to hand over"
		if ctx.Err() != nil {
			cause = "this node stops"
		}
		if err != nil {
			cause = err.Error()
		}
		n.Log.Info().Uint64("term", uint64(t.Number)).Str("cause", cause).Dur("served_for", served).Msg("this node answers nobody any more")
	}
	stop()
	<-server.ended
	t.Queue.Close(errEnding)
	if !t.drained(writer) {
		err = errUnsettled
	}
	_ = t.Queue.Idle(context.WithoutCancel(ctx)) // callers that got an answer are about to leave
	if err == nil {
		err = writer.err
	}
	if err != nil {
		o.result <- handover{kind: errs.Unavailable, err: err}
	}
	return o, err
}

// drained waits until what is queued is committed or taken back. It reports false if this
// node must give up the leader key before that, for example because etcd is full and the
// outcome of a commit is open. Then the term ends, and the next election decides.
func (t *Term) drained(writer *task) bool {
	patience := time.NewTimer(t.until - t.node.Clock())
	defer patience.Stop()
	select {
	case <-writer.ended:
		return true
	case <-patience.C:
		t.stop(errUnsettled)
		<-writer.ended
		return false
	}
}

var errUnsettled = errors.New("what was queued was not committed within the failover time")

// wait returns when calls must end, with the order or the error that ends them.
func (t *Term) wait(ctx, running context.Context, writer, server *task) (*order, error) {
	none := &order{result: make(chan handover, 1)}
	prepare := func(o *order) error { return t.prepare(running, o, writer, server) }
	for {
		select {
		case <-writer.ended:
			return none, cmp.Or(writer.err, errors.New("the writer ended"))
		case <-server.ended:
			return none, cmp.Or(server.err, errors.New("the server ended"))
		case <-running.Done():
			return none, context.Cause(running)
		case <-ctx.Done():
			if err := prepare(none); err != nil {
				t.node.Log.Info().Err(err).Msg("no successor is ready yet")
			}
			return none, nil
		case o := <-t.orders:
			switch settled := t.settled(ctx, running); {
			case ctx.Err() != nil || running.Err() != nil:
				err := errors.New("the term is ending, with the outcome of a commit open; look at the status")
				if settled {
					return o, nil
				}
				o.result <- handover{kind: errs.Unresolved, err: err}
			case settled && t.right.Valid():
				err := prepare(o)
				if err == nil {
					return o, nil
				}
				if ctx.Err() != nil || running.Err() != nil || writer.over() || server.over() {
					o.result <- handover{kind: errs.NotLeader, err: fmt.Errorf("the term is ending, without a handover; look at the status: %w", err)}
					continue
				}
				o.result <- handover{kind: errs.KindOf(err), err: fmt.Errorf("this node is the primary still: %w", err)}
			default:
				err := errors.New("this node is the primary still, but etcd takes no commit of it; see that it answers and has space, and ask again")
				t.node.Log.Warn().Msg("no handover while no commit comes through")
				o.result <- handover{kind: errs.Unavailable, err: err}
			}
		}
	}
}

// settled waits, for the failover time at most, until the outcome of the commit under way
// is known. Before that nobody can bring the journal to its end, and after the end of calls
// nobody would serve. It gives up when the term ends, or this node is to stop.
func (t *Term) settled(ctx, running context.Context) bool {
	wait, cancel := context.WithTimeout(running, t.failover())
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return t.writer.Settled(wait) == nil
}

// A task is a function that runs in a goroutine of its own.
type task struct {
	ended chan struct{}
	err   error // valid once ended is closed
}

// over reports whether it has ended.
func (t *task) over() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

func start(run func() error) *task {
	t := &task{ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		t.err = run()
	}()
	return t
}
