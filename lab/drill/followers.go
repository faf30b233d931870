package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/netfault"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// The drills in which a standby falls behind.

// A lag is a way to keep a standby from following, and when it may follow again.
type lag struct {
	what      string
	begin     func(*cluster.Node) error
	end       func(*cluster.Node) error
	outlive   bool // it lasts until the records it misses are gone
	compacted bool // and until etcd has compacted their history
}

func stopped(compacted bool) lag {
	begin, end := (*cluster.Node).Pause, (*cluster.Node).Resume
	if compacted {
		begin = func(n *cluster.Node) error {
			defer n.SetEtcd(netfault.Cut) // or all that it misses may wait in the buffers of its watch
			return n.Pause()
		}
		end = func(n *cluster.Node) error {
			n.SetEtcd(netfault.Fault{})
			return n.Resume()
		}
	}
	return lag{what: "SIGSTOP of", begin: begin, end: end, outlive: true, compacted: compacted}
}

func cutWatch(compacted bool) lag {
	set := func(f netfault.Fault) func(*cluster.Node) error {
		return func(n *cluster.Node) error { n.SetEtcd(f); return nil }
	}
	return lag{what: "cutting the watch of", begin: set(netfault.Cut), end: set(netfault.Fault{}), outlive: compacted, compacted: compacted}
}

// stopStandby stops a standby until the events it misses are gone.
func stopStandby(ctx context.Context, e *Env) {
	e.fallBehind(ctx, stopped(true), stopped(false))
}

func cutStandby(ctx context.Context, e *Env) {
	e.fallBehind(ctx, cutWatch(true), cutWatch(false))
}

// fallBehind makes a standby fall behind, in an episode for each lag.
func (e *Env) fallBehind(ctx context.Context, lags ...lag) {
	for i := range max(1, e.Rounds) * len(lags) {
		l := lags[i%len(lags)]
		ep := episode{work: &work{}}
		ep.KeepHistory, ep.Args = !l.compacted, []string{"--state-save-interval=1s"} // records are kept until state files cover them
		if err := e.play(ctx, ep, func(ctx context.Context) { e.behind(ctx, l) }); err != nil {
			do(fmt.Errorf("%s a standby, compacted %t: %w", l.what, l.compacted, err))
		}
		e.result.Rounds++
		if e.noticed() {
			return
		}
	}
}

func (e *Env) behind(ctx context.Context, l lag) {
	p := e.working(ctx)
	standby := p.standby
	before := must(standby.Status(ctx))
	e.load.Mark(l.what + " " + standby.Name)
	do(l.begin(standby))
	missed := metadata.Seq(before.GetState().GetSequence()) + 1
	if l.outlive {
		_ = must(e.cluster.Client.Delete(ctx, e.cluster.Layout.SavedBy(standby.Name))) // as if it had been away for an hour
		e.gone(ctx, missed)
	} else {
		e.letWork(ctx)
	}
	if l.compacted {
		do(e.cluster.Compact(ctx))
	}
	head := must(e.cluster.Head(ctx))
	e.load.Mark("end of " + l.what + " " + standby.Name)
	e.goesOn(ctx, l, p.primary, standby)
	after := e.catchesUp(ctx, standby, before, head, l.compacted)
	loads := after.GetJournal().GetSnapshotLoads() - before.GetJournal().GetSnapshotLoads()
	e.did("%s %s, it missed %d commits, compacted: %t; it came back with %d snapshots (%s)", l.what, standby.Name,
		uint64(head.Head.Seq)-before.GetState().GetSequence(), l.compacted, loads, after.GetJournal().GetLastSnapshotReason())
	if l.compacted {
		e.result.check("loads a snapshot", loads > 0, "%d snapshots were loaded behind a compaction", loads)
		// lostStates relies on these counts.
		reasons := standby.SnapshotLoads()
		e.result.check("counts why", reasons[journal.ReasonCompacted] > 0, "the standby counts its snapshots by the reason: %v", reasons)
	} else {
		e.result.check("no snapshot without need", loads == 0, "%d snapshots were loaded although the history was there: %s", loads, after.GetJournal().GetLastSnapshotReason())
	}
}

// gone waits until the record of a sequence, and so all before it, is gone from etcd.
func (e *Env) gone(ctx context.Context, seq metadata.Seq) {
	reader := &journal.Reader{Client: e.cluster.Client, Layout: e.cluster.Layout}
	until(ctx, 3*e.cluster.EventsTTL+30*time.Second, "the records that were missed are gone", func(ctx context.Context) (bool, error) {
		oldest, err := reader.Oldest(ctx, 1, math.MaxInt64)
		return oldest > seq+10, err
	})
}

// goesOn lets a standby follow again. If it needs a snapshot, it gets none until it has
// reported that it could not take over.
func (e *Env) goesOn(ctx context.Context, l lag, primary, standby *cluster.Node) {
	if !l.compacted {
		do(l.end(standby))
		return
	}
	primary.Front.Set(netfault.Cut)
	defer primary.Front.Heal()
	do(l.end(standby))
	e.admits(ctx, standby)
}

// admitTimeout bounds how long a standby may take to find that it is behind.
const admitTimeout = 10 * time.Second

// admits checks that a standby that has lost the journal soon reports that it could not
// take over.
func (e *Env) admits(ctx context.Context, n *cluster.Node) {
	err := cluster.Poll(ctx, admitTimeout, "it says so", func(ctx context.Context) (bool, error) {
		s, err := n.Status(ctx)
		return err == nil && !cluster.Promotable(s), nil
	})
	e.result.check("not promotable meanwhile", err == nil, "%s lost the journal and has no snapshot; within %v it says that it cannot take over: %t", n.Name, admitTimeout, err == nil)
	do(ctx.Err())
}

// catchesUp waits until a standby has applied a head and could take over. One that has
// lost the journal must not report that it could before it has a snapshot.
func (e *Env) catchesUp(ctx context.Context, n *cluster.Node, before *pb.StatusResponse, head journal.Cursor, compacted bool) *pb.StatusResponse {
	early := false
	after, err := n.Until(ctx, "has caught up", func(s *pb.StatusResponse) bool {
		complete := s.GetState().GetSequence() >= uint64(head.Head.Seq)
		loaded := s.GetJournal().GetSnapshotLoads() > before.GetJournal().GetSnapshotLoads()
		early = early || cluster.Promotable(s) && compacted && !loaded
		return complete && cluster.Promotable(s)
	})
	e.result.check("not promotable meanwhile", !early, "it said, without a snapshot, that it could take over: %t", early)
	return must(after, err)
}

// bootstrap lets a standby join while the primary is busy.
func bootstrap(ctx context.Context, e *Env) {
	ep := episode{nodes: 1, work: &work{keys: 2048, memory: 1 << 20, rate: 2 * defaultRate, evicts: true}}
	ep.EventsTTL = max(e.EventsTTL, 20*time.Second)
	e.rounds(ctx, ep, e.underPressure(busyPuts, func(ctx context.Context) {
		primary, _ := e.primary(ctx, 0)
		e.evicts(ctx, primary)
		began, puts := e.Now(), e.pressed.put.Load()
		n := e.late()
		do(e.cluster.StartNode(ctx, n, promote.Standby))
		do(n.UntilPromotable(ctx))
		joined := e.Now() - began
		until(ctx, time.Minute, "the primary takes puts for a while", func(context.Context) (bool, error) {
			return e.pressed.put.Load() >= puts+busyFor*busyPuts, nil
		})
		rate := int64(float64(e.pressed.put.Load()-puts) / (e.Now() - began).Seconds())
		e.result.Counts["bulk_puts_per_s"] = rate
		e.result.check("the primary is busy", rate >= busyFloor, "it took %d of %d puts/s, at least %d are expected", rate, busyPuts, busyFloor)
		e.did("a standby joined within %v while the primary took %d of %d puts/s, besides those of the recorded clients, and evicted", joined.Round(time.Millisecond), rate, busyPuts)
		e.load.answers(ctx, answersPerWait)
	}))
}

const (
	busyPuts = 10_000 // a second
	busyFor  = 3      // seconds over which the rate is measured
	// busyFloor is how many puts a second the primary must have accepted. If two cores run
	// all processes of the drill, it accepts nearly all; under an extra load average of 12
	// to 17, 7,300 to 8,000. With fewer than half, the primary would not be busy.
	busyFloor = busyPuts / 2
)

// late returns a standby without state: one that has not been started yet, or the same one
// again, killed.
func (e *Env) late() *cluster.Node {
	const name = "late"
	for _, n := range e.cluster.Nodes {
		if n.Name == name {
			n.Kill()
			return n
		}
	}
	return must(e.cluster.Add(name))
}

// backlog promotes a standby that has a million events to apply.
func backlog(ctx context.Context, e *Env) {
	ep := episode{work: &work{}}
	ep.KeepHistory, ep.EventsTTL, ep.Args = true, max(e.EventsTTL, 10*time.Minute), []string{"--journal-max-bytes=4GiB"}
	e.episode(ctx, ep, func(ctx context.Context) {
		p := e.ready(ctx)
		b := e.newBulk()
		defer b.end(e)
		e.load.Mark("SIGSTOP of " + p.standby.Name)
		do(p.standby.Pause())
		const groups = 10
		each := e.Objects / 2 / groups // a reservation and an end each
		do(b.fill(ctx, groups, each, bulkSize, client.PutConfig{HardPin: true}))
		e.did("put %d objects while the standby was stopped", b.put.Load())
		e.load.Mark("SIGKILL of " + p.primary.Name)
		p.primary.Kill()
		e.leaderless(ctx)
		early, stop := e.watchFor(ctx, p.standby, bulkKey(groups-1, each-1))
		defer stop()
		began := e.Now()
		do(p.standby.Resume())
		elected := e.elected(ctx).Term // the term may skip several, since the dead primary does not answer
		_, now, err := e.cluster.Primary(ctx, p.term)
		e.result.check("somebody takes over", err == nil, "%v", err)
		do(err)
		e.did("%s serves in term %d, %v after it went on", p.standby.Name, now, (e.Now() - began).Round(time.Millisecond))
		e.result.check("leadership kept", now == uint64(elected), "it was elected in term %d and serves in %d", elected, now)
		e.result.violate("D", 0)
		for group := range groups {
			e.demand(ctx, b, bulkKeys(group, 0, each), true, "D", "was acknowledged and is gone")
		}
		stop()
		e.result.check("nothing served early", early.Load() == 0, "%d times the new primary did not know an object that was acknowledged", early.Load())
		e.result.Rounds++
		e.restart(ctx, p.primary)
	})
}

func (e *Env) leaderless(ctx context.Context) {
	until(ctx, time.Minute, "the session of the dead primary ends", func(ctx context.Context) (bool, error) {
		resp, err := e.cluster.Client.Get(ctx, e.cluster.Layout.Leader(), clientv3.WithCountOnly())
		return err == nil && resp.Count == 0, err
	})
}

func (e *Env) elected(ctx context.Context) (l promote.Leader) {
	until(ctx, time.Minute, "a node is elected", func(ctx context.Context) (bool, error) {
		resp, err := e.cluster.Client.Get(ctx, e.cluster.Layout.Leader())
		return err == nil && len(resp.Kvs) == 1 && json.Unmarshal(resp.Kvs[0].Value, &l) == nil, err
	})
	return l
}

// watchFor asks a node continuously for a key that must exist, and counts the answers that
// it does not.
func (e *Env) watchFor(ctx context.Context, n *cluster.Node, key string) (missing *atomic.Int64, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	missing = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		objects := pb.NewObjectServiceClient(n.Conn)
		for ctx.Err() == nil {
			resp, err := objects.ExistKey(ctx, &pb.ExistKeyRequest{Key: key})
			if err == nil && !resp.GetExists() {
				missing.Add(1)
			}
			_ = clock.Sleep(ctx, time.Millisecond)
		}
	}()
	return missing, func() { cancel(); <-done }
}
