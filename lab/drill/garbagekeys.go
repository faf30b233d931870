package drill

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/metadata"
)

// The part of the drill of garbage that writes it to etcd.

const (
	nobody = "nonsense" // a node that does not exist
	stray  = "stray"    // another one, which is only listed as complete
)

// A spoiling makes garbage of the value of a key.
type spoiling struct {
	what string
	of   func(rng *rand.Rand, value string) string
}

func spoilings() []spoiling {
	random := func(n int) func(*rand.Rand, string) string {
		return func(rng *rand.Rand, _ string) string { return string(randomBytes(rng, n)) }
	}
	return []spoiling{
		{"nothing", func(*rand.Rand, string) string { return "" }},
		{"a random byte", random(1)},
		{"the first half of the value", func(_ *rand.Rand, value string) string { return value[:len(value)/2] }},
		{"JSON of other types", func(*rand.Rand, string) string { return `{"node_id":7,"term":"x","sequence":[],"for":{},"why":9}` }},
		{"a list", func(*rand.Rand, string) string { return `[{"history":1}]` }},
		{"random bytes", random(1 << 10)},
		{"1 MiB of random bytes", random(1 << 20)},
	}
}

// keysToSpoil returns all keys that the cluster has or may have, except its head and its
// leader key.
func (e *Env) keysToSpoil(ctx context.Context) []string {
	at, l := must(e.cluster.Head(ctx)).Head, e.cluster.Layout
	keys := []string{
		mooncake.ViewKey(clusterID), l.Root, l.Root + "unknown", l.Ancestors(), l.Pause(), l.Defragmenting(), l.Replaced() + nobody, l.Witness(nobody),
		l.Terms() + nobody, l.Term(0), l.Term(at.Term), l.Term(at.Term + 1), l.Node(nobody), l.SavedBy(nobody), l.CompleteNode(stray), l.ForgottenNode(nobody),
	}
	for _, n := range e.cluster.Nodes {
		keys = append(keys, l.Node(n.Name), l.SavedBy(n.Name), l.CompleteNode(n.Name), l.ForgottenNode(n.Name))
	}
	for stream := range metadata.StreamCount {
		keys = append(keys, l.Record(stream, at.Seq), l.Record(stream, at.Seq+1000), l.Records(stream)+"x")
	}
	return keys
}

// garbageInEtcd writes each kind of garbage to each of keysToSpoil. The garbage stays there
// while the primary is killed and comes back.
func (e *Env) garbageInEtcd(ctx context.Context) {
	etcd := e.cluster.Client
	for _, s := range spoilings() {
		keys := e.keysToSpoil(ctx)
		for _, key := range keys {
			e.spoil(ctx, key, s)
		}
		e.load.answers(ctx, answersPerWait/5)
		e.answer(ctx, s.what)
		e.did("wrote %s to %d keys in etcd", s.what, len(keys))
	}
	key := e.cluster.Layout.Leader()
	leader, _ := e.value(ctx, key)
	must(etcd.Put(ctx, key, "nonsense", clientv3.WithIgnoreLease()))
	e.load.answers(ctx, answersPerWait)
	must(etcd.Put(ctx, key, leader, clientv3.WithIgnoreLease()))
	e.did("wrote garbage to the leader key, and put it right again")
	e.fromGarbage(ctx)
}

func (e *Env) spoil(ctx context.Context, key string, s spoiling) {
	value := ""
	if kvs := must(e.cluster.Client.Get(ctx, key)).Kvs; len(kvs) > 0 {
		value = string(kvs[0].Value)
	}
	if _, err := e.cluster.Client.Put(ctx, key, s.of(e.rng, value)); err != nil {
		do(fmt.Errorf("writing %s to %s: %w", s.what, key, err))
	}
}

// answer checks that all nodes return their status and the history of terms although there
// is garbage.
func (e *Env) answer(ctx context.Context, what string) {
	for _, n := range e.cluster.Nodes {
		_, err := n.Status(ctx)
		if err == nil {
			_, err = n.Admin.History(ctx, &pb.HistoryRequest{})
		}
		e.result.check("nodes answer operators", err == nil, "%s, beside %s in etcd: %v", n.Name, what, err)
	}
}

// fromGarbage ends the pause of takeover that the garbage amounts to, and forgets the node
// that it lists. Then it kills the primary and starts it again, while all other garbage is
// still there; another node must take over.
func (e *Env) fromGarbage(ctx context.Context) {
	p := e.ready(ctx)
	warned := strings.Join(must(p.primary.Status(ctx)).GetWarnings(), "\n")
	e.result.check("names the pause", strings.Contains(warned, "automatic takeover is paused"), "the primary warns of: %s", warned)
	must(p.primary.Admin.PauseTakeover(ctx, &pb.PauseTakeoverRequest{}))
	must(p.primary.Admin.Forget(ctx, &pb.ForgetRequest{NodeId: stray}))
	next, _ := e.kill(ctx, p.primary, p.term)
	view, _ := e.value(ctx, mooncake.ViewKey(clusterID))
	e.result.check("leads other clients to the primary", view == next.Addr(), "their key in etcd has %.100q, the primary is at %s", view, next.Addr())
	must(e.cluster.Client.Put(ctx, e.cluster.Layout.Node(p.primary.Name), "nonsense"))
	e.restart(ctx, p.primary)
	do(e.cluster.Settled(ctx))
	e.did("%s took over and %s came back beside the garbage", p.standby.Name, p.primary.Name)
}

// garbageInHead destroys the journal's head with each kind of garbage, and the list of its
// ancestors with it. All nodes must report that, no node may serve in the same term, and a
// node must found the journal anew.
func (e *Env) garbageInHead(ctx context.Context) {
	for _, s := range spoilings() {
		p := e.ready(ctx)
		said := e.unreadable()
		e.spoil(ctx, e.cluster.Layout.Ancestors(), s)
		e.spoil(ctx, e.cluster.Layout.Head(), s)
		e.saysUnreadable(ctx, said)
		now := must(p.primary.Status(ctx))
		e.result.check("fenced", !cluster.Serves(now) || now.GetHeader().GetTerm() > p.term,
			"behind %s for a head the former primary is %v in term %d, before %d", s.what, now.GetNode().GetRole(), now.GetHeader().GetTerm(), p.term)
		if e.noticed() {
			return
		}
		founder := e.foundedAnew(ctx, p, false)
		do(e.cluster.Settled(ctx))
		e.did("wrote %s to the head of the journal; %s founded it anew", s.what, founder)
	}
	e.bounded()
	e.compare(ctx)
}

// unreadable counts how often each node has logged that the journal cannot be read.
func (e *Env) unreadable() (said []int) {
	for _, n := range e.cluster.Nodes {
		said = append(said, bytes.Count(must(os.ReadFile(n.Log)), []byte("cannot be read")))
	}
	return said
}

// saysUnreadable waits until each node has logged that more often than before.
func (e *Env) saysUnreadable(ctx context.Context, before []int) {
	limit := time.Minute
	if e.Break != "" {
		limit = brokenPatience / 2
	}
	err := cluster.Poll(ctx, limit, "all nodes say that the journal cannot be read", func(context.Context) (bool, error) {
		for i, n := range e.unreadable() {
			if n <= before[i] {
				return false, nil
			}
		}
		return true, nil
	})
	e.result.check("a clear error", err == nil, "%v", err)
}
