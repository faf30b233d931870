package promote_test

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/promote"
)

// askedPeers call a function when they are first asked what they hold, after the answers.
type askedPeers struct {
	promote.Peers
	first *atomic.Pointer[func()]
}

func (p askedPeers) Standing(ctx context.Context, address string) (promote.Standing, error) {
	s, err := p.Peers.Standing(ctx, address)
	if do := p.first.Swap(nil); do != nil {
		(*do)()
	}
	return s, err
}

// While an operator's order is checked, another node becomes the primary and acknowledges a
// put. The order does not replace it, since it does not give up that node's state. An order
// that names the node does.
func TestRefoundReplacesNoOtherPrimaryThanTheOneItNames(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a", steady)
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	var meanwhile atomic.Pointer[func()]
	b, c := w.start("b", steady, func(c *promote.Config) { c.Peers = askedPeers{w, &meanwhile} }), w.start("c", steady)
	w.promotable(b)
	w.promotable(c)
	w.know(a, b, c)
	w.equal(a, c)
	c.wire.cut() // it falls behind the backup, and loses nothing by it
	a.put("later")
	var file bytes.Buffer
	w.equal(a, b)
	if err := b.Backup(t.Context(), &file); err != nil {
		t.Fatal(err)
	}
	a.put("latest")
	w.equal(a, b)
	do := func() {
		c.wire.heal()
		w.equal(a, c)
		waitFor(t, "the handover to c", func() bool { _, _, err := a.Handover(t.Context(), 1, "c"); return err == nil })
		w.serving(c).put("by c")
	}
	meanwhile.Store(&do)
	_, _, err := b.refoundNow(t.Context(), file.Bytes(), "a", "b")
	if errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "what c acknowledged as the primary") {
		t.Errorf("an order against a, obeyed when c was the primary: got %v, want Unavailable, with what c acknowledged", err)
	}
	waitFor(t, "c to serve still", c.serves)
	c.has("by c")
	w.promotable(b)
	w.refound(b, file.Bytes(), "a", "b", "c")
	b.has(append(keys("k", 5), "later")...)
}

// The primary that served last took no part when the journal was founded anew. It counts as
// absent even if it was elected only a moment before, so free memory stays in quarantine.
func TestFoundedWithoutAPrimaryElectedAMomentAgo(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a, b, c := w.trio(5)
	w.listed(a, "c")
	used := a.Store().Stats().Busy
	a.handsOverTo(c)
	w.serving(c)
	waitFor(t, "a commit of c on a and b", func() bool { return a.Status().Head.Term == 2 && b.Status().Head.Term == 2 })
	c.ended.Store(true) // it answers nobody
	c.wire.cut()
	do(t, etcd, clientv3.OpDelete(layout.Root, clientv3.WithPrefix()))
	now := w.founder(a, b)
	if said := now.Status().Founded; !strings.Contains(said, "c is not here") && !strings.Contains(said, "the primary of term 2 is not here") {
		t.Errorf("it says %q, want that c is not here", said)
	}
	if s := now.Store().Stats(); s.Quarantined+used < s.Capacity {
		t.Errorf("A: got %d bytes in quarantine and %d used before of %d, want all of them: c may have handed out free memory",
			s.Quarantined, used, s.Capacity)
	}
}
