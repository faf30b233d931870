package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/netfault"
)

// The drill in which somebody writes over the cluster's keys by hand.

// An overwrite is a write by hand, and how the cluster may react to it.
type overwrite struct {
	what  string
	short bool // is part of the form for CI
	write func(ctx context.Context, e *Env, p pair)
	// untouched says that there must be no failover. dies says that the primary is killed
	// after the write.
	untouched, dies bool
}

func (e *Env) value(ctx context.Context, key string) (string, clientv3.LeaseID) {
	kvs := must(e.cluster.Client.Get(ctx, key)).Kvs
	if len(kvs) == 0 {
		do(fmt.Errorf("there is no key %s", key))
	}
	return string(kvs[0].Value), clientv3.LeaseID(kvs[0].Lease)
}

// put returns a function that writes a value to a key of the layout.
func put(key func(journal.Layout) string, value string, how ...clientv3.OpOption) func(context.Context, *Env, pair) {
	return func(ctx context.Context, e *Env, _ pair) {
		must(e.cluster.Client.Put(ctx, key(e.cluster.Layout), value, how...))
	}
}

// again returns a function that writes a key's own value once more, without its lease.
func again(key func(journal.Layout) string) func(context.Context, *Env, pair) {
	return func(ctx context.Context, e *Env, _ pair) {
		until(ctx, time.Minute, "a key is written as it was", func(ctx context.Context) (bool, error) {
			k := key(e.cluster.Layout)
			v, _ := e.value(ctx, k)
			resp, err := e.cluster.Client.Txn(ctx).If(clientv3.Compare(clientv3.Value(k), "=", v)).Then(clientv3.OpPut(k, v)).Commit()
			return err == nil && resp.Succeeded, err
		})
	}
}

// overwrites returns all overwrites, given older values of the head and the leader key.
func overwrites(oldHead, oldLeader string) []overwrite {
	head, leader := journal.Layout.Head, journal.Layout.Leader
	return []overwrite{
		{what: "the head, as it is", short: true, untouched: true, write: again(head)},
		{what: "an old head", short: true, write: put(head, oldHead)},
		{what: "garbage to the head", write: put(head, "garbage")},
		{what: "nothing to the head", write: put(head, "")},
		{what: "a head in a newer format", short: true, write: newerFormat},
		{what: "the leader without its lease, whose node dies", write: again(leader), dies: true},
		{what: "an old leader", write: put(leader, oldLeader)},
		{what: "garbage to the leader", write: put(leader, "garbage")},
		{what: "garbage to the leader, with its lease", write: put(leader, "garbage", clientv3.WithIgnoreLease())},
		{what: "the end of the leader's lease", write: func(ctx context.Context, e *Env, _ pair) {
			_, lease := e.value(ctx, e.cluster.Layout.Leader())
			must(e.cluster.Client.Revoke(ctx, lease))
		}},
		{what: "no leader, while the primary hears nothing of it", short: true, write: deletedUnseen},
		{what: "no leader", write: deleted(leader)},
		{what: "no nodes", untouched: true, write: deleted(journal.Layout.Nodes, clientv3.WithPrefix())},
		{what: "no leader and no head", write: func(ctx context.Context, e *Env, _ pair) {
			must(e.cluster.Client.Txn(ctx).Then(clientv3.OpDelete(e.cluster.Layout.Leader()), clientv3.OpDelete(e.cluster.Layout.Head())).Commit())
		}},
		{what: "no key at all", write: deleted(root, clientv3.WithPrefix())},
	}
}

func overwriteKeys(ctx context.Context, e *Env) {
	ep := episode{nodes: 3, work: &work{}}
	ep.Args = []string{"--eviction_ratio=0"}
	e.episode(ctx, ep, func(ctx context.Context) {
		head, _ := e.value(ctx, e.cluster.Layout.Head())
		leader, _ := e.value(ctx, e.cluster.Layout.Leader())
		e.killAndRestart(ctx)
		do(e.cluster.Settled(ctx))
		do(clock.Sleep(ctx, acquainted))
		for _, o := range overwrites(head, leader) {
			if e.Short && !o.short {
				continue
			}
			if err := script(func() { e.overwrite(ctx, o) }); err != nil {
				do(fmt.Errorf("writing %s: %w", o.what, err))
			}
			e.result.Rounds++
			if e.noticed() {
				return
			}
		}
	})
}

// overwrite plays one overwrite. Clients must soon be served again, by one node at a time.
func (e *Env) overwrite(ctx context.Context, o overwrite) {
	do(e.cluster.Settled(ctx))
	p := e.working(ctx)
	e.load.Mark("writing " + o.what)
	since := e.load.Now()
	calls := e.probeAll(ctx)
	defer calls.stop()
	o.write(ctx, e, p)
	if o.dies {
		e.kill(ctx, p.primary, p.term)
		e.restart(ctx, p.primary)
	}
	effect := e.Failover // by then every node has read what was written
	if o.untouched {
		effect += e.SessionTTL
	}
	do(clock.Sleep(ctx, effect))
	_, now := e.primary(ctx, 0)
	e.load.answers(ctx, answersPerWait)
	answers := calls.end()
	outage := e.load.Outage(since)
	e.oneAtATime(answers)
	e.result.check("serves again", outage < foundedWithin, "clients had no answer for %v after somebody wrote %s", outage, o.what)
	if o.untouched {
		e.result.check("untouched", now == p.term, "the term was %d and is %d, after somebody wrote %s", p.term, now, o.what)
	}
	e.result.outages = append(e.result.outages, outage)
	do(e.cluster.Settled(ctx))
	do(e.cluster.Compact(ctx)) // the judge must read only the journal after the overwrite
	e.did("somebody wrote %s; term %d, before %d; outage %d ms", o.what, now, p.term, outage.Milliseconds())
}

// oneAtATime checks that no call was served in a term if it was sent after a later term had
// served one.
func (e *Env) oneAtATime(answers []answer) {
	e.result.violate("F", 0)
	answers = slices.DeleteFunc(answers, func(a answer) bool { return a.kind != errs.OK })
	slices.SortFunc(answers, func(a, b answer) int { return int(a.got - b.got) })
	type served struct {
		at   time.Duration
		term uint64
	}
	var first []served // answer of each term
	for _, a := range answers {
		if len(first) == 0 || a.term > first[len(first)-1].term {
			first = append(first, served{a.got, a.term})
		}
	}
	for _, a := range answers {
		for _, f := range first {
			if f.term > a.term && a.sent > f.at {
				e.result.violate("F", 1, fmt.Sprintf("although term %d had served a call at %v, %v", f.term, f.at, a))
				break
			}
		}
	}
}

// newerFormat writes a head of a format that this program cannot read, and later restores the
// old one. In between, no node may found a journal or serve.
func newerFormat(ctx context.Context, e *Env, _ pair) {
	const newer = `{"format":99,"term":9,"sequence":1000000}`
	key := e.cluster.Layout.Head()
	before := must(e.cluster.Client.Put(ctx, key, newer, clientv3.WithPrevKV())).PrevKv
	do(clock.Sleep(ctx, 2*e.Failover))
	now, _ := e.value(ctx, key)
	serving := slices.ContainsFunc(e.cluster.Nodes, func(n *cluster.Node) bool {
		s, err := n.Status(ctx)
		return err == nil && cluster.Serves(s)
	})
	e.result.check("nothing is founded over a newer format", now == newer && !serving && e.logged("upgrade this node"),
		"the head is %s, a node serves: %t, one asks for an upgrade: %t", now, serving, e.logged("upgrade this node"))
	if before == nil {
		do(errors.New("there was no head"))
	}
	must(e.cluster.Client.Put(ctx, key, string(before.Value)))
}

// deletedUnseen deletes the leader key while the primary may still answer and cannot learn of
// the deletion. The node that is elected must wait.
func deletedUnseen(ctx context.Context, e *Env, p pair) {
	p.primary.SetEtcd(netfault.Stall)
	defer p.primary.SetEtcd(netfault.Fault{})
	must(e.cluster.Client.Delete(ctx, e.cluster.Layout.Leader()))
	e.primary(ctx, p.term)
}
