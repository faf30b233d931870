package service

import (
	"sync"
	"sync/atomic"

	"github.com/understudy-store/understudy/errs"
)

// A Gate is where front ends find the Master of the term in which this node
// serves, if it does.
type Gate struct {
	master atomic.Pointer[Master]
	hint   atomic.Pointer[Hint]

	mu      sync.Mutex    // guards changed
	changed chan struct{} // closed with the next change
}

// A Hint says who serves instead of this node, as far as it knows.
type Hint struct {
	Term   uint64
	NodeID string
	RPC    string // address; empty if nobody is known to serve
}

// NotLeaderError is the answer of a node that does not serve.
type NotLeaderError struct{ Hint Hint }

func (e *NotLeaderError) Error() string {
	if e.Hint.RPC == "" {
		return "this node does not serve, and it knows of none that does; ask again"
	}
	return "this node does not serve; ask " + e.Hint.RPC
}

// Unwrap returns errs.NotLeader.
func (e *NotLeaderError) Unwrap() error { return errs.NotLeader }

// NewGate returns a gate of a node that does not serve.
func NewGate() *Gate {
	g := &Gate{changed: make(chan struct{})}
	g.hint.Store(new(Hint))
	return g
}

// Open lets calls through to a master.
func (g *Gate) Open(m *Master) {
	g.master.Store(m)
	g.announce()
}

// Close turns calls away, with a hint.
func (g *Gate) Close(h Hint) {
	g.hint.Store(&h)
	g.master.Store(nil)
	g.announce()
}

// SetHint changes what callers are told who are turned away.
func (g *Gate) SetHint(h Hint) {
	g.hint.Store(&h)
	g.announce()
}

// Changed returns a channel that is closed when the master or the hint may have
// changed since.
func (g *Gate) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

func (g *Gate) announce() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.changed)
	g.changed = make(chan struct{})
}

// Hint returns who serves instead of this node, as far as it knows.
func (g *Gate) Hint() Hint { return *g.hint.Load() }

// Master returns the master, or a *NotLeaderError. It does not check the
// fence; every call does.
func (g *Gate) Master() (*Master, error) {
	m := g.master.Load()
	if m == nil {
		return nil, &NotLeaderError{g.Hint()}
	}
	return m, nil
}

// Serves reports whether this node serves.
func (g *Gate) Serves() bool {
	m := g.master.Load()
	return m != nil && m.Fence() == nil
}
