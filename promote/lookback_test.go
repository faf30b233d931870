package promote

import (
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/journal"
)

// An election says which primary was before it and why that one is gone, however many elections
// led to nothing since.
func TestLookBack(t *testing.T) {
	a := Leader{NodeID: "a", Term: 4}
	n := &Node{last: lastPrimary{leader: a, learned: 10 * time.Second}, previous: Leader{NodeID: "b", Term: 6}}
	elected := func(before journal.Head, learned time.Duration) *candidate {
		c := &candidate{before: before, learned: learned}
		n.lookBack(c)
		n.last = c.last
		n.last.why = c.why
		return c
	}
	for i, c := range []*candidate{
		elected(journal.Head{Seq: 7, Term: 4, Clean: true, Heir: "b"}, 11*time.Second),
		elected(journal.Head{Seq: 7, Term: 4, Clean: true, Heir: "b"}, 11*time.Second), // nothing was committed
		elected(journal.Head{Seq: 9, Term: 6}, 15*time.Second),                         // by a term that nobody served
	} {
		if c.last.leader != a || c.last.learned != 11*time.Second || c.why != "a handed over" {
			t.Errorf("%d: got %+v, %q; want a, until 11 s, and that it handed over", i, c.last, c.why)
		}
	}
	// Others were elected, and served, while this node was away.
	if c := elected(journal.Head{Seq: 70, Term: 9}, 99*time.Second); c.last.learned != 99*time.Second || c.why == "a handed over" {
		t.Errorf("got %+v, %q; want nothing of a, which served before the last one", c.last, c.why)
	}
	n = &Node{previous: Leader{NodeID: "x", Term: 3}} // it has seen nobody serve
	if c := elected(journal.Head{Seq: 7, Term: 4}, 11*time.Second); c.last.leader.Term != 4 || c.last.learned != 11*time.Second || !strings.Contains(c.why, "key of x was gone") {
		t.Errorf("got %+v, %q; want what the head and the last key show", c.last, c.why)
	}
}
