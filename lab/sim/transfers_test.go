package sim

import (
	"context"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// transfer copies or moves an object from one host to the other, as one that has
// no request ids: a start whose answer is lost is given up.
func (c *caller) transfer(ctx context.Context, key string, move bool) {
	list, err := c.read(key)
	if err != nil {
		return
	}
	from := list.Replicas[c.rng.IntN(len(list.Replicas))]
	t, err := c.transferStart(key, from, move)
	for range tries {
		switch {
		case ctx.Err() != nil:
			return
		case t != nil:
			c.think(2 * time.Millisecond) // it copies the bytes
			err = c.transferEnd(key, move, t)
		case errs.KindOf(err) == errs.Unresolved:
			err = c.transferRevoke(key, move)
		}
		switch errs.KindOf(err) {
		case errs.OK, errs.ObjectNoTask, errs.ObjectNotFound:
			return
		default:
			if t == nil && errs.KindOf(err) != errs.Unresolved {
				return
			}
		}
		c.think(400 * time.Millisecond)
	}
}

func transferOf(key string, move bool) metadata.Transfer {
	return metadata.Transfer{Tenant: metadata.DefaultTenant, Key: key, Client: owner, Move: move}
}

func (c *caller) transferStart(key string, from metadata.Descriptor, move bool) (*transfer, error) {
	ask := transferOf(key, move)
	ask.Source, ask.Targets = from.Segment, []string{hosts[0]}
	if ask.Source == hosts[0] {
		ask.Targets[0] = hosts[1]
	}
	var plan service.TransferPlan
	got := make(chan *transfer, 1)
	err := c.ask(func(ctx context.Context, m *service.Master) (err error) {
		if move {
			plan, err = m.MoveStart(ctx, ask)
		} else {
			plan, err = m.CopyStart(ctx, ask)
		}
		return err
	}, func(at call, err error) {
		if err == nil {
			var source *bytes
			if move {
				source = &bytesOf([]metadata.Descriptor{plan.Source})[0]
			}
			got <- c.world.judge.transferred(at, key, plan.ID, source, bytesOf(plan.Targets))
		}
		c.record("begins to "+transferName(move)+" "+key, at, err)
	})
	if err != nil {
		return nil, err
	}
	return <-got, nil
}

func transferName(move bool) string {
	if move {
		return "move"
	}
	return "copy"
}

func (c *caller) transferEnd(key string, move bool, t *transfer) error {
	c.world.judge.transferEnding(t, c.world.transcript.now())
	return c.ask(func(ctx context.Context, m *service.Master) error {
		if move {
			return m.MoveEnd(ctx, transferOf(key, move))
		}
		return m.CopyEnd(ctx, transferOf(key, move))
	}, func(at call, err error) {
		switch errs.KindOf(err) {
		case errs.OK:
			c.world.judge.transferEnded(at, t)
		case errs.ObjectNoTask, errs.ObjectNotFound, errs.IllegalClient, errs.InvalidParams, errs.ReplicaGone:
			c.world.judge.transferNotEnded(at, t, err)
		default: // leaves open what became of it
		}
		c.record("ends to "+transferName(move)+" "+key, at, err)
	})
}

func (c *caller) transferRevoke(key string, move bool) error {
	return c.ask(func(ctx context.Context, m *service.Master) error {
		if move {
			return m.MoveRevoke(ctx, transferOf(key, move))
		}
		return m.CopyRevoke(ctx, transferOf(key, move))
	}, func(at call, err error) { c.record("gives up to "+transferName(move)+" "+key, at, err) })
}
