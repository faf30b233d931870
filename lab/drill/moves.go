package drill

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// The drill of moves between segments, which Mooncake's protocol has.

// A mover is a client that owns two segments and moves objects between them.
type mover struct {
	id         segment.ClientID
	generation *mooncake.Generation
	conn       *mooncakeclient.Conn
}

// call calls a node and returns the result, which must not be an error.
func call[V any](ctx context.Context, m *mover, f mooncake.Call[mooncake.Result[V]], a mooncake.Args) V {
	var r mooncake.Result[V]
	a.Client = m.id
	_, err := mooncakeclient.Do(ctx, m.conn, f, &a, &r)
	if kind, _ := errs.FromNumber(r.Failure); err == nil && r.Failure != 0 {
		err = kind
	}
	if err != nil {
		do(fmt.Errorf("%s: %w", f.Name, err))
	}
	return r.Value
}

func (m *mover) dial(ctx context.Context, n *cluster.Node) {
	if m.conn != nil {
		_ = m.conn.Close()
	}
	m.conn = must(mooncakeclient.Dial(ctx, n.Addr(), m.generation))
}

func (m *mover) mount(ctx context.Context, number byte, name string, size uint64) {
	call(ctx, m, m.generation.MountSegment, mooncake.Args{
		Segment: segment.Spec{ID: segment.ID(uuid.New()), Name: name, Base: uint64(number) << 40, Size: size, Endpoint: name + ":1", Protocol: "tcp"},
	})
}

// withMover plays a drill in which a client of Mooncake's protocol owns all memory, one segment
// for each name. The client does not expire.
func (e *Env) withMover(ctx context.Context, names []string, play func(ctx context.Context, p pair, b *bulk, m *mover), args ...string) {
	ep := episode{}
	ep.Args = append([]string{"--client_ttl=1h"}, args...)
	e.episode(ctx, ep, func(ctx context.Context) {
		p, b := e.ready(ctx), e.newBulk()
		defer b.Close()
		m := &mover{id: segment.ClientID(uuid.New()), generation: e.Access.Speaks()}
		m.dial(ctx, p.primary)
		defer func() { _ = m.conn.Close() }()
		for i, name := range names {
			m.mount(ctx, byte(i+1), name, uint64(offloadRoom/len(names)*offloadSize))
		}
		play(ctx, p, b, m)
	})
}

// moves begins moves, kills the primary under memory pressure, and ends the moves at the next
// one. The moved objects must exist all the time, and the waiting tasks must survive.
func moves(ctx context.Context, e *Env) {
	e.withMover(ctx, []string{"from", "to"}, func(ctx context.Context, p pair, b *bulk, m *mover) {
		const some = offloadRoom / 8
		keys := bulkKeys(0, 0, some)
		do(b.putAll(ctx, keys, offloadSize, client.PutConfig{PreferredSegments: []string{"from"}}))
		for _, key := range keys {
			about := mooncake.Args{Key: key, SegmentName: "from", Target: "to"}
			call(ctx, m, m.generation.MoveStart, about)
			call(ctx, m, m.generation.CreateMoveTask, about)
		}
		e.sourcesThere(ctx, b, keys, "other objects were evicted")
		do(b.removeAll(ctx))
		n, _ := e.kill(ctx, p.primary, p.term)
		m.dial(ctx, n)
		e.sourcesThere(ctx, b, keys, "a takeover and evictions")
		tasks := call(ctx, m, m.generation.FetchTasks, mooncake.Args{Most: 2 * some})
		e.result.check("tasks survive", len(tasks) == some, "%d of %d tasks are given out after a takeover", len(tasks), some)
		for i, key := range keys {
			call(ctx, m, m.generation.MoveEnd, mooncake.Args{Key: key})
			if i < len(tasks) {
				call(ctx, m, m.generation.MarkTaskToComplete,
					mooncake.Args{TaskEnd: mooncake.TaskEnd{ID: tasks[i].ID, Status: int32(metadata.TaskSucceeded)}})
			}
		}
		moved := 0
		for _, f := range must(b.BatchGetReplicaList(ctx, keys)) {
			if at := f.Object.Replicas; len(at) == 1 && at[0].Endpoint == "to:1" {
				moved++
			}
		}
		e.result.violate("D", some-moved, fmt.Sprintf("%d of %d objects are where they were moved to", moved, some))
		e.did("%d objects were moved over a takeover", moved)
		e.restart(ctx, p.primary)
		e.result.Rounds++
		e.compare(ctx)
	})
}

// sourcesThere fills the memory, checks that objects still exist, and returns how many do.
func (e *Env) sourcesThere(ctx context.Context, b *bulk, keys []string, after string) (kept int) {
	e.fillUp(ctx, b)
	for _, there := range must(b.there(ctx, keys)) {
		if there {
			kept++
		}
	}
	e.result.check("sources are spared", kept == len(keys), "%d of %d objects that are being copied were left after %s", kept, len(keys), after)
	return kept
}
