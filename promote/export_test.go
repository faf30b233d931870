package promote

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/statefile"
)

// WaitsUntil says until when a node waits for others that may hold more than etcd.
func WaitsUntil(now, begun, leaderless, wait time.Duration) string {
	return waitsUntil(now, begun, leaderless, wait)
}

// MayStart reports whether an operator's permission to start empty stands.
func (n *Node) MayStart() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.allowed
}

// SaysNoWriters reports whether an empty start would begin as if no writer were left.
func (n *Node) SaysNoWriters() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.idle
}

// Known returns how many other complete nodes this node remembers.
func (n *Node) Known() int {
	known := n.companions.known()
	if known.Primary == "" {
		return -1
	}
	return len(known.At)
}

// KnownTerm returns the last term that this node remembers.
func (n *Node) KnownTerm() metadata.Term { return n.companions.lastTerm() }

// Kept reports whether this node has written down all that it remembers of others.
func (n *Node) Kept() bool {
	n.saver.mu.Lock()
	defer n.saver.mu.Unlock()
	now, err := json.Marshal(n.companions.known())
	return err == nil && (n.saver.dir == nil || bytes.Equal(now, n.saver.kept))
}

// A Retention is a retention outside of a term.
type Retention struct{ of *retention }

// NewRetention returns a Retention with a configuration.
func NewRetention(c Config) Retention { return Retention{newRetention(&Node{Config: c})} }

// Look reads the positions once, and returns from where history is kept.
func (r Retention) Look(ctx context.Context) (int64, error) {
	err := r.of.look(ctx)
	return r.of.from, err
}

// Remembers reports whether this node remembers that a history descends from another.
func (n *Node) Remembers(of, from journal.History) bool {
	return slices.ContainsFunc(n.companions.descent(of), func(a journal.Ancestor) bool { return a.History == from })
}

// SaveInTime writes a file as savers do.
func SaveInTime(ctx context.Context, write func(wrote func()) error) error {
	n := &Node{Config: Config{Clock: clock.Boot(), Log: zerolog.Nop()}}
	n.saver = newSaver(n)
	of := &statefile.Source{At: func() journal.Cursor { return journal.Cursor{} }}
	return n.saver.inTime(ctx, of, func(_ context.Context, of statefile.Source) error { return write(of.Wrote) })
}

// Unserved notes that an election of the node led nowhere, and returns for how long it pauses.
func (n *Node) Unserved(why error) time.Duration {
	n.unserved(why)
	return n.again.at - n.Clock()
}
