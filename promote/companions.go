package promote

import (
	"context"
	"sync"
	"time"

	"github.com/understudy-store/understudy/journal"
)

// companions are the complete nodes as last seen while the journal was well. A node
// that finds the journal lost asks them directly: what became of the journal may have
// become of nodes/, too. Safe for concurrent use.
type companions struct {
	mu      sync.Mutex
	at      map[string]string // id -> RPC address
	primary string            // id of the last one that served
}

const (
	// companionsEvery is how often a node looks who else is complete.
	companionsEvery = time.Second
	// maxCompanions bounds the nodes that are remembered.
	maxCompanions = 100
)

// run keeps the list up to date until the context ends. tip returns where the node
// stands in the journal.
func (c *companions) run(ctx context.Context, n *Node, tip func() journal.Cursor) {
	for {
		c.look(ctx, n, tip())
		if sleep(ctx, companionsEvery) != nil {
			return
		}
	}
}

// look takes in the nodes, unless the head says that the journal is lost: it is read
// after them.
func (c *companions) look(ctx context.Context, n *Node, at journal.Cursor) {
	leader, there, err := readLeader(ctx, n.Client, n.Layout)
	if err != nil {
		return
	}
	nodes, err := listNodes(ctx, n.Client, n.Layout)
	if err != nil {
		return
	}
	view, err := (&journal.Reader{Client: n.Client, Layout: n.Layout}).Look(ctx)
	if err != nil || view.Missing() || at.Against(view.Cursor, view.Err) != nil {
		return
	}
	list := make(map[string]string)
	for _, other := range nodes {
		if other.ID != n.ID && (other.Promotable || other.Role == Primary) && len(list) < maxCompanions {
			list[other.ID] = other.RPC
		}
	}
	n.enlist(ctx, nodes, view.Cursor.Head)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = list
	if there && leader.State == Serving {
		c.primary = leader.NodeID
	}
}

// known returns the nodes, by id with their addresses, and the last primary.
func (c *companions) known() (list map[string]string, primary string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list = make(map[string]string, len(c.at))
	for id, address := range c.at {
		list[id] = address
	}
	return list, c.primary
}
