package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A fault is one line of a schedule.
type fault struct {
	at     time.Duration // behind the fault before
	kind   string
	node   string // that it hits
	length time.Duration
	after  func() // is called when it has passed; may be nil
}

func (f fault) String() string {
	return fmt.Sprintf("%s %s for %v", f.kind, f.node, f.length)
}

// A breaker begins faults of one kind and ends them.
type breaker struct {
	kind string
	do   func(w *world, n *node, f fault)
}

func breakers() []breaker {
	return []breaker{
		{"pause", (*world).pauseFor},
		{"cut", (*world).cutFor},
		{"slow", (*world).slowFor},
		{"fade", (*world).fade},
		{"lag", (*world).lag},
		{"lose", (*world).loseAnswer},
		{"kill", (*world).killFor},
		{"handover", (*world).handOver},
		{"outage", (*world).outage},
		{"compact", (*world).compactNow},
		{"unseat", (*world).unseatNow},
	}
}

var ids = []string{"a", "b", "c"}

// kinds returns the names of all kinds of faults.
func kinds() (list []string) {
	for _, b := range breakers() {
		list = append(list, b.kind)
	}
	return list
}

// schedule draws faults of some kinds.
func schedule(rng *rand.Rand, n int, kinds []string) (list []fault) {
	for range n {
		list = append(list, fault{
			at:     time.Duration(rng.Int64N(int64(3 * time.Second))),
			kind:   kinds[rng.IntN(len(kinds))],
			node:   ids[rng.IntN(len(ids))],
			length: 100*time.Millisecond + time.Duration(rng.Int64N(int64(4*time.Second))),
		})
	}
	return list
}

// play plays a schedule, and returns when all its faults have ended.
func (w *world) play(list []fault) {
	do := make(map[string]func(*world, *node, fault))
	for _, b := range breakers() {
		do[b.kind] = b.do
	}
	for _, f := range list {
		time.Sleep(f.at)
		do[f.kind](w, w.node(f.node), f)
	}
}

// primaryOr returns the node that serves instead of the one that was drawn,
// every other time: faults of the primary are those that matter most.
func (w *world) primaryOr(n *node, f fault) *node {
	if p := w.serving(); p != nil && f.length%2 == 0 {
		return p
	}
	return n
}

func (w *world) pauseFor(n *node, f fault) {
	n = w.primaryOr(n, f)
	w.transcript.note("--", "%s is stopped for %v", n.id, f.length)
	n.pause()
	time.Sleep(f.length)
	n.wake()
	w.transcript.note("--", "%s is continued", n.id)
}

func (w *world) cutFor(n *node, f fault) {
	n = w.primaryOr(n, f)
	w.transcript.note("--", "%s is cut off from etcd for %v", n.id, f.length)
	n.cut()
	time.Sleep(f.length)
	n.heal()
	w.transcript.note("--", "%s reaches etcd again", n.id)
}

func (w *world) slowFor(n *node, f fault) {
	n = w.primaryOr(n, f)
	delay := f.length / 10
	w.transcript.note("--", "messages between %s and etcd take %v for %v", n.id, delay, f.length)
	n.each(func(l *Link) { l.Delay(delay, delay) })
	time.Sleep(f.length)
	n.each(func(l *Link) { l.Delay(0, 0) })
}

// fade makes answers from etcd so late that those to the primary's keepalives
// just come in time, and then loses its keepalives: the lease began long before
// the last answer arrived.
func (w *world) fade(_ *node, f fault) {
	n := w.serving()
	if n == nil {
		return
	}
	late := sessionTTL/2 - 100*time.Millisecond
	w.transcript.note("--", "answers from etcd take %v to %s", late, n.id)
	n.each(func(l *Link) { l.Delay(0, late) })
	time.Sleep(f.length)
	w.transcript.note("--", "keepalives of %s are lost", n.id)
	name := n.id + "/sessions"
	w.etcd.Fault(func(c Call) Verdict {
		if _, keepalive := c.Request.(*pb.LeaseKeepAliveRequest); keepalive && c.Client == name {
			return Refuse
		}
		return Serve
	})
	time.Sleep(sessionTTL + time.Second)
	w.etcd.Fault(nil)
	n.each(func(l *Link) { l.Delay(0, 0) })
	w.transcript.note("--", "%s reaches etcd as before", n.id)
}

// lag kills the primary while the watches of the others lack its last commits:
// they must catch up before they serve.
func (w *world) lag(n *node, f fault) {
	held := w.living()
	for _, n := range held {
		n.links[0].HoldWatches()
	}
	w.transcript.note("--", "watches are held back")
	time.Sleep(f.length / 4)
	w.killFor(n, fault{length: sessionTTL + f.length/4, after: func() {
		for _, n := range held {
			n.links[0].ReleaseWatches()
		}
		w.transcript.note("--", "watches are released")
	}})
}

// loseAnswer loses the answer to the next transaction of the node that serves.
func (w *world) loseAnswer(n *node, f fault) {
	n = w.primaryOr(n, f)
	w.lose(n, Lose, 1+int(f.length.Microseconds()%3))
	time.Sleep(f.length)
	w.etcd.Fault(nil)
}

// lose loses the answers to the next transactions of a node.
func (w *world) lose(n *node, v Verdict, times int) {
	w.transcript.note("--", "the answers to transactions of %s are lost: the next %d", n.id, times)
	name := n.id + "/journal"
	w.etcd.Fault(func(c Call) Verdict {
		if _, txn := c.Request.(*pb.TxnRequest); !txn || c.Client != name || times == 0 {
			return Serve
		}
		times--
		return v
	})
}

// killFor kills a node and starts it again, if another one holds the state:
// the promises hold as long as one complete node lives.
func (w *world) killFor(n *node, f fault) {
	if f.after == nil {
		f.after = func() {}
	}
	n = w.primaryOr(n, f)
	for _, other := range w.living() {
		if other != n && !other.Status().Self.Promotable {
			w.transcript.note("--", "%s is not killed: %s is not complete", n.id, other.id)
			f.after()
			return
		}
	}
	w.transcript.note("--", "%s is killed", n.id)
	n.kill()
	time.Sleep(f.length)
	f.after()
	w.transcript.note("--", "%s is started again", n.id)
	again := w.start(n.id)
	w.await(n.id+" to be complete again", func() bool { return again.Status().Self.Promotable })
}

func (w *world) handOver(*node, fault) {
	p := w.serving()
	if p == nil {
		return
	}
	w.transcript.note("--", "%s is asked to hand over", p.id)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, _, err := p.Handover(ctx, 0, ""); err != nil {
		w.transcript.note("--", "no handover")
	}
}

func (w *world) outage(_ *node, f fault) {
	w.transcript.note("--", "etcd is down for %v", f.length)
	w.etcd.Down()
	time.Sleep(f.length)
	w.etcd.Up()
	w.transcript.note("--", "etcd is up")
}

// compactNow forgets the history while a node is cut off.
func (w *world) compactNow(n *node, f fault) {
	if n == w.serving() {
		return
	}
	w.transcript.note("--", "%s is cut off for %v, and the journal compacted meanwhile", n.id, f.length)
	n.cut()
	time.Sleep(f.length)
	w.compact()
	n.heal()
}

// unseatNow deletes the leader key by hand: whoever is elected waits until the primary
// before is silent.
func (w *world) unseatNow(_ *node, f fault) {
	w.transcript.note("--", "the leader key is deleted by hand")
	w.unseat()
	time.Sleep(f.length / 4)
}
