package promote

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// A Standing is what a node says of itself when another one asks it directly.
type Standing struct {
	ID       string
	Role     Role
	History  journal.History // that its state comes from
	Position metadata.Position
	Complete bool // the state is all that the history said up to the position
	// Restored says that the state comes from a file instead: more may have been
	// acknowledged.
	Restored bool
	// Forked says that another primary went on from less than the state holds. No election
	// and no founding waits for what the node holds; an order to found anew must give it up.
	Forked bool
	// Lapsed says that this node was the last one to be elected, as far as it knows, and has
	// committed nothing for longer than the failover time: another one may have been elected since.
	Lapsed bool
	// Unread says that the node holds no state, and has state files that it could not
	// read, or has just started and may still read some: its answer does not count.
	Unread bool
}

// ahead reports whether s, rather than o, is to found the journal anew: the node that holds
// more of it; of two that hold the same, one that did not restart, then the smaller id.
func (s Standing) ahead(o Standing) bool {
	switch a, b := s.Position, o.Position; {
	case a.Term != b.Term:
		return a.Term > b.Term
	case a.Seq != b.Seq:
		return a.Seq > b.Seq
	}
	if s.Complete != o.Complete {
		return s.Complete
	}
	return s.ID < o.ID
}

// A StartingError says that a node runs, and cannot say yet what it holds.
type StartingError struct {
	NodeID string
	Why    string
}

func (e *StartingError) Error() string { return e.Why }

// level reports whether two nodes are at the same position of a journal, and both did or
// did not restart.
func (s Standing) level(o Standing) bool {
	return s.Position.Term == o.Position.Term && s.Position.Seq == o.Position.Seq && s.Complete == o.Complete
}

// holdsMore reports whether a node holds more than the journal in etcd with this head:
// commits beyond it, or a history that was founded later, whose terms are far above.
func (s Standing) holdsMore(head journal.Head) bool {
	p := s.Position
	switch {
	case !s.Complete && !s.Restored || p.Seq == 0, s.Forked:
		return false
	case s.History.Is(head.History):
		return p.Term > head.Term || p.Term == head.Term && p.Seq > head.Seq
	}
	return p.Term >= head.Term+foundingTerms
}

// askTimeout bounds how long a node that is asked may take.
const askTimeout = 3 * time.Second

// ask asks nodes at once what they hold, and returns the answers by id. A node that cannot
// read its state files does not know: it counts as one that does not answer.
func (n *Node) ask(ctx context.Context, nodes map[string]string) map[string]Standing {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var mu sync.Mutex
	answers := make(map[string]Standing)
	var asks sync.WaitGroup
	for id, address := range nodes {
		asks.Go(func() {
			s, err := n.Peers.Standing(ctx, address)
			if err != nil || s.ID != id || s.Unread {
				n.Log.Debug().Err(err).Str("peer", id).Bool("unread", s.Unread).Msg("no answer from a node that may hold the journal's state")
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[id] = s
		})
	}
	asks.Wait()
	return answers
}

// An inquiry is what a node that finds the journal lost has learned from others. It begins
// with what the node knows by itself.
type inquiry struct {
	self      Standing
	primaries []string // ids of the nodes that may have been the last primary
	paused    bool     // automatic takeover
	// late says that the others have had their time: this node leaves the founding no longer
	// to one that holds no more than itself, or that restarted and may not know of it.
	late  bool
	term  metadata.Term // the last one that any node has seen
	lived bool          // a node that has the state did not restart
}

// wasPrimary reports whether this node was the last primary.
func (q *inquiry) wasPrimary() bool { return slices.Equal(q.primaries, []string{q.self.ID}) }

// holds reports whether a node has the state, or had it when it stopped.
func (q *inquiry) holds(s Standing) bool {
	return (s.Complete || s.Restored) && s.Position.Seq > 0 && s.History.Is(q.self.History)
}

// missing returns the ids of the nodes that may have been the last primary and did not
// answer that they are complete.
func (q *inquiry) missing(answers map[string]Standing) []string {
	return slices.DeleteFunc(slices.Clone(q.primaries), func(id string) bool {
		s := answers[id]
		return id == q.self.ID || s.Complete && q.holds(s)
	})
}

// lapsed reports whether a node that may have been the last primary may have been deposed
// without its knowledge before the journal was lost.
func (q *inquiry) lapsed(answers map[string]Standing) bool {
	return q.self.Lapsed || slices.ContainsFunc(q.primaries, func(id string) bool { return answers[id].Lapsed })
}

// take takes in the answers of other nodes. It returns an error if one of them stops this
// node from founding the journal anew.
func (q *inquiry) take(answers map[string]Standing) error {
	for _, s := range answers {
		q.term = max(q.term, s.Position.Term)
		ours := q.holds(s)
		q.lived = q.lived || ours && s.Complete
		switch {
		case s.Role == Primary && s.History.Is(q.self.History):
			return fmt.Errorf("%s still commits to the journal that this node finds lost", s.ID)
		case s.Complete && s.Position.Seq > 0 && !s.History.Is(q.self.History) && s.Position.Term > q.self.Position.Term:
			// Terms of a journal that was founded anew are far above those before it.
			return fmt.Errorf("%s holds a later journal, at sequence %d of term %d", s.ID, s.Position.Seq, s.Position.Term)
		case ours && q.leavesTo(s):
			return fmt.Errorf("%s is to found the journal anew, at sequence %d of term %d", s.ID, s.Position.Seq, s.Position.Term)
		}
	}
	return nil
}

// leavesTo reports whether this node leaves the founding to s, which has the state too. A
// node that holds no more may be unable to found the journal. So this node does it later
// itself: nothing is lost by that, and of two that try at once one fails.
func (q *inquiry) leavesTo(s Standing) bool {
	switch {
	case !s.ahead(q.self), q.paused && q.wasPrimary() && s.level(q.self):
		return false
	case !s.Complete, s.level(q.self): // a restored one may not know this node
		return !q.late
	}
	return true
}
