package promote_test

import (
	"testing"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/promote"
)

// A handover to a named node makes that node the primary, whichever node sees first that the
// leader key is gone.
func TestHandoverToANamedNode(t *testing.T) {
	t.Parallel()
	w := newCluster(t, etcdtest.Start(t))
	a := w.start("a", steady)
	w.serving(a).mount()
	nodes := map[string]*node{"a": a, "b": w.start("b", steady), "c": w.start("c", steady)}
	from := a
	for _, to := range []string{"c", "b", "c", "a", "b"} {
		for _, n := range nodes {
			if n != from {
				w.promotable(n)
			}
		}
		var leader promote.Leader
		waitFor(t, "the registrations to say so too", func() (done bool) {
			var err error
			leader, _, err = from.Handover(t.Context(), 0, to)
			return err == nil
		})
		if leader.NodeID != to {
			t.Fatalf("a handover from %s: got %s as the primary, want %s, which the order names", from.id, leader.NodeID, to)
		}
		from = nodes[to]
	}
}
