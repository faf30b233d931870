package promote

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
)

// A reclaimer makes space in an embedded etcd that is full while its own node is
// not the primary, which makes space by itself. Without it no node could register
// or run for election, since both are writes. A primary on another node may not
// defragment this etcd, so all its commits would be refused. Safe for concurrent use.
type reclaimer struct {
	node  *Node
	clock clock.Clock

	mu        sync.Mutex // held while space is made, I/O included: no write succeeds until then
	compactor *journal.Compactor
	after     time.Duration // by the clock: not before
}

func newReclaimer(n *Node) *reclaimer {
	return &reclaimer{node: n, clock: n.Clock, compactor: journal.NewCompactor(journal.Compactor{
		Client: n.Client, Layout: n.Layout, Clock: n.Clock, Log: n.Log, Owned: n.OwnsEtcd,
	})}
}

// reclaimEvery is the pause between two attempts, each of which copies etcd's
// database, and between two looks at the alarm.
const reclaimEvery = 2 * time.Second

// watch makes space also when only other nodes are refused a write, until the
// context ends.
func (r *reclaimer) watch(ctx context.Context) {
	if !r.ours() {
		return
	}
	tick := time.NewTicker(reclaimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if r.full(ctx) {
			r.reclaim(ctx)
		}
	}
}

// ours reports whether making space is this node's to do.
func (r *reclaimer) ours() bool { return r.node.OwnsEtcd && r.node.Compact }

// full reports whether etcd is known to have no space.
func (r *reclaimer) full(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	list, err := r.node.Client.AlarmList(ctx)
	return err == nil && slices.ContainsFunc(list.Alarms, func(a *etcdserverpb.AlarmMember) bool {
		return a.Alarm == etcdserverpb.AlarmType_NOSPACE
	})
}

// reclaim makes space if that is this node's to do. Errors are logged; the
// caller tries again what was refused, and with it this.
func (r *reclaimer) reclaim(ctx context.Context) {
	if !r.ours() {
		return
	}
	n := r.node
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clock() < r.after {
		return
	}
	if l, there, err := readLeader(ctx, n.Client, n.Layout); err != nil || there && l.NodeID == n.ID {
		return
	}
	if err := r.compactor.MakeSpace(ctx); err != nil && ctx.Err() == nil {
		n.Log.Warn().Err(err).Msg("making space in etcd failed, it will be tried again")
	}
	r.after = r.clock() + reclaimEvery
}
