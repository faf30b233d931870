package drill

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/mooncake"
)

// groups reads one member of a group all the time while memory is filled, on the primary
// and on the next one: all members must stay. The members of another group must be evicted
// together, and so must those of the first group once nobody reads it any more.
func groups(ctx context.Context, e *Env) {
	if g := e.Access.Speaks(); !g.Fields.Groups {
		e.result.Skipped = "clients of generation " + g.Name + " have no groups"
		return
	}
	e.withMover(ctx, []string{"memory"}, func(ctx context.Context, p pair, b *bulk, m *mover) {
		const some = offloadRoom / 8
		hot, cold := bulkKeys(0, 0, some), bulkKeys(1, 0, some)
		m.putGroup(ctx, "hot", hot)
		m.putGroup(ctx, "cold", cold)

		reading, stop := context.WithCancel(ctx)
		var readers errgroup.Group
		readers.Go(func() error { return b.readOn(reading, hot[some/2]) })
		defer func() { stop(); do(readers.Wait()) }()
		e.groupThere(ctx, b, cold, false)
		e.groupThere(ctx, b, hot[:1], true) // the next check extends the lease of all members
		n, _ := e.kill(ctx, p.primary, p.term)
		m.dial(ctx, n)
		e.groupThere(ctx, b, hot, true)
		stop()
		e.groupThere(ctx, b, hot, false)
		e.did("a group stayed with its leased member over a takeover, and went whole")
		e.restart(ctx, p.primary)
		e.result.Rounds++
		e.compare(ctx)
	})
}

// putGroup puts objects of a group, as Mooncake's client does.
func (m *mover) putGroup(ctx context.Context, name string, keys []string) {
	for _, key := range keys {
		call(ctx, m, func(g *mooncake.Generation) mooncake.Call[mooncake.Result[mooncake.ObjectReplicas]] {
			return g.PutStart
		},
			mooncake.Args{Key: key, Size: offloadSize, Config: mooncake.ReplicateConfig{Replicas: 1, Groups: &[]string{name}}})
		call(ctx, m, func(g *mooncake.Generation) mooncake.Call[mooncake.Done] { return g.PutEnd },
			mooncake.Args{Item: mooncake.PutItem{Key: key}})
	}
}

// readOn reads a key all the time, until the context ends.
func (b *bulk) readOn(ctx context.Context, key string) error {
	for ctx.Err() == nil {
		if _, err := b.GetReplicaList(ctx, key); err != nil && ctx.Err() == nil && !errs.KindOf(err).Retryable() {
			return fmt.Errorf("reading a member of a group: %w", err)
		}
		_ = clock.Sleep(ctx, 100*time.Millisecond)
	}
	return nil
}

// groupThere fills the memory twice, and checks that all members of a group are still there,
// or none, as wanted.
func (e *Env) groupThere(ctx context.Context, b *bulk, keys []string, want bool) {
	e.fillUp(ctx, b)
	must(b.RemoveByRegex(ctx, "^fill/", client.Removal{Force: true}))
	left := 0
	for _, there := range must(b.there(ctx, keys)) {
		if there {
			left++
		}
	}
	e.result.check("groups are whole", left == len(keys) || left == 0, "%d of %d members are left", left, len(keys))
	if want {
		e.result.check("groups are kept", left == len(keys), "%d of %d members are left although one is leased", left, len(keys))
	}
}
