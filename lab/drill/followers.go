package drill

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/netfault"
	"github.com/understudy-store/understudy/lab/rig"
	"github.com/understudy-store/understudy/metadata"
)

// The drills in which a standby falls behind.

// A lag is how a standby is kept from following, and from what on it may again.
type lag struct {
	what      string
	begin     func(*node) error
	end       func(*node) error
	outlive   bool // it lasts until the records it misses have expired
	compacted bool // and etcd has forgotten their history
}

func stopped(compacted bool) lag {
	return lag{what: "SIGSTOP of", begin: (*node).pause, end: (*node).resume, outlive: true, compacted: compacted}
}

func cutWatch(compacted bool) lag {
	set := func(f netfault.Fault) func(*node) error {
		return func(n *node) error { n.setEtcd(f); return nil }
	}
	return lag{what: "cutting the watch of", begin: set(netfault.Cut), end: set(netfault.Fault{}), compacted: compacted}
}

// stopStandby stops a standby until the events it misses are gone.
func stopStandby(ctx context.Context, e *Env) error {
	return e.fallBehind(ctx, stopped(true), stopped(false))
}

// cutStandby cuts its watch.
func cutStandby(ctx context.Context, e *Env) error {
	return e.fallBehind(ctx, cutWatch(true), cutWatch(false))
}

// fallBehind makes a standby fall behind in some ways, each in an episode.
func (e *Env) fallBehind(ctx context.Context, ways ...lag) error {
	for i := range max(1, e.Rounds) * len(ways) {
		way := ways[i%len(ways)]
		ep := episode{shape: shape{keepHistory: !way.compacted}, work: &work{}}
		if err := e.episode(ctx, ep, func(ctx context.Context) error { return e.behind(ctx, way) }); err != nil {
			return fmt.Errorf("%s a standby, compacted %t: %w", way.what, way.compacted, err)
		}
		e.result.Rounds++
		if e.noticed() {
			return nil
		}
	}
	return nil
}

func (e *Env) behind(ctx context.Context, way lag) error {
	primary, _, standby, err := e.readyPair(ctx)
	if err != nil {
		return err
	}
	if err := e.letWork(ctx); err != nil {
		return err
	}
	before, err := standby.Status(ctx)
	if err != nil {
		return err
	}
	e.load.Mark(way.what + " " + standby.name)
	if err := way.begin(standby); err != nil {
		return err
	}
	missed := metadata.Seq(before.GetState().GetSequence()) + 1
	if way.outlive {
		err = e.expired(ctx, missed)
	} else {
		err = e.letWork(ctx)
	}
	if err == nil && way.compacted {
		err = e.cluster.compact(ctx)
	}
	if err != nil {
		return err
	}
	head, err := e.cluster.head(ctx)
	if err != nil {
		return err
	}
	e.load.Mark("end of " + way.what + " " + standby.name)
	if err := e.goesOn(ctx, way, primary, standby); err != nil {
		return err
	}
	after, err := e.catchesUp(ctx, standby, before, head, way.compacted)
	if err != nil {
		return err
	}
	loads := after.GetJournal().GetSnapshotLoads() - before.GetJournal().GetSnapshotLoads()
	e.did("%s %s, it missed %d commits, compacted: %t; it came back with %d snapshots (%s)", way.what, standby.name,
		uint64(head.Head.Seq)-before.GetState().GetSequence(), way.compacted, loads, after.GetJournal().GetLastSnapshotReason())
	if way.compacted {
		e.result.check("loads a snapshot", loads > 0, "%d snapshots were loaded behind a compaction", loads)
		// confessed relies on this line of the log.
		reasons, err := lossReasons(standby.Log)
		if err != nil {
			return err
		}
		e.result.check("logs why", slices.Contains(reasons, journal.ReasonCompacted), "the log says that it lost the journal because: %v", reasons)
	} else {
		e.result.check("no snapshot without need", loads == 0, "%d snapshots were loaded although the history was there: %s", loads, after.GetJournal().GetLastSnapshotReason())
	}
	return nil
}

// expired waits until the record of a sequence, and so all before it, has
// expired in etcd.
func (e *Env) expired(ctx context.Context, seq metadata.Seq) error {
	reader := &journal.Reader{Client: e.cluster.etcd, Layout: e.cluster.layout}
	limit := 3*e.cluster.eventsTTL + 30*time.Second
	return poll(ctx, limit, "the records that were missed have expired", func(ctx context.Context) (bool, error) {
		oldest, err := reader.Oldest(ctx, 1)
		return oldest > seq+10, err
	})
}

// goesOn lets a standby follow again. If it needs a snapshot, it gets none until
// it has said that it could not take over.
func (e *Env) goesOn(ctx context.Context, way lag, primary, standby *node) error {
	if !way.compacted {
		return way.end(standby)
	}
	primary.front.Set(netfault.Cut)
	defer primary.front.Heal()
	if err := way.end(standby); err != nil {
		return err
	}
	return e.admits(ctx, standby)
}

// admitTimeout bounds how long a standby may take to find that it is behind.
const admitTimeout = 10 * time.Second

// admits demands that a standby that has lost the journal soon says that it
// could not take over.
func (e *Env) admits(ctx context.Context, n *node) error {
	err := poll(ctx, admitTimeout, "it says so", func(ctx context.Context) (bool, error) {
		s, err := n.Status(ctx)
		return err == nil && !rig.Promotable(s), nil
	})
	e.result.check("not promotable meanwhile", err == nil, "%s lost the journal and has no snapshot; within %v it says that it cannot take over: %t", n.name, admitTimeout, err == nil)
	return ctx.Err()
}

// catchesUp waits until a standby has come to a head and could take over. One
// that has lost the journal must not say that it could before it has a snapshot.
func (e *Env) catchesUp(ctx context.Context, n *node, before *pb.StatusResponse, head journal.Cursor, compacted bool) (*pb.StatusResponse, error) {
	early := false
	after, err := n.Until(ctx, "has caught up", func(s *pb.StatusResponse) bool {
		complete := s.GetState().GetSequence() >= uint64(head.Head.Seq)
		loaded := s.GetJournal().GetSnapshotLoads() > before.GetJournal().GetSnapshotLoads()
		early = early || rig.Promotable(s) && compacted && !loaded
		return complete && rig.Promotable(s)
	})
	e.result.check("not promotable meanwhile", !early, "it said, without a snapshot, that it could take over: %t", early)
	return after, err
}

// bootstrap lets a standby join while the primary is busy.
func bootstrap(ctx context.Context, e *Env) error {
	const perSecond = 10_000
	ep := episode{
		shape: shape{nodes: 1, eventsTTL: max(e.EventsTTL, 20*time.Second)},
		work:  &work{keys: 2048, memory: 1 << 20, rate: 2 * defaultRate, evicts: true},
	}
	return e.rounds(ctx, ep, e.underPressure(perSecond, func(ctx context.Context) error {
		primary, _, err := e.cluster.primary(ctx, 0)
		if err != nil {
			return err
		}
		if err := e.evicts(ctx, primary); err != nil {
			return err
		}
		began, puts := e.Now(), e.pressed.put.Load()
		n, err := e.late()
		if err != nil {
			return err
		}
		if err := e.cluster.startNode(ctx, n, config.Standby); err != nil {
			return err
		}
		if _, err := n.Until(ctx, "could take over", rig.Promotable); err != nil {
			return err
		}
		took := e.Now() - began
		rate := float64(e.pressed.put.Load()-puts) / took.Seconds()
		e.result.Counts["bulk_puts_per_s"] = int64(rate)
		e.did("a standby joined within %v while the primary took %.0f of %d puts/s, besides those of the recorded clients, and evicted", took.Round(time.Millisecond), rate, perSecond)
		return e.load.answers(ctx, answersPerWait)
	}))
}

// late returns a standby that has not been started, or was killed: what it knew
// is gone.
func (e *Env) late() (*node, error) {
	const name = "late"
	for _, n := range e.cluster.nodes {
		if n.name == name {
			n.Kill()
			return n, nil
		}
	}
	return e.cluster.newNode(name)
}

// backlog promotes a standby that has a million events to apply.
func backlog(ctx context.Context, e *Env) error {
	ep := episode{shape: shape{keepHistory: true, eventsTTL: max(e.EventsTTL, 10*time.Minute), args: []string{"--journal-max-bytes=4GiB"}}, work: &work{}}
	return e.episode(ctx, ep, func(ctx context.Context) error {
		primary, term, standby, err := e.readyPair(ctx)
		if err != nil {
			return err
		}
		b, err := e.newBulk()
		if err != nil {
			return err
		}
		defer b.end(e)
		e.load.Mark("SIGSTOP of " + standby.name)
		if err := standby.pause(); err != nil {
			return err
		}
		const groups = 10
		each := e.Objects / 2 / groups // a reservation and an end each
		if err := b.fill(ctx, groups, each, bulkSize, client.PutConfig{HardPin: true}); err != nil {
			return err
		}
		e.did("put %d objects while the standby was stopped", b.put.Load())
		e.load.Mark("SIGKILL of " + primary.name)
		primary.Kill()
		if err := e.leaderless(ctx); err != nil {
			return err
		}
		last := bulkKey(groups-1, each-1)
		early, stop := e.watchFor(ctx, standby, last)
		defer stop()
		began := e.Now()
		if err := standby.resume(); err != nil {
			return err
		}
		_, now, err := e.cluster.primary(ctx, term)
		if err != nil {
			return err
		}
		e.did("%s serves in term %d, %v after it went on", standby.name, now, (e.Now() - began).Round(time.Millisecond))
		e.result.check("leadership kept", now == term+1, "the term was %d and is %d", term, now)
		if err := b.allThere(ctx, e, groups, each); err != nil {
			return err
		}
		stop()
		e.result.check("nothing served early", early.Load() == 0, "%d times the new primary did not know an object that was acknowledged", early.Load())
		e.result.Rounds++
		return e.restart(ctx, primary)
	})
}

// leaderless waits until the leader's session has ended.
func (e *Env) leaderless(ctx context.Context) error {
	return poll(ctx, time.Minute, "the session of the dead primary ends", func(ctx context.Context) (bool, error) {
		resp, err := e.cluster.etcd.Get(ctx, e.cluster.layout.Leader(), clientv3.WithCountOnly())
		return err == nil && resp.Count == 0, err
	})
}

// watchFor asks a node all the time for a key that must be there, and counts
// when it is served an answer that it is not.
func (e *Env) watchFor(ctx context.Context, n *node, key string) (missing *atomic.Int64, stop func()) {
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
			_ = wait(ctx, time.Millisecond)
		}
	}()
	return missing, func() { cancel(); <-done }
}

// allThere demands that all objects of a fill are there.
func (b *bulk) allThere(ctx context.Context, e *Env, groups, each int) error {
	e.result.violate("D", 0)
	for group := range groups {
		keys := make([]string, each)
		for i := range keys {
			keys[i] = bulkKey(group, i)
		}
		exist, err := b.there(ctx, keys)
		if err != nil {
			return err
		}
		for i, there := range exist {
			if !there {
				e.result.violate("D", 1, keys[i]+" was acknowledged and is gone")
			}
		}
	}
	return nil
}
