package statefile

import (
	"testing"

	"github.com/understudy-store/understudy/journal"
)

// A state is not part of one of another branch of its history, which is of a later term and
// of fewer commits.
func TestABranchSupersedesNoOther(t *testing.T) {
	of := &Source{ClusterID: "c"}
	at := journal.Head{History: "h", Term: 132, Seq: 950}
	for head, want := range map[journal.Head]bool{
		{History: "h", Term: 5, Seq: 1000}:  false,
		{History: "h", Term: 133, Seq: 900}: false,
		{History: "h", Term: 5, Seq: 900}:   true,
		at:                                  true,
	} {
		if got := of.supersedes(at, Info{Cluster: "c", Head: head}); got != want {
			t.Errorf("D: a state at %d of term %d counts as part of one at %d of term %d: %v, want %v", head.Seq, head.Term, at.Seq, at.Term, got, want)
		}
	}
}
