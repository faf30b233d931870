package promote

import "errors"

// An Obstacle is why no node serves, or this node cannot, with what an operator can do
// about it.
type Obstacle struct {
	Cause   Cause
	Reason  string
	Help    string // empty if time mends it
	Awaited int    // complete nodes that are waited for
}

func (o *Obstacle) Error() string { return o.Reason }

// A Cause is the kind of an obstacle.
type Cause string

// The causes.
const (
	AwaitsComplete Cause = "complete nodes are away"
	HoldsFile      Cause = "a state from a file"
)

// meet notes what kept this node from an election, and logs it once.
func (n *Node) meet(err error) {
	var o *Obstacle
	_ = errors.As(err, &o)
	n.mu.Lock()
	before := n.obstacle
	n.obstacle = o
	n.mu.Unlock()
	if o != nil && (before == nil || before.Reason != o.Reason) {
		n.Log.Warn().Str("cause", string(o.Cause)).Str("help", o.Help).Msg("no node serves: " + o.Reason)
	}
}
