package promote

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/follower"
)

// companions are the complete nodes as last seen while the journal was well, those that
// were away included. A node that finds the journal lost asks them directly, since nodes/
// may be lost with it. They are kept with the state files. Safe for concurrent use.
type companions struct {
	wake chan struct{} // look soon
	// compared says that etcd lists all remembered nodes. It is false after the
	// memory was read from a file, and after the journal was lost: etcd may then have gone
	// back to before a node listed itself.
	compared atomic.Bool

	mu   sync.Mutex // guards all below
	last memory
}

// A memory is what a node remembers of its cluster.
type memory struct {
	ClusterID string            `json:"cluster_id,omitempty"` // empty from older versions
	At        map[string]string `json:"complete"`             // id -> RPC address
	Primary   string            `json:"primary"`              // id of the last one that served
	Term      metadata.Term     `json:"term"`                 // in which it did
	Seq       metadata.Seq      `json:"sequence"`             // up to which this node had read the journal when it learned any of this; 0 from older versions
	// LastTerm is the last one in which anybody committed, in this journal or one that it
	// descends from. If etcd goes back, the terms after that go on behind it.
	LastTerm metadata.Term `json:"last_term,omitempty"`
	// Cluster is the id of the etcd cluster, which a restored backup does not have; 0 if it
	// is not known.
	Cluster uint64 `json:"etcd_cluster,omitempty"`
	// WentBack says that etcd may have gone back, so that more was acknowledged than it
	// holds, and that no primary was seen to commit since.
	WentBack bool `json:"etcd_went_back,omitempty"`
	// Owner is the id of the node in which etcd is embedded, if it makes space there.
	Owner string `json:"etcd_owner,omitempty"`
	// History is the journal's, and Ancestors those that it descends from.
	History   journal.History    `json:"history"`
	Ancestors []journal.Ancestor `json:"ancestors,omitempty"`
}

const (
	// companionsEvery is how often a node looks who else is complete.
	companionsEvery = time.Second
	// maxCompanions bounds the nodes that are remembered.
	maxCompanions = 100
)

// recall starts from what was kept; nil for nothing. It ignores the memory of another
// cluster, since this node would wait for that cluster's nodes. Of a damaged one it takes what
// can be read, and returns an error.
func (c *companions) recall(clusterID string, kept []byte) (err error) {
	var m memory
	if kept != nil {
		err = json.Unmarshal(kept, &m)
	}
	if m.ClusterID != "" && m.ClusterID != clusterID {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = m
	return err
}

// run keeps the list up to date until the context ends. status returns how the node stands
// to the journal.
func (c *companions) run(ctx context.Context, n *Node, status func() follower.Status) {
	doubts := 0
	for {
		s := status()
		if s.Doubts != doubts {
			c.compared.Store(false)
		}
		doubts = s.Doubts
		c.look(ctx, n, s)
		due := time.NewTimer(companionsEvery)
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-due.C:
		}
		if due.Stop(); ctx.Err() != nil {
			return
		}
	}
}

// hurry makes run look at once, so that the number of a new term is soon kept.
func (c *companions) hurry() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *companions) lastTerm() metadata.Term {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.last.LastTerm, c.last.Term) // older versions write the latter alone
}

// look reads the nodes, then the head, and remembers the nodes unless the head says that the
// journal is lost.
func (c *companions) look(ctx context.Context, n *Node, s follower.Status) {
	leader, there, err := readLeader(ctx, n.Client, n.Layout)
	if err != nil {
		return
	}
	nodes, err := listNodes(ctx, n.Client, n.Layout)
	if err != nil {
		return
	}
	n.readCounts(leader, nodes, n.Clock())
	view, err := n.reader().Look(ctx)
	if err != nil {
		return
	}
	if view.Missing() || s.At.Against(view.Cursor, view.Err) != nil {
		c.compared.Store(false)
		return
	}
	list, err := n.listComplete(ctx)
	if err != nil {
		return
	}
	if !c.compared.Load() {
		if list, err = n.relist(ctx, list, c.known()); err != nil {
			n.Log.Debug().Err(err).Msg("nodes that are remembered were not listed as complete, it will be tried again")
			return
		}
		c.compared.Store(true)
	}
	n.enlist(ctx, nodes, list, view.Cursor.Head)
	m := memory{ClusterID: n.ClusterID, At: make(map[string]string), History: view.Cursor.Head.History, Cluster: view.Cluster}
	m.meet(n.ID, nodes, list)
	before := c.known()
	m.Primary, m.Term, m.Seq = before.Primary, before.Term, before.Seq
	if m.Ancestors = before.Ancestors; m.History != before.History {
		if m.Ancestors, err = n.reader().Ancestors(ctx); err != nil {
			return
		}
	}
	if there && leader.State == Serving && leader.Term == view.Cursor.Head.Term { // else somebody wrote it by hand, or it went
		m.Primary, m.Term = leader.NodeID, leader.Term
	}
	m.LastTerm = before.termsThrough(m, view.Cursor.Head)
	m.WentBack = s.WasLost || before.WentBack && !s.Complete || before.Cluster != 0 && before.Cluster != view.Cluster
	if !reflect.DeepEqual(m, before) {
		m.Seq = s.At.Head.Seq
	}
	c.mu.Lock()
	c.last = m
	c.mu.Unlock()
	if kept, err := json.Marshal(m); err == nil && n.StateDir != "" {
		n.saver.remember(kept)
	}
}

// meet adds the nodes that are listed as complete, and those registered ones that could take
// over, now or when their watch of etcd brings something, or serve.
func (m *memory) meet(self string, nodes []NodeInfo, list absentees) {
	for _, absent := range list {
		if absent.ID != self && absent.RPC != "" {
			m.At[absent.ID] = absent.RPC
		}
	}
	for _, other := range nodes {
		if other.MakesSpace {
			m.Owner = other.ID
		}
		if other.ID != self && (other.Promotable || other.Stalled || other.Role == Primary) && len(m.At) < maxCompanions {
			m.At[other.ID] = other.RPC
		}
	}
}

// descends reports whether the journal that is remembered is of a history, or descends
// from it.
func (m memory) descends(of journal.History) bool {
	return m.History.Is(of) || slices.ContainsFunc(m.Ancestors, func(a journal.Ancestor) bool { return a.History == of })
}

// termsThrough returns the last known term of the journal in another memory, whose head is
// given. What m remembers counts only if one of the two journals descends from the other.
func (m memory) termsThrough(of memory, head journal.Head) metadata.Term {
	if m.descends(of.History) || of.descends(m.History) {
		return max(m.LastTerm, head.Term)
	}
	return head.Term
}

// descent returns what a history descends from, nil if that is not remembered.
func (c *companions) descent(of journal.History) []journal.Ancestor {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.History != of {
		return nil
	}
	return c.last.Ancestors
}

func (c *companions) known() memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.last
	m.LastTerm = max(m.LastTerm, m.Term) // as in lastTerm
	m.At = make(map[string]string, len(c.last.At))
	maps.Copy(m.At, c.last.At)
	return m
}
