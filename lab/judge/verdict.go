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
	// Violations has the letter of each promise that was checked, with how many
	// times it was seen broken.
	Violations map[string]int `json:"violations"`
	Examples   []string       `json:"examples,omitempty"` // some for each, several lines long
	Keys       int            `json:"keys"`
	Calls      int            `json:"calls"`
	// Undecided counts keys whose history was too entangled to be decided in
	// time. Such a verdict is not OK: it says nothing.
	Undecided int `json:"undecided,omitempty"`
	// Looks counts how often clients and probes have read bytes under a lease,
	// Kept the leases under which bytes were read once more at their end. A and L
	// are checked only if it was done at all.
	Looks int `json:"looks"`
	Kept  int `json:"kept"`
	// Commits counts those of the journal that etcd still had, and that were read.
	Commits int `json:"commits"`
}

// judgeHistory decides what a history alone can show: D, X, V, F and Q. It returns a
// verdict without its counts, these, and by key what must not be seen any more.
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
		if !h.resurrected(&g, t) { // else it is known what is wrong with it
			rest = append(rest, h)
		}
	}
	v.Undecided, err = linearize(ctx, rest, t)
	wrongCounts(history, keys, t)
	return v, t, dead, err
}

// graves are the dead of all keys.
type graves map[string]grave

// has reports whether an object of a key is known to be gone for good.
func (g graves) has(key string, id client.ObjectID) bool {
	one, ok := g[key]
	return ok && one.dead(id, forever)
}

// Judge decides what clients saw, and looks at the nodes that live and at etcd
// from outside: each node's ranges, the digests of all at one sequence, the
// journal as far as etcd has it. Without nodes, or without etcd, it leaves out
// what they would show. The load must have been stopped.
//
// Errors: of the context, or of etcd not answering. That a node does not answer
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

// Compare looks at nodes alone, without a load: their digests at one sequence,
// and the ranges of each.
//
// Errors: the context's. That a node does not answer is a violation of S.
func Compare(ctx context.Context, nodes []Node) (Verdict, error) {
	t := new(tally)
	t.checked(A)
	if err := judgeNodes(ctx, nodes, nil, t); err != nil {
		return Verdict{}, err
	}
	return t.verdict(Verdict{}), nil
}
