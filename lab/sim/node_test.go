package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/promote/follower"
)

// The times of a cluster here. The session is as short as it can be, so that
// there is much failover in little time.
const (
	sessionTTL    = 2 * time.Second
	failoverAfter = time.Second
	eventsTTL     = 10 * time.Second
	leaseTTL      = time.Second
)

var params = metadata.Params{LeaseTTL: leaseTTL, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}

var codec = service.Codec()

// A node is one life of one node of a cluster.
type node struct {
	*promote.Node
	world   *world
	id      string
	links   []*Link // of the journal and of the sessions
	clients []*clientv3.Client
	freeze  gate
	dead    atomic.Bool
	master  atomic.Pointer[service.Master] // while it serves
	stop    context.CancelFunc
	done    chan struct{} // closed when Run has returned
}

// newNode returns a node that is ready to run.
func newNode(w *world, id string) (*node, error) {
	n := &node{world: w, id: id, done: make(chan struct{})}
	for _, of := range []string{"journal", "sessions"} {
		link := w.etcd.Link(id + "/" + of)
		client, err := link.Client()
		if err != nil {
			return nil, err
		}
		n.links, n.clients = append(n.links, link), append(n.clients, client)
	}
	n.Node = promote.New(promote.Config{
		ID: id, RPC: id, ClusterID: "sim", Layout: w.layout, Codec: codec,
		Client: n.clients[0], Sessions: n.clients[1], Clock: w.clock(id), Log: w.transcript.logger(id, n.dead.Load),
		SessionTTL: cmp.Or(w.failover, sessionTTL), FailoverAfter: cmp.Or(w.failover, failoverAfter), EventsTTL: eventsTTL, Params: params, Cleanup: promote.CleanupAuto,
		SyncInterval: 500 * time.Millisecond, QueueBytes: 1 << 20, MaxJournalBytes: 1 << 28, Compact: true,
		HandoverTimeout: 5 * time.Second, MayStartEmpty: true, Alone: true, Random: w.jitter().Float64,
		Options:  metadata.Options{Random: w.placement},
		Follower: follower.Config{FullSyncInterval: 5003 * time.Millisecond, Counters: new(leasesync.Counters)},
		Journal:  commitPause{}, Peers: peers{w, n}, Server: n,
	})
	return n, nil
}

// clock returns the clock of a node, at its rate.
func (w *world) clock(id string) clock.Clock {
	running, rate := clock.Runtime(), cmp.Or(w.rates[id], 1)
	return func() time.Duration { return time.Duration(float64(running()) * rate) }
}

// run plays the node's part until the context ends.
func (n *node) run(ctx context.Context) {
	defer close(n.done)
	if err := n.Run(ctx); err != nil && ctx.Err() == nil {
		n.world.transcript.note(n.id, "stops: %v", err)
	}
	for _, c := range n.clients {
		_ = c.Close()
	}
}

// kill ends the node as kill -9 would: nothing that it sends arrives any more,
// and it does not resign.
func (n *node) kill() {
	n.dead.Store(true)
	n.cut()
	n.stop()
}

func (n *node) cut()  { n.each((*Link).Cut) }
func (n *node) heal() { n.each((*Link).Heal) }

// pause stops the node as SIGSTOP would, as far as others can see: nothing
// passes on its connections, and calls stop where they look at the clock. Its
// own timers go on.
func (n *node) pause() {
	n.freeze.shut()
	n.each((*Link).Stall)
}

// wake ends pause.
func (n *node) wake() {
	n.each((*Link).Resume)
	n.freeze.open()
}

func (n *node) each(do func(*Link)) {
	for _, l := range n.links {
		do(l)
	}
}

// Serve is a primary with its scanner.
func (n *node) Serve(ctx context.Context, t *promote.Term) error {
	fence := func(ctx context.Context) error {
		n.freeze.wait()
		return t.Fence(ctx)
	}
	now := func() metadata.Time {
		n.freeze.wait()
		return t.Now()
	}
	leases := leasesync.New(leasesync.Leases{
		Store: t.Store, Journal: afterCallers{t.Queue}, Interval: 500 * time.Millisecond, CriticalDelay: 100 * time.Millisecond,
		Counters: new(leasesync.Counters), Log: zerolog.Nop(), // the scheduler decides whether it fails before its term ends
	})
	n.master.Store(service.NewMaster(service.Master{
		Settings: service.Settings{MaxSoftPin: time.Hour}, Term: t.Number, Store: t.Store, Leases: leases, Queue: t.Queue, Now: now, Fence: fence, Answers: t.Answers,
		Liveness: service.NewLiveness(time.Hour, 0, clock.Runtime(), t.Store), Counters: service.NewCounters(), AllocationFailed: func(uint64, metadata.Time) {},
	}))
	defer n.master.Store(nil)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return leases.Run(ctx) })
	g.Go(func() error { // as the program does; all nodes know the newest rules
		if t.Store.Rules() < metadata.NewestRules {
			_, _ = t.Queue.Submit(ctx, &metadata.UseRules{Version: metadata.NewestRules}) // or the next term does
		}
		return nil
	})
	return g.Wait()
}

// afterCallers is a queue whose submitter goes on a little after the callers of
// the same commit: a scan at once sees what they have read.
type afterCallers struct{ *journal.Queue }

func (q afterCallers) Submit(ctx context.Context, changes ...metadata.Change) ([]error, error) {
	answers, err := q.Queue.Submit(ctx, changes...)
	if err == nil {
		time.Sleep(turn / 2)
	}
	return answers, err
}

// serves reports whether the node would answer now.
func (n *node) serves() bool {
	m := n.master.Load()
	return m != nil && !n.dead.Load() && !n.freeze.isShut() && m.Answers()
}

// A gate stops who comes by while it is shut. When it opens they pass one after
// another, in the order in which they came, each at an instant of its own.
type gate struct {
	mu        sync.Mutex
	shutUntil chan struct{} // nil while it is open
	waiting   int
}

// turn is how long one who passes is ahead of the next.
const turn = time.Microsecond

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shutUntil == nil {
		g.shutUntil = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shutUntil != nil {
		close(g.shutUntil)
		g.shutUntil, g.waiting = nil, 0
	}
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shutUntil != nil
}

// wait waits until the gate is open and it is the caller's turn.
func (g *gate) wait() {
	for {
		g.mu.Lock()
		until, ahead := g.shutUntil, g.waiting
		if until == nil {
			g.mu.Unlock()
			return
		}
		g.waiting++
		g.mu.Unlock()
		<-until
		time.Sleep(time.Duration(1+ahead) * turn)
	}
}

// peers passes snapshots and positions from node to node.
type peers struct {
	world *world
	self  *node
}

var errUnreachable = errors.New("sim: the peer does not answer")

// peer returns a node that can be reached now.
func (p peers) peer(address string) (*node, error) {
	n := p.world.node(address)
	if n == nil || n.dead.Load() || p.self.dead.Load() || n.freeze.isShut() || p.self.freeze.isShut() {
		return nil, errUnreachable
	}
	return n, nil
}

// Fetch streams a snapshot, which ends with the term it was begun in.
func (p peers) Fetch(ctx context.Context, address string, add func([]byte) error) (journal.Cursor, error) {
	n, err := p.peer(address)
	if err != nil {
		return journal.Cursor{}, err
	}
	t, first, at, err := n.SnapshotStart(ctx)
	if err != nil {
		return journal.Cursor{}, err
	}
	if err := add(first); err != nil {
		return journal.Cursor{}, err
	}
	for i := 1; i < metadata.SnapshotParts; i++ {
		if i%snapshotBurst == 0 {
			time.Sleep(snapshotPause)
			if _, err := p.peer(address); err != nil {
				return journal.Cursor{}, err
			}
		}
		part, _ := t.Store.AppendSnapshotPart(nil, i)
		if err := add(part); err != nil {
			return journal.Cursor{}, err
		}
	}
	if err := t.Fence(ctx); err != nil {
		return journal.Cursor{}, fmt.Errorf("the snapshot's term has ended: %w", err)
	}
	return at, nil
}

// A snapshot takes a while, so that commits come in between.
const (
	snapshotBurst = 256
	snapshotPause = 7 * time.Millisecond
)

// WaitApplied waits until another node has applied a sequence.
func (p peers) WaitApplied(ctx context.Context, node promote.NodeInfo, seq metadata.Seq) error {
	n, err := p.peer(node.RPC)
	if err != nil {
		return err
	}
	_, _, err = n.Digest(ctx, seq)
	return errs.Wrap(errs.Unavailable, "sim", err)
}

// Standing asks another node what it holds.
func (p peers) Standing(_ context.Context, address string) (promote.Standing, error) {
	n, err := p.peer(address)
	if err != nil {
		return promote.Standing{}, err
	}
	s := n.Status()
	return promote.Standing{ID: s.Self.ID, Role: s.Self.Role, History: s.Head.History, Position: s.Position, Complete: s.Complete}, nil
}

// A commitPause makes the writer wait after each commit: a caller whose call was in
// that commit, and who makes another one at once, gets into the next one whichever
// goroutine runs first.
type commitPause struct{}

func (commitPause) Committed(context.Context, int, int, time.Duration, time.Duration) {
	time.Sleep(turn)
}
func (commitPause) Refused(int, error) { time.Sleep(turn) }
