package promote_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/etcdtest"
)

// While a standby is down, somebody writes over the head and puts it right again. The standby
// meets that in the journal, goes on behind it, and can take over.
func TestAHeadThatWasPutRight(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	w := newCluster(t, etcd)
	a := w.start("a", steady)
	w.serving(a).mount()
	a.put(keys("k", 5)...)
	dir := t.TempDir()
	b := w.start("b", steady, stateIn(dir, time.Hour))
	w.promotable(b)
	w.equal(a, b)
	b.end()
	waitFor(t, "a head to write over", func() bool {
		_, good := readHead(t, etcd)
		resp, err := etcd.Client(t).Txn(t.Context()).If(clientv3.Compare(clientv3.Value(layout.Head()), "=", good)).
			Then(clientv3.OpPut(layout.Head(), "nonsense")).Commit()
		if err != nil || !resp.Succeeded {
			return false
		}
		do(t, etcd, clientv3.OpPut(layout.Head(), good))
		return true
	})
	w.serving(a)
	a.put(keys("m", 5)...)
	b = w.start("b", steady, stateIn(dir, time.Hour))
	w.promotable(b)
	w.equal(a, b)
	a.end()
	w.serving(b).has("k0", "m4")
}
