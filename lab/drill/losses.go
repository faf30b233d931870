package drill

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/netfault"
	"github.com/understudy-store/understudy/promote"
)

// The drills in which etcd loses the journal, while nodes live that hold its state.

const (
	// foundedWithin is how long it may take until a cluster serves again.
	foundedWithin = 10 * time.Second
	// foundingTerms is by how much the term of a journal that was founded anew exceeds all
	// earlier ones.
	foundingTerms = 1024
	// acquainted is how long nodes need to learn which other nodes are complete.
	acquainted = 2 * time.Second
)

// A loss is a way in which the journal is lost, and the nodes that live then.
type loss struct {
	what  string
	short bool // is part of the form for CI
	nodes int  // of the cluster; default 3
	dead  bool // the primary died before; other nodes have all that it acknowledged
	own   bool // the primary runs etcd
	// before runs while all is well; may be nil.
	before func(ctx context.Context, e *Env)
	lose   func(ctx context.Context, e *Env, p pair)
}

// loseJournals plays losses, each on a cluster of its own.
func (e *Env) loseJournals(ctx context.Context, losses []loss) {
	if e.Short {
		losses = slices.DeleteFunc(losses, func(l loss) bool { return !l.short })
	}
	for _, l := range losses {
		ep := episode{nodes: l.nodes, work: &work{}}
		// Puts that find no room evict nothing, so an object that is gone was lost.
		ep.Args = []string{"--eviction_ratio=0"}
		ep.nodes = cmp.Or(ep.nodes, 3)
		if ep.Embedded = l.own; l.own {
			ep.Args = append(ep.Args, "--refound-wait=5s") // for standbys that look for it anew
		}
		if err := e.play(ctx, ep, func(ctx context.Context) { e.loseJournal(ctx, l) }); err != nil {
			do(fmt.Errorf("%s: %w", l.what, err))
		}
		e.result.Rounds++
		if e.noticed() {
			return
		}
	}
}

// loseJournal plays one loss. A node must found the journal anew, and nothing that a living
// node held may be lost.
func (e *Env) loseJournal(ctx context.Context, l loss) {
	e.letWork(ctx)
	if l.before != nil {
		l.before(ctx, e)
	}
	do(e.cluster.Settled(ctx))
	p := e.primaryAlone(ctx)
	do(clock.Sleep(ctx, acquainted))
	if l.dead {
		e.load.Mark("SIGKILL of " + p.primary.Name)
		p.primary.Kill()
		e.appliedByAll(ctx, must(e.cluster.Head(ctx)))
	}
	e.load.Mark(l.what)
	since := e.load.Now()
	l.lose(ctx, e, p)
	founder := e.foundedAnew(ctx, p, l.dead)
	e.load.answers(ctx, 50)
	outage := e.load.Outage(since)
	e.result.outages = append(e.result.outages, outage)
	e.did("%s; %s founded the journal anew; outage %d ms", l.what, founder, outage.Milliseconds())
	if l.dead {
		e.restart(ctx, p.primary)
	}
	e.load.answers(ctx, answersPerWait)
}

// primaryAlone returns the primary in a pair that may have no standby.
func (e *Env) primaryAlone(ctx context.Context) (p pair) {
	p.primary, p.term = e.primary(ctx, 0)
	return p
}

// appliedByAll waits until all nodes that live have applied the journal to a head.
func (e *Env) appliedByAll(ctx context.Context, at journal.Cursor) {
	for _, n := range e.cluster.Alive() {
		_, err := n.Until(ctx, "has applied the journal", func(s *pb.StatusResponse) bool {
			return s.GetState().GetSequence() >= uint64(at.Head.Seq)
		})
		do(err)
	}
}

// foundedAnew waits until a node serves that founded the journal anew. It checks that the node
// reports that, and that its term is higher than any earlier one.
func (e *Env) foundedAnew(ctx context.Context, p pair, absent bool) string {
	var founder *pb.StatusResponse
	err := cluster.Poll(ctx, foundedWithin, "a node serves that founded the journal anew", func(ctx context.Context) (bool, error) {
		founder = e.serving(ctx, p.term)
		return founder != nil, nil
	})
	e.result.check("founded again", err == nil, "%v after the journal was lost: %v", foundedWithin, err)
	do(err)
	term, said := founder.GetHeader().GetTerm(), strings.Join(founder.GetNotes(), "\n")
	e.result.check("a term far above", term >= p.term+foundingTerms, "term %d follows %d", term, p.term)
	e.result.check("says so", strings.Contains(said, "founded the journal anew") && e.logged("the journal is lost"),
		"the status of the founder: %q; a log has it: %t", said, e.logged("the journal is lost"))
	if absent {
		e.result.check("names who is missing", strings.Contains(said, p.primary.Name+" is not here"), "the status of the founder: %q", said)
	}
	return founder.GetNode().GetNodeId()
}

// serving asks all living nodes, and returns the status of one that serves, with the earlier
// state, in a term after the given one; nil if there is none.
func (e *Env) serving(ctx context.Context, after uint64) *pb.StatusResponse {
	for _, n := range e.cluster.Alive() {
		s, err := n.Status(ctx)
		if err == nil && cluster.Serves(s) && s.GetHeader().GetTerm() > after && !s.GetState().GetStartedEmpty() {
			return s
		}
	}
	return nil
}

func (e *Env) logged(text string) bool {
	return slices.ContainsFunc(e.cluster.Nodes, func(n *cluster.Node) bool {
		b, _ := os.ReadFile(n.Log)
		return bytes.Contains(b, []byte(text))
	})
}

// replaceEtcd kills etcd, replaces its data, and starts it. With above, etcd's revisions are
// higher than the old ones before a node can reach it.
func (e *Env) replaceEtcd(ctx context.Context, replace func() error, above bool) {
	old := must(e.cluster.Head(ctx)).Revision
	e.setEtcd(netfault.Cut)
	defer e.setEtcd(netfault.Fault{})
	e.killEtcd()
	do(replace())
	do(e.cluster.StartMembers(ctx, e.cluster.Members...))
	if !above {
		return
	}
	const writers = 32
	var g errgroup.Group
	for range writers {
		g.Go(func() error {
			for {
				resp, err := e.cluster.Client.Put(ctx, anotherTenant, "")
				if err != nil || resp.Header.Revision > 2*old {
					return err
				}
			}
		})
	}
	do(g.Wait())
}

func wipe(above bool) func(context.Context, *Env, pair) {
	return func(ctx context.Context, e *Env, _ pair) { e.replaceEtcd(ctx, e.cluster.Wipe, above) }
}

// deleted returns a function that deletes keys, as an operator might by hand.
func deleted(key func(journal.Layout) string, more ...clientv3.OpOption) func(context.Context, *Env, pair) {
	return func(ctx context.Context, e *Env, _ pair) {
		must(e.cluster.Client.Delete(ctx, key(e.cluster.Layout), more...))
	}
}

func root(l journal.Layout) string { return l.Root }

// wipeEtcd destroys the journal while nodes hold its whole state.
func wipeEtcd(ctx context.Context, e *Env) {
	e.loseJournals(ctx, []loss{
		{what: "etcd is wiped and a standby that is behind sees it first", short: true, lose: behindFirst},
		{what: "etcd is wiped, the primary is dead, revisions above", short: true, dead: true, lose: wipe(true)},
		{what: "etcd is wiped, revisions below", lose: wipe(false)},
		{what: "etcd is wiped, revisions above", lose: wipe(true)},
		{what: "etcd is wiped, the primary is dead", dead: true, lose: wipe(false)},
		{what: "etcd is wiped under one node", nodes: 1, lose: wipe(false)},
		{what: "etcd is wiped under one node, revisions above", nodes: 1, lose: wipe(true)},
		{what: "etcd is wiped under one standby, the primary is dead", nodes: 2, dead: true, lose: wipe(false)},
		{what: "the disk of the node that runs etcd is wiped", own: true, lose: ownWiped},
		{what: "the head is deleted", lose: deleted(journal.Layout.Head)},
		{what: "the head is deleted, the primary is dead", dead: true, lose: deleted(journal.Layout.Head)},
		{what: "all keys are deleted under one node", nodes: 1, lose: deleted(root, clientv3.WithPrefix())},
		{what: "all keys are deleted", lose: deleted(root, clientv3.WithPrefix())},
	})
	if !e.noticed() && (!e.Short || e.Break != "") {
		e.episode(ctx, episode{}, e.foreignJournal)
	}
}

// ownWiped kills the primary, which runs etcd, wipes its disk, and starts it. Clients are cut
// off first, so that the primary acknowledges nothing that the other nodes do not have.
func ownWiped(ctx context.Context, e *Env, p pair) {
	p.primary.Front.Set(netfault.Cut)
	e.appliedByAll(ctx, must(e.cluster.Head(ctx)))
	p.primary.Kill()
	do(e.cluster.Wipe())
	do(e.cluster.ForgetState(p.primary))
	do(e.cluster.StartNode(ctx, p.primary, promote.Primary))
	p.primary.Front.Heal()
}

// behindFirst wipes etcd while one standby is behind, and for a while lets only that one reach
// etcd. The others hold more, so it must ask them.
func behindFirst(ctx context.Context, e *Env, p pair) {
	behind := e.cluster.Standbys(p.primary)[0]
	behind.SetEtcd(netfault.Cut)
	e.letWork(ctx)
	e.replaceEtcd(ctx, e.cluster.Wipe, false)
	for _, n := range e.cluster.Nodes {
		if n != behind {
			n.SetEtcd(netfault.Cut)
		}
	}
	err := cluster.Poll(ctx, foundedWithin, behind.Name+" finds the journal lost", func(ctx context.Context) (bool, error) {
		s, err := behind.Status(ctx)
		return err == nil && s.GetJournal().GetLost() != "", nil
	})
	e.result.check("notices the loss", err == nil, "%v", err)
	do(err)
	do(clock.Sleep(ctx, 2*time.Second)) // longer than the standby waits for others
	e.setEtcd(netfault.Fault{})
}

// foreignJournal lets a standby come back to a journal that was founded without it, with a
// higher sequence than its own. The standby must keep its state, and never serve.
func (e *Env) foreignJournal(ctx context.Context) {
	p := e.ready(ctx)
	e.putSome(ctx, "before")
	old := must(e.cluster.Head(ctx))
	e.appliedByAll(ctx, old)
	held := must(p.standby.Status(ctx)).GetState().GetObjects()
	p.standby.SetEtcd(netfault.Cut)
	p.primary.Kill()
	do(e.cluster.ForgetState(p.primary))
	e.killEtcd()
	do(e.cluster.Wipe())
	do(e.cluster.StartMembers(ctx, e.cluster.Members...))
	do(e.cluster.StartNode(ctx, p.primary, promote.Primary))
	must(p.primary.UntilServes(ctx))
	until(ctx, time.Minute, "the new journal is longer than the old one", func(ctx context.Context) (bool, error) {
		at, err := e.cluster.Head(ctx)
		return at.Head.Seq > old.Head.Seq, err
	})
	e.putSome(ctx, "after")
	p.standby.SetEtcd(netfault.Fault{})
	keeps := func(s *pb.StatusResponse) bool {
		return s.GetJournal().GetLost() != "" && s.GetState().GetObjects() == held && !cluster.Promotable(s)
	}
	err := cluster.Poll(ctx, foundedWithin, p.standby.Name+" keeps its state", func(ctx context.Context) (bool, error) {
		s, err := p.standby.Status(ctx)
		return err == nil && keeps(s), nil
	})
	e.result.check("keeps its state", err == nil, "it came back to a journal of another history: %v", err)
	do(err)
	p.primary.Kill()
	do(clock.Sleep(ctx, 2*e.SessionTTL))
	s := must(p.standby.Status(ctx))
	e.result.check("keeps its state", keeps(s), "%s is %v with %d objects, it had %d, while the primary is away", p.standby.Name, s.GetNode().GetRole(), s.GetState().GetObjects(), held)
	if !keeps(s) {
		return
	}
	do(e.cluster.StartNode(ctx, p.primary, promote.Primary))
	must(p.primary.UntilServes(ctx))
	e.did("%s kept %d objects of the old journal and served nobody; it says: %s", p.standby.Name, held, s.GetNode().GetNotPromotableReason())
}

// putSome puts objects of a group of keys, one commit after the other.
func (e *Env) putSome(ctx context.Context, name string) {
	b := e.newBulk()
	defer b.Close()
	do(b.mount(ctx, name, 1<<30))
	for i := range 50 {
		failed := must(b.tryPut(ctx, []string{fmt.Sprintf("%s/%d", name, i)}, bulkSize, client.PutConfig{HardPin: true}))
		do(failed[0])
	}
}

// restoreEtcd replaces etcd's data by a backup.
func restoreEtcd(ctx context.Context, e *Env) {
	var file string
	age := time.Minute
	if e.Short {
		age = time.Second
	}
	backup := func(ctx context.Context, e *Env) {
		file = must(e.cluster.Backup(ctx))
		do(clock.Sleep(ctx, age))
	}
	restored := func(bump uint64) func(context.Context, *Env, pair) {
		return func(ctx context.Context, e *Env, _ pair) {
			e.replaceEtcd(ctx, func() error { return e.cluster.Restore(file, bump) }, false)
		}
	}
	const far = 1_000_000
	if e.episode(ctx, episode{}, e.forkedJournal); e.noticed() {
		return
	}
	e.loseJournals(ctx, []loss{
		{what: "etcd is restored", nodes: 2, short: true, before: backup, lose: restored(0)},
		{what: "etcd is restored, and a node starts from an older file", nodes: 2, short: true, before: backup, lose: func(ctx context.Context, e *Env, p pair) {
			e.olderFile(ctx, p, func() error { return e.cluster.Restore(file, 0) })
		}},
		{what: "etcd is restored with revisions above", before: backup, lose: restored(far)},
		{what: "etcd is restored after a failover, with revisions above", nodes: 2, short: true, lose: restored(far), before: func(ctx context.Context, e *Env) {
			backup(ctx, e)
			e.killAndRestart(ctx)
		}},
		{what: "etcd is restored under one node", nodes: 1, before: backup, lose: restored(0)},
		{what: "etcd is restored, the primary is dead", dead: true, before: backup, lose: restored(0)},
		{what: "etcd is restored with revisions above, the primary is dead", dead: true, before: backup, lose: restored(far)},
	})
	if !e.noticed() && (!e.Short || e.Break != "") {
		e.episode(ctx, episode{}, e.wipedAhead)
	}
}

// forkedJournal lets etcd go back. The former primary goes on from its state file while the
// standby, which holds more, cannot answer. The standby then finds a primary that went on
// from an earlier point: it must keep its own branch in a file, and follow.
func (e *Env) forkedJournal(ctx context.Context) {
	p := e.ready(ctx)
	e.putSome(ctx, "before")
	e.appliedByAll(ctx, must(e.cluster.Head(ctx)))
	file := must(e.cluster.Backup(ctx))
	e.putSome(ctx, "beyond")
	e.appliedByAll(ctx, must(e.cluster.Head(ctx)))
	held := must(p.standby.Status(ctx)).GetState().GetSequence()
	p.primary.Kill()
	do(p.standby.Pause())
	e.replaceEtcd(ctx, func() error { return e.cluster.Restore(file, 0) }, false)
	do(e.cluster.StartNode(ctx, p.primary, promote.Primary))
	served := must(p.primary.UntilServes(ctx))
	do(p.standby.Resume())
	err := cluster.Poll(ctx, foundedWithin, p.standby.Name+" follows the branch that is served", func(ctx context.Context) (bool, error) {
		s, err := p.standby.Status(ctx)
		return err == nil && cluster.Promotable(s) && s.GetState().GetTerm() == served.GetHeader().GetTerm(), nil
	})
	now, failed := p.primary.Status(ctx)
	same := failed == nil && cluster.Serves(now) && now.GetHeader().GetTerm() == served.GetHeader().GetTerm()
	e.result.check("a fork ends with one journal", err == nil && same && e.logged("kept in a file that only you delete"),
		"%v; %s serves in the term in which it went on: %t", err, p.primary.Name, same)
	do(err)
	e.did("%s went on from less than %s held, up to sequence %d, which kept that in a file and follows", p.primary.Name, p.standby.Name, held)
	e.compare(ctx) // all free memory is in quarantine, so nothing can be put yet
	e.result.Rounds++
}

// olderFile kills the primary, lets etcd go back, and starts the primary from its state file,
// which may fit the journal that etcd then has. The standby holds more, and is cut off from
// etcd. The former primary must ask it, and leave the election to it.
func (e *Env) olderFile(ctx context.Context, p pair, back func() error) {
	standby := e.cluster.Standbys(p.primary)[0]
	p.primary.Front.Set(netfault.Cut)
	e.appliedByAll(ctx, must(e.cluster.Head(ctx)))
	p.primary.Kill()
	e.replaceEtcd(ctx, back, false)
	standby.SetEtcd(netfault.Cut)
	defer standby.SetEtcd(netfault.Fault{})
	p.primary.Front.Heal()
	do(e.cluster.StartNode(ctx, p.primary, promote.Primary))
	var s *pb.StatusResponse
	err := cluster.Poll(ctx, foundedWithin, p.primary.Name+" says why it does not serve", func(ctx context.Context) (over bool, err error) {
		s, err = p.primary.Status(ctx)
		return err == nil && (cluster.Serves(s) || s.GetNotServingHelp() != "" && strings.Contains(s.GetNotServingReason(), "sequence")), nil
	})
	left := err == nil && !cluster.Serves(s)
	e.result.check("leaves the election to who holds more", left, "%v; its role is %v: %s", err, s.GetNode().GetRole(), s.GetNotServingReason())
	if left {
		e.did("%s started from its file and does not serve: %s", p.primary.Name, s.GetNotServingReason())
	}
}

// wipedAhead wipes etcd while only the primary knows its last reservations, and kills it.
// Nobody else may get their memory.
func (e *Env) wipedAhead(ctx context.Context) {
	p := e.ready(ctx)
	b := e.newBulk()
	defer b.Close()
	do(b.mount(ctx, "host", 1<<20))
	e.appliedByAll(ctx, must(e.cluster.Head(ctx)))
	do(clock.Sleep(ctx, acquainted))
	p.standby.SetEtcd(netfault.Cut)
	reserve := func(group int) (at []uint64) {
		var items []client.PutItem
		for _, key := range bulkKeys(group, 0, 100) {
			items = append(items, client.PutItem{Key: key, Size: bulkSize})
		}
		for _, r := range must(b.BatchPutStart(ctx, items, client.PutConfig{})) {
			if r.Err == nil {
				at = append(at, r.Replicas[0].Address)
			}
		}
		return at
	}
	before := reserve(0)
	p.primary.Kill()
	e.replaceEtcd(ctx, e.cluster.Wipe, false)
	founder, again := e.foundedAnew(ctx, p, true), 0
	for _, at := range reserve(1) {
		if slices.Contains(before, at) {
			again++
		}
	}
	e.result.violate("A", 0)
	if again > 0 {
		e.result.violate("A", again, fmt.Sprintf("%d of %d ranges that the dead primary had reserved were given out again", again, len(before)))
	}
	e.did("%s founded the journal anew; of %d ranges that the dead primary had reserved it gave out %d", founder, len(before), again)
	e.restart(ctx, p.primary)
	e.compare(ctx)
	e.result.Rounds++
}
