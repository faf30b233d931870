package promote_test

import (
	"testing"

	"github.com/understudy-store/understudy/etcdtest"
)

// A handover that names a node goes to that node, whoever sees the vacancy
// first.
func TestHandoverToANamedNode(t *testing.T) {
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a")
	w.serving(a).mount()
	nodes := map[string]*node{"a": a, "b": w.start("b"), "c": w.start("c")}
	from := a
	for _, to := range []string{"c", "b", "c", "a", "b"} {
		for _, n := range nodes {
			if n != from {
				w.promotable(n)
			}
		}
		waitFor(t, "all of them in the list of nodes", func() bool {
			list, _ := from.Nodes(t.Context())
			ready := 0
			for _, n := range list {
				if n.Promotable {
					ready++
				}
			}
			return ready == len(nodes)
		})
		leader, _, err := from.Handover(t.Context(), 0, to)
		if err != nil {
			t.Fatal(err)
		}
		if leader.NodeID != to {
			t.Fatalf("%s handed over to %s, and %s serves", from.id, to, leader.NodeID)
		}
		from = nodes[to]
	}
}
