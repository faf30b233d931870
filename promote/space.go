package promote

import (
	"context"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
)

// A reclaimer makes space in an embedded etcd that is full while nobody is
// elected. A primary makes space by itself, but registering and standing for
// election are writes, too: nobody could become one. Safe for concurrent use.
type reclaimer struct {
	node  *Node
	clock clock.Clock

	mu        sync.Mutex // held while space is made: nobody has anything better to do then
	compactor *journal.Compactor
	after     time.Duration // by the clock: not before
}

func newReclaimer(n *Node) *reclaimer {
	return &reclaimer{node: n, clock: n.Clock, compactor: journal.NewCompactor(journal.Compactor{
		Client: n.Client, Layout: n.Layout, Clock: n.Clock, Log: n.Log, Owned: n.OwnsEtcd,
	})}
}

// reclaimEvery is the pause between two attempts, each of which copies etcd's
// database.
const reclaimEvery = 2 * time.Second

// reclaim makes space if that is this node's to do. Errors are logged; the
// caller tries again what was refused, and with it this.
func (r *reclaimer) reclaim(ctx context.Context) {
	n := r.node
	if !n.OwnsEtcd || !n.Compact {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clock() < r.after {
		return
	}
	if _, there, err := readLeader(ctx, n.Client, n.Layout); err != nil || there {
		return
	}
	if err := r.compactor.MakeSpace(ctx); err != nil && ctx.Err() == nil {
		n.Log.Warn().Err(err).Msg("making space in etcd failed, it will be tried again")
	}
	r.after = r.clock() + reclaimEvery
}
