package judge

import (
	"context"
	"errors"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/journal"
)

// A Verdict is what the judge found.
type Verdict struct {
	OK bool `json:"ok"`
	// Violations has the number of violations of each promise that was checked, by its
	// letter.
	Violations map[string]int `json:"violations"`
	Examples   []string       `json:"examples,omitempty"` // some for each, several lines long
	Keys       int            `json:"keys"`
	Calls      int            `json:"calls"`
	// Undecided counts keys whose history was too complex to be decided in time. A verdict
	// with such keys is not OK.
	Undecided int `json:"undecided,omitempty"`
	// Looks counts how often clients and probes read bytes under a lease. Kept counts the
	// leases at whose end bytes were read once more. If Looks is 0, A was not checked; if
	// Kept is 0, L was not.
	Looks int `json:"looks"`
	Kept  int `json:"kept"`
	// Commits counts the commits of the journal that etcd still had and the judge read.
	Commits int `json:"commits"`
}

// judgeHistory decides what a history alone can show: D, X, V, F and Q. It returns a verdict
// without its counts, the counts, and by key the objects that must not be seen any more.
//
// Errors: the context's.
func judgeHistory(ctx context.Context, history []Record, rules *Rules) (v Verdict, t *tally, dead graves, err error) {
	t, dead = new(tally), make(graves)
	t.checked(D, X, V, F)
	lowerTerms(history, t)
	sharedIDs(history, t)
	keys := split(history, rules)
	v.Keys = len(keys)
	overQuota(keys, rules, t)
	for i := range history {
		if history[i].Call != Mark {
			v.Calls++
		}
	}
	rest := make([]*keyHistory, 0, len(keys))
	for _, h := range keys {
		g := h.buried()
		dead[h.key] = g
		if !h.resurrected(&g, t) { // if it is true, the key's violation is counted already
			rest = append(rest, h)
		}
	}
	v.Undecided, err = linearize(ctx, rest, t)
	wrongCounts(history, keys, t)
	return v, t, dead, err
}

type graves map[string]grave

// has reports whether an object of a key is known to be gone for good.
func (g graves) has(key string, id client.ObjectID) bool {
	one, ok := g[key]
	return ok && one.dead(id, forever)
}

// Judge judges what clients saw. It also checks the living nodes and etcd from outside:
// each node's ranges, the digests of all nodes at one sequence, and the journal as far as
// etcd has it. Without nodes, or without etcd, it skips those checks. The load must have
// been stopped.
//
// Judge fails if the context ends, or if etcd does not answer. A node that does not answer
// is a violation of S.
func (l *Load) Judge(ctx context.Context, nodes []Node, etcd []string, layout journal.Layout) (Verdict, error) {
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	if ended == 0 {
		return Verdict{}, errors.New("the load is still at work; stop it before it is judged")
	}
	rules := l.rules()
	v, t, dead, err := judgeHistory(ctx, l.History(), &rules)
	if err != nil {
		return Verdict{}, err
	}
	if v.Looks = int(l.looks.Load()); v.Looks > 0 {
		t.checked(A)
	}
	if v.Kept = int(l.kept.Load()); v.Kept > 0 {
		t.checked(L)
	}
	t.addAll(&l.seen)
	if len(nodes) > 0 {
		if err := judgeNodes(ctx, nodes, dead, t); err != nil {
			return Verdict{}, err
		}
	}
	if len(etcd) > 0 {
		if v.Commits, err = judgeJournal(ctx, etcd, layout, t); err != nil {
			return Verdict{}, err
		}
	}
	return t.verdict(v), nil
}

// Compare checks nodes without a load: their digests at one sequence, and the ranges of each.
//
// Compare fails if the context ends. A node that does not answer is a violation of S.
func Compare(ctx context.Context, nodes []Node) (Verdict, error) {
	t := new(tally)
	t.checked(A)
	if err := judgeNodes(ctx, nodes, nil, t); err != nil {
		return Verdict{}, err
	}
	return t.verdict(Verdict{}), nil
}
