package drill

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/promote"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
)

// The drills of a cluster at rest.

// restartLone kills a lone master with its own etcd and many objects, and starts it again. All
// objects must exist. The outage is from the start to the first answer.
func restartLone(ctx context.Context, e *Env) {
	var b *bulk
	ep := episode{nodes: 1}
	ep.Embedded = true
	ep.Args = []string{"--eviction_ratio=0"}
	ep.before = func(ctx context.Context) {
		b = e.newBulk()
		do(b.fillSegment(ctx, "host", uint64(e.Objects)*bulkSize, bulkSize))
		filled, n := e.Now(), e.cluster.Nodes[0]
		until(ctx, 2*time.Minute, "the state is saved", func(ctx context.Context) (bool, error) {
			now, err := n.Metrics(ctx)
			age, there := now["understudy_state_file_age_seconds"]
			return there && age < (e.Now()-filled).Seconds(), err
		})
	}
	defer func() {
		if b != nil {
			b.Close()
		}
	}()
	e.rounds(ctx, ep, func(ctx context.Context) {
		n := e.cluster.Nodes[0]
		n.Kill()
		began := e.Now()
		do(e.cluster.StartNode(ctx, n, promote.Primary))
		err := cluster.Poll(ctx, restartLimit, "the master answers", func(ctx context.Context) (bool, error) {
			return e.ask(ctx, pb.NewObjectServiceClient(n.Conn), false, "", time.Second).kind == errs.OK, nil
		})
		took := e.Now() - began
		e.result.check("everything is there again", err == nil, "%v after its start the master does not answer: %v", restartLimit, err)
		do(err)
		e.result.outages = append(e.result.outages, took)
		e.result.violate("D", 0)
		e.demand(ctx, b, bulkKeys(0, 0, int(b.put.Load())), true, "D", "was acknowledged and is gone")
		e.did("the master with %d objects answers %v after its start", b.put.Load(), took.Round(time.Millisecond))
	})
	if len(e.result.outages) > 0 && !e.noticed() {
		best := slices.Min(e.result.outages) // the others may be late only because the machine is busy
		e.result.check("answers in time", best <= restartBound, "the best of %d starts took %v, at most %v is promised", len(e.result.outages), best, restartBound)
	}
}

// restartBound is how long a master may take from its start to its first answer.
const restartBound = 5 * time.Second

// How often a cluster at rest may write to etcd, in writes a second: heads, and each node's
// own key.
const (
	idleHeads = 8
	idleNode  = 1
)

// rest counts what a cluster without clients writes to etcd.
func rest(ctx context.Context, e *Env) {
	lasts := time.Minute
	if e.Short {
		lasts = 10 * time.Second
	}
	e.rounds(ctx, episode{}, func(ctx context.Context) {
		e.ready(ctx)
		do(clock.Sleep(ctx, 2*e.SessionTTL)) // the writes of the start are over
		writes := e.writes(ctx, lasts)
		l, most := e.cluster.Layout, int64(0)
		for _, n := range e.cluster.Nodes {
			most = max(most, writes[l.Node(n.Name)])
		}
		heads, seconds := writes[l.Head()], int64(lasts/time.Second)
		delete(writes, l.Head())
		others := int64(0)
		for _, n := range writes {
			others += n
		}
		e.result.Counts["head_writes"] += heads
		e.result.Counts["most_writes_of_a_node"] = max(e.result.Counts["most_writes_of_a_node"], most)
		e.result.Counts["other_writes"] += others
		e.result.check("few writes", heads > 0 && heads <= idleHeads*seconds+1 && most <= idleNode*seconds+1,
			"%d heads, at most %d writes of a node's own key, in %v", heads, most, lasts)
		e.result.violate("B", 0) // marks the promise as checked; without clients nothing else does
		e.did("in %v without clients: %.1f heads a second, %.2f writes a second of a node's own key at most, %d writes of all other keys together",
			lasts, float64(heads)/lasts.Seconds(), float64(most)/lasts.Seconds(), others)
		e.compare(ctx)
	})
}

// writes counts the writes to each key of the cluster for a while.
func (e *Env) writes(ctx context.Context, lasts time.Duration) map[string]int64 {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	count := make(map[string]int64)
	for resp := range e.cluster.Client.Watch(ctx, e.cluster.Layout.Root, clientv3.WithPrefix()) {
		do(resp.Err())
		for _, ev := range resp.Events {
			count[string(ev.Kv.Key)]++
		}
	}
	return count
}
